//! The operands of products, and the calls that several files make.

use super::{poisoned, view_matrix, view_matrix_mut};
use simdformer_kernels::{
    Activation, Dtype, Epilogue, Error, Exec, Isa, Matrix, MatrixMut, PackOptions, PackedMatrix,
    Parallelism, PostOp, Quantization, QuantizedActivations, QuantizedMatrix, gemm, gemm_int8,
    gemm_unpacked, gemm_unpacked_scratch, reference,
};

pub const ACTIVATIONS: &[Activation] = &Activation::ALL;
pub const HALVES: [Dtype; 2] = [Dtype::Bf16, Dtype::F16];
pub const PRECISIONS: [Quantization; 2] = [Quantization::W8A8, Quantization::W8A16];

/// A weight matrix packed in a dtype, in a buffer of exactly its length. Every float held poison before.
pub struct Packed {
    pub isa: Isa,
    pub dtype: Dtype,
    pub depth: usize,
    pub columns: usize,
    pub data: Vec<f32>,
}

impl Packed {
    pub fn new(isa: Isa, weight: Matrix<'_>) -> Self {
        Self::with_dtype(isa, Dtype::F32, weight)
    }

    pub fn with_dtype(isa: Isa, dtype: Dtype, weight: Matrix<'_>) -> Self {
        let (options, depth, columns) = (PackOptions::new(dtype), weight.rows(), weight.columns());
        let mut data = poisoned(options.buffer_len(isa, depth, columns).expect("a small size"));
        options.pack(isa, weight, &mut data).expect("the packed length, and numbers in range");
        Self { isa, dtype, depth, columns, data }
    }

    pub fn get(&self) -> PackedMatrix<'_> {
        let Self { isa, dtype, depth, columns, data } = self;
        PackOptions::new(*dtype).from_packed(*isa, *depth, *columns, data).expect("a packed matrix")
    }

    /// `a` times the matrix, with an epilogue.
    #[track_caller]
    pub fn multiply(
        &self,
        a: Matrix<'_>,
        epilogue: &Epilogue<'_>,
        c: MatrixMut<'_>,
        parallelism: Parallelism<'_>,
    ) {
        gemm(a, &self.get(), epilogue, c, parallelism).expect("shapes that fit");
    }

    /// [`Packed::multiply`] into a new dense output that held poison.
    pub fn times(
        &self,
        a: Matrix<'_>,
        epilogue: &Epilogue<'_>,
        parallelism: Parallelism<'_>,
    ) -> Vec<f32> {
        let mut c = poisoned(a.rows() * self.columns);
        let to = view_matrix_mut(&mut c, a.rows(), self.columns);
        self.multiply(a, epilogue, to, parallelism);
        c
    }
}

/// `gemm` of dense `a`, `[rows, depth]`, without an epilogue, into a new dense output that held poison.
pub fn product(
    a: &[f32],
    rows: usize,
    weight: &PackedMatrix<'_>,
    parallelism: Parallelism<'_>,
) -> Vec<f32> {
    let (mut c, columns) = (poisoned(rows * weight.columns()), weight.columns());
    let (a, to) = (view_matrix(a, rows, weight.depth()), view_matrix_mut(&mut c, rows, columns));
    gemm(a, weight, &Epilogue::default(), to, parallelism).expect("shapes that fit");
    c
}

/// `a w`, packed and multiplied into a new dense output that held poison.
pub fn multiply(isa: Isa, a: Matrix<'_>, w: Matrix<'_>, parallelism: Parallelism<'_>) -> Vec<f32> {
    Packed::new(isa, w).times(a, &Epilogue::default(), parallelism)
}

/// `gemm_unpacked` with a scratch of exactly the documented length, which holds poison.
#[track_caller]
pub fn multiply_unpacked(
    isa: Isa,
    (a, b): (Matrix<'_>, Matrix<'_>),
    epilogue: &Epilogue<'_>,
    c: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) {
    let mut scratch = poisoned(gemm_unpacked_scratch(isa, b.rows(), b.columns()).expect("small"));
    gemm_unpacked(Exec::new(isa, parallelism), a, b, epilogue, c, &mut scratch).expect("a fit");
}

/// The product by the oracle, and the magnitude that errors are relative to.
#[track_caller]
pub fn exact_product(
    (a, w): (Matrix<'_>, Matrix<'_>),
    epilogue: &Epilogue<'_>,
    before: Option<Matrix<'_>>,
) -> (Vec<f64>, Vec<f64>) {
    let mut exact = vec![0.0; a.rows() * w.columns()];
    let mut magnitude = exact.clone();
    reference::gemm::gemm(a, w, epilogue, before, &mut exact, &mut magnitude).expect("a fit");
    (exact, magnitude)
}

/// Every operation after a product that reads C or another matrix, by number: 0 is none, 1 and 3 read C.
pub fn post_op_of(number: usize, matrix: Matrix<'_>) -> PostOp<'_> {
    [PostOp::None, PostOp::AddOutput, PostOp::Add(matrix), PostOp::MultiplyOutput][number]
}

/// Quantized weights in a buffer of exactly their length. Every word held poison before.
pub struct Quantized {
    pub depth: usize,
    pub columns: usize,
    pub words: Vec<f32>,
}

impl Quantized {
    pub fn new(isa: Isa, weight: Matrix<'_>) -> Self {
        let (depth, columns) = (weight.rows(), weight.columns());
        let mut words =
            poisoned(QuantizedMatrix::buffer_len(depth, columns).expect("a small size"));
        QuantizedMatrix::quantize(isa, weight, &mut words).expect("the length");
        Self { depth, columns, words }
    }

    pub fn get(&self) -> QuantizedMatrix<'_> {
        QuantizedMatrix::from_quantized(self.depth, self.columns, &self.words).expect("the length")
    }
}

/// Calls `then` with `x`, quantized in a buffer of exactly its length that held poison.
pub fn with_quantized<R>(
    (isa, precision): (Isa, Quantization),
    x: Matrix<'_>,
    parallelism: Parallelism<'_>,
    then: impl FnOnce(&QuantizedActivations<'_>) -> R,
) -> R {
    let length =
        QuantizedActivations::buffer_len(x.rows(), x.columns(), precision).expect("a small size");
    let mut words = poisoned(length);
    let rows =
        QuantizedActivations::quantize(Exec::new(isa, parallelism), x, precision, &mut words);
    then(&rows.expect("that length"))
}

/// The int8 product of rows that are quantized in a buffer of exactly their length.
pub fn multiply_int8(
    set: (Isa, Quantization),
    x: Matrix<'_>,
    weight: &QuantizedMatrix<'_>,
    epilogue: &Epilogue<'_>,
    c: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    with_quantized(set, x, parallelism, |rows| gemm_int8(rows, weight, epilogue, c, parallelism))
}

/// The strides of a matrix with gaps, row-major or column-major.
pub fn strides(
    rows: usize,
    columns: usize,
    (gap, by_column): (usize, bool),
    spread: usize,
) -> (usize, usize) {
    if by_column {
        (spread, spread * rows.max(1) + gap)
    } else {
        (spread * columns.max(1) + gap, spread)
    }
}
