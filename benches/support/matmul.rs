//! `C = A W` by this library and by matrixmultiply, on the same values.

#![allow(unsafe_code)]

use crate::buffer::Buffer;
use crate::work::Work;
#[cfg(feature = "train")]
use simdformer_kernels::{Activation, Exec, train};
use simdformer_kernels::{
    Dtype, Epilogue, Isa, Matrix, MatrixMut, PackOptions, PackedMatrix, Parallelism, PostOp, gemm,
};
use std::hint::black_box;

/// Rows of A, columns of W, rows of W.
#[derive(Clone, Copy)]
pub(crate) struct Shape(pub(crate) usize, pub(crate) usize, pub(crate) usize);

impl Shape {
    pub(crate) fn name(self) -> String {
        format!("{}x{}x{}", self.0, self.1, self.2)
    }

    pub(crate) fn flops(self) -> f64 {
        2.0 * self.0 as f64 * self.1 as f64 * self.2 as f64
    }

    /// The bytes of W.
    pub(crate) fn weight_bytes(self) -> f64 {
        4.0 * self.1 as f64 * self.2 as f64
    }

    /// The bytes of W in f16 or bf16.
    pub(crate) fn half_bytes(self) -> f64 {
        0.5 * self.weight_bytes()
    }

    /// A, W as `[depth, columns]`, and C.
    pub(crate) fn operands(self) -> (Buffer, Buffer, Buffer) {
        let Self(m, n, k) = self;
        (Buffer::random(m * k, 1), Buffer::random(k * n, 2), Buffer::zeros(m * n))
    }

    /// A GEMM of this shape.
    pub(crate) fn work(self, run: impl FnMut(Parallelism<'_>) + Send + 'static) -> Work {
        Work::new(self.flops(), self.weight_bytes(), run)
    }
}

/// A shape that is a multiple of `panel` columns and of `lanes`, then shapes near it and much smaller that
/// are not.
pub(crate) fn odd_shapes(panel: usize, lanes: usize) -> Vec<Shape> {
    let (rows, columns, depth) = (48, 512usize.next_multiple_of(panel), 512);
    let mut shapes = vec![Shape(rows, columns, depth)];
    shapes.extend([3, 5, 7, 11, 13, 47, 49, 50, 51, 52, 53].map(|m| Shape(m, columns, depth)));
    for n in [1, lanes - 1, lanes, lanes + 1, panel - 1] {
        shapes.push(Shape(rows, columns + n, depth));
    }
    shapes.extend([1, 17, 100].map(|n| Shape(rows, n, depth)));
    shapes.extend([1, 2, 3, 17, 511, 513, 2047, 2049].map(|k| Shape(rows, columns, k)));
    shapes.push(Shape(rows + 1, columns + 1, depth + 1));
    shapes.push(Shape(rows - 1, columns - 1, depth - 1));
    shapes
}

/// This library, with packed W and `epilogue`.
pub(crate) fn ours(isa: Isa, shape: Shape, epilogue: Epilogue<'static>) -> Work {
    let Shape(m, n, k) = shape;
    let (a, w, mut c) = shape.operands();
    let mut packed = Buffer::zeros(PackedMatrix::buffer_len(isa, k, n).expect("length"));
    let weight = Matrix::new(&w, k, n).expect("weight");
    PackedMatrix::pack(isa, weight, &mut packed).expect("pack");
    shape.work(move |parallelism| {
        let weight = PackedMatrix::from_packed(isa, k, n, &packed).expect("packed");
        let a = Matrix::new(black_box(&a), m, k).expect("a");
        let c = MatrixMut::new(&mut c, m, n).expect("c");
        gemm(a, &weight, &epilogue, c, parallelism).expect("gemm");
    })
}

/// This library, with W packed in f16 or bf16.
pub(crate) fn stored(isa: Isa, shape: Shape, dtype: Dtype) -> Work {
    let Shape(m, n, k) = shape;
    let (a, w, mut c) = shape.operands();
    let length = PackOptions::new(dtype).buffer_len(isa, k, n).expect("length");
    let mut packed = Buffer::zeros(length);
    let weight = Matrix::new(&w, k, n).expect("weight");
    PackOptions::new(dtype).pack_columns(isa, weight, (k, n), 0, &mut packed).expect("pack");
    let work = shape.work(move |parallelism| {
        let weight = PackOptions::new(dtype).from_packed(isa, k, n, &packed).expect("packed");
        let a = Matrix::new(black_box(&a), m, k).expect("a");
        let c = MatrixMut::new(&mut c, m, n).expect("c");
        gemm(a, &weight, &Epilogue::default(), c, parallelism).expect("gemm");
    });
    Work { bytes: shape.half_bytes(), ..work }
}

/// The product of a gradient and a weight, times the derivative of an activation.
#[cfg(feature = "train")]
pub(crate) fn derivative(isa: Isa, shape: Shape, of: Activation) -> Work {
    let pre = Box::leak(Box::new(Buffer::random(shape.0 * shape.1, 5)));
    let pre = Matrix::new(pre, shape.0, shape.1).expect("pre");
    let post_op = PostOp::ActivationBackward { activation: of, pre };
    ours(isa, shape, Epilogue { post_op, ..Epilogue::default() })
}

/// Two products of half of the columns each, the second of which gates the first: the multiply-adds of one
/// product of `shape`.
pub(crate) fn gated(isa: Isa, shape: Shape) -> Work {
    let Shape(m, n, k) = shape;
    let half = n / 2;
    let (a, w, _) = shape.operands();
    let mut c = Buffer::zeros(m * half);
    let floats = PackedMatrix::buffer_len(isa, k, half).expect("length");
    let mut packed = [Buffer::zeros(floats), Buffer::zeros(floats)];
    for (packed, first) in packed.iter_mut().zip([0, half]) {
        let weight = Matrix::strided(&w[first..], k, half, n, 1).expect("weight");
        PackedMatrix::pack(isa, weight, packed).expect("pack");
    }
    shape.work(move |parallelism| {
        let a = Matrix::new(black_box(&a), m, k).expect("a");
        for (packed, post_op) in packed.iter().zip([PostOp::None, PostOp::MultiplyOutput]) {
            let weight = PackedMatrix::from_packed(isa, k, half, packed).expect("packed");
            let c = MatrixMut::new(&mut c, m, half).expect("c");
            let epilogue = Epilogue { post_op, ..Epilogue::default() };
            gemm(a, &weight, &epilogue, c, parallelism).expect("gemm");
        }
    })
}

/// This library packing a W stored as `[columns, depth]` (as in checkpoints) or, with `by_row`, as `[depth,
/// columns]`.
pub(crate) fn packing(isa: Isa, columns: usize, depth: usize, by_row: bool) -> Work {
    let w = Buffer::random(columns * depth, 2);
    let mut packed = Buffer::zeros(PackedMatrix::buffer_len(isa, depth, columns).expect("length"));
    Work::new(0.0, 4.0 * columns as f64 * depth as f64, move |parallelism| {
        let weight = if by_row {
            Matrix::new(black_box(&w), depth, columns).expect("weight")
        } else {
            Matrix::new(black_box(&w), columns, depth).expect("weight").transposed()
        };
        PackOptions { parallelism, ..PackOptions::default() }
            .pack(isa, weight, black_box(&mut packed))
            .expect("pack");
    })
}

/// Rows, outputs and inputs: a feed-forward block and a projection of the base size, then the same and the
/// output projection of a small model, in batches of the usual size.
#[cfg(feature = "train")]
pub(crate) const GRADIENTS: [(usize, usize, usize); 7] = [
    (4096, 2048, 512),
    (4096, 512, 2048),
    (4096, 512, 512),
    (1500, 384, 128),
    (1500, 128, 384),
    (1500, 128, 128),
    (1500, 2318, 128),
];

/// Rows in a reduction chunk of a gradient.
#[cfg(feature = "train")]
const REDUCTION_CHUNK: usize = 512;

/// The gradient of a weight of `[outputs, inputs]` over `rows` rows, in chunks of 512.
#[cfg(feature = "train")]
pub(crate) fn weight_gradient(isa: Isa, (rows, outputs, inputs): (usize, usize, usize)) -> Work {
    let (d_y, x) = (Buffer::random(rows * outputs, 1), Buffer::random(rows * inputs, 2));
    let (mut d_weight, mut d_bias) = (Buffer::zeros(outputs * inputs), Buffer::zeros(outputs));
    let ends: Vec<u32> = (0..rows.div_ceil(REDUCTION_CHUNK))
        .map(|i| rows.min((i + 1) * REDUCTION_CHUNK) as u32)
        .collect();
    let floats = train::weight_gradient_scratch(isa, REDUCTION_CHUNK.min(rows), outputs, inputs);
    let mut scratch = Buffer::zeros(floats.expect("length"));
    Shape(rows, outputs, inputs).work(move |parallelism| {
        train::weight_gradient(
            Exec::new(isa, parallelism),
            Matrix::new(black_box(&d_y), rows, outputs).expect("dY"),
            Matrix::new(black_box(&x), rows, inputs).expect("X"),
            train::ReductionChunks::new(&ends).expect("chunks"),
            train::WriteMode::Store,
            MatrixMut::new(&mut d_weight, outputs, inputs).expect("dW"),
            Some(&mut d_bias),
            &mut scratch,
        )
        .expect("gradient");
    })
}

/// matrixmultiply on one thread. It packs both operands in every call.
pub(crate) fn matrixmultiply(shape: Shape) -> Work {
    let Shape(m, n, k) = shape;
    let (a, w, mut c) = shape.operands();
    shape.work(move |_| {
        let (a, n_stride, k_stride) = (black_box(&a), n as isize, k as isize);
        // SAFETY: the buffers have m x k, k x n and m x n floats without gaps.
        unsafe {
            matrixmultiply::sgemm(
                m,
                k,
                n,
                1.0,
                a.as_ptr(),
                k_stride,
                1,
                w.as_ptr(),
                n_stride,
                1,
                0.0,
                c.as_mut_ptr(),
                n_stride,
                1,
            );
        }
    })
}
