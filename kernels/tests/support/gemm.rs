//! The operands of a GEMM, and calls without an epilogue.

use super::POISON;
use simdformer_kernels::{
    Activation, Dtype, Epilogue, Isa, Matrix, MatrixMut, PackOptions, PackedMatrix, Parallelism,
    gemm,
};

pub const ACTIVATIONS: &[Activation] = &Activation::ALL;

/// A packed weight matrix in a buffer of exactly its length. Every float held poison before.
pub struct Packed {
    pub isa: Isa,
    pub depth: usize,
    pub columns: usize,
    pub data: Vec<f32>,
}

impl Packed {
    pub fn new(isa: Isa, weight: Matrix<'_>) -> Self {
        let (depth, columns) = (weight.rows(), weight.columns());
        let mut data =
            vec![POISON; PackedMatrix::buffer_len(isa, depth, columns).expect("a small size")];
        PackedMatrix::pack(isa, weight, &mut data).expect("a buffer of the packed length");
        Self { isa, depth, columns, data }
    }

    pub fn get(&self) -> PackedMatrix<'_> {
        PackedMatrix::from_packed(self.isa, self.depth, self.columns, &self.data)
            .expect("a packed matrix")
    }
}

/// A weight matrix packed in a dtype, in a buffer of exactly its length. Every float held poison before.
pub struct Stored {
    pub isa: Isa,
    pub dtype: Dtype,
    pub depth: usize,
    pub columns: usize,
    pub data: Vec<f32>,
}

impl Stored {
    pub fn new(isa: Isa, dtype: Dtype, weight: Matrix<'_>) -> Self {
        let (depth, columns) = (weight.rows(), weight.columns());
        let length = PackOptions::new(dtype).buffer_len(isa, depth, columns).expect("a small size");
        let mut data = vec![POISON; length];
        let shape = (depth, columns);
        PackOptions::new(dtype)
            .pack_columns(isa, weight, shape, 0, &mut data)
            .expect("a buffer of the packed length, and numbers in range");
        Self { isa, dtype, depth, columns, data }
    }

    pub fn get(&self) -> PackedMatrix<'_> {
        let Self { isa, dtype, depth, columns, data } = self;
        PackOptions::new(*dtype).from_packed(*isa, *depth, *columns, data).expect("a packed matrix")
    }
}

/// `gemm` of dense `a`, `[rows, depth]`, without an epilogue, into a new dense output that held poison.
pub fn product(
    a: &[f32],
    rows: usize,
    weight: &PackedMatrix<'_>,
    parallelism: Parallelism<'_>,
) -> Vec<f32> {
    let mut c = vec![POISON; rows * weight.columns()];
    gemm(
        Matrix::new(a, rows, weight.depth()).expect("A is that large"),
        weight,
        &Epilogue::default(),
        MatrixMut::new(&mut c, rows, weight.columns()).expect("C is that large"),
        parallelism,
    )
    .expect("shapes that fit");
    c
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

/// Packs `w` and multiplies `a` by it into `c` without a residual.
pub fn multiply(
    isa: Isa,
    a: Matrix<'_>,
    w: Matrix<'_>,
    c: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) {
    let mut packed =
        vec![POISON; PackedMatrix::buffer_len(isa, w.rows(), w.columns()).expect("small")];
    let packed = PackedMatrix::pack(isa, w, &mut packed).expect("the length");
    gemm(a, &packed, &Epilogue::default(), c, parallelism).expect("shapes that fit");
}
