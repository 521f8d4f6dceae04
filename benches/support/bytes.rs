//! Products with int8 weights.

use crate::buffer::Buffer;
use crate::matmul::Shape;
use crate::work::Work;
use simdformer_kernels::{
    Epilogue, Exec, Isa, Matrix, MatrixMut, Quantization, QuantizedActivations, QuantizedMatrix,
    gemm_int8,
};
use std::hint::black_box;

/// `C = A W` with rows that are quantized before, and `copies` of W in turn: one call reads each copy once.
///
/// Rows in 16 bits count as two of 8 bits, which they are where int8 values are multiplied as bytes.
pub(crate) fn product(isa: Isa, shape: Shape, precision: Quantization, copies: usize) -> Work {
    let Shape(m, n, k) = shape;
    let (a, w, mut c) = shape.operands();
    let one = QuantizedMatrix::buffer_len(k, n).expect("length");
    let mut words = Buffer::zeros(copies * one);
    for words in words.chunks_exact_mut(one) {
        let weight = Matrix::new(&w, k, n).expect("weight");
        QuantizedMatrix::quantize(isa, weight, words).expect("quantize");
    }
    // Leaked, as the bias of `gemm/bias` is.
    let len = QuantizedActivations::buffer_len(m, k, precision).expect("length");
    let buffer = Box::leak(Box::new(Buffer::zeros(len)));
    let rows = Matrix::new(&a, m, k).expect("a");
    let rows =
        QuantizedActivations::quantize(Exec::serial(isa), rows, precision, buffer).expect("rows");
    let digits = if precision == Quantization::W8A16 { 2.0 } else { 1.0 };
    let flops = copies as f64 * digits * shape.flops();
    Work::new(flops, (copies * bytes(shape)) as f64, move |parallelism| {
        for words in black_box(&words).chunks_exact(one) {
            let weight = QuantizedMatrix::from_quantized(k, n, words).expect("words");
            let c = MatrixMut::new(&mut c, m, n).expect("c");
            gemm_int8(&rows, &weight, &Epilogue::default(), c, parallelism).expect("product");
        }
        black_box(&c);
    })
}

/// The bytes of W.
pub(crate) fn bytes(shape: Shape) -> usize {
    4 * QuantizedMatrix::buffer_len(shape.2, shape.1).expect("length")
}

/// Quantizes `[rows, depth]`.
pub(crate) fn rounding(isa: Isa, rows: usize, depth: usize, precision: Quantization) -> Work {
    let a = Buffer::random(rows * depth, 1);
    let mut buffer =
        Buffer::zeros(QuantizedActivations::buffer_len(rows, depth, precision).expect("length"));
    Work::new(0.0, rounding_bytes(rows, depth) as f64, move |parallelism| {
        let a = Matrix::new(black_box(&a), rows, depth).expect("a");
        black_box(
            QuantizedActivations::quantize(Exec::new(isa, parallelism), a, precision, &mut buffer)
                .expect("rows"),
        );
    })
}

/// The bytes that are at least read and written.
pub(crate) fn rounding_bytes(rows: usize, depth: usize) -> usize {
    5 * rows * depth
}
