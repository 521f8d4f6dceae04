//! The layout of a matrix for the backward pass.

use simdformer_kernels::{
    Epilogue, Error as KernelError, Isa, Matrix, MatrixMut, PackOptions, PackedMatrix, Parallelism,
    Residual, gemm,
};

/// The matrix of a linear map for the gradient of its input, `d_x = d_y W`; the forward pass is `y = x W^T`. It
/// is f32, in panels of the other orientation, and is packed from the parameters for each pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backward<'m>(PackedMatrix<'m>);

impl<'m> Backward<'m> {
    /// Size in floats.
    pub(crate) fn floats(isa: Isa, outputs: usize, inputs: usize) -> Result<usize, KernelError> {
        PackedMatrix::len(isa, outputs, inputs)
    }

    /// Packs `weight`, `[outputs, inputs]` as in a checkpoint.
    pub(crate) fn pack(
        isa: Isa,
        weight: Matrix<'_>,
        buffer: &'m mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<Self, KernelError> {
        PackOptions { parallelism, ..PackOptions::default() }.pack(isa, weight, buffer).map(Self)
    }

    /// `[outputs, inputs]`.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.0.depth(), self.0.columns()]
    }

    /// `d_x = residual + d_y W`: `d_y` is `[rows, outputs]`, `d_x` `[rows, inputs]`.
    pub(crate) fn multiply(
        &self,
        d_y: Matrix<'_>,
        residual: Residual<'_>,
        d_x: MatrixMut<'_>,
        parallelism: Parallelism<'_>,
    ) -> Result<(), KernelError> {
        gemm(d_y, &self.0, &Epilogue { residual, ..Epilogue::default() }, d_x, parallelism)
    }
}
