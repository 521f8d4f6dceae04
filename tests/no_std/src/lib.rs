//! A function for programs without std and without an allocator: the caller owns every buffer. `main.rs` is such a
//! program.
#![no_std]

use simdformer_kernels::{
    Activation, Epilogue, Error, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, gemm,
};

/// The floats of the packed weight that [`feed_forward`] needs: the size of a buffer on the stack or in a `static`.
pub fn packed_len(inputs: usize, outputs: usize) -> Result<usize, Error> {
    PackedMatrix::buffer_len(Isa::best(), inputs, outputs)
}

/// `out = relu(x W^T + bias)` with `x`, `[rows, inputs]`, `weight`, `[outputs, inputs]` as PyTorch stores it, and
/// `out`, `[rows, outputs]`. A program that calls this more than once packs the weight once.
pub fn feed_forward(
    x: Matrix<'_>,
    (weight, bias): (Matrix<'_>, &[f32]),
    packed: &mut [f32],
    out: MatrixMut<'_>,
) -> Result<(), Error> {
    let weight = PackedMatrix::pack(Isa::best(), weight.transposed(), packed)?;
    let epilogue =
        Epilogue { bias: Some(bias), activation: Activation::Relu, ..Epilogue::default() };
    gemm(x, &weight, &epilogue, out, Parallelism::Serial)
}
