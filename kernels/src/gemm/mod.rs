//! `C = residual + activation(scale * A W + bias)`, or `C * activation(..)`, with `W` packed once.
//!
//! The shape of everything here follows from one decision: **each output element has one
//! accumulator, and `k` runs through it in order**, whatever the number of rows, the split over
//! threads or the blocking. A row therefore gets the same bits alone, in a batch of a thousand, and
//! on any number of threads, and the kernels are still free to choose their tiles.
//!
//! * `W` is stored in panels of [`Isa::panel`] columns, `[columns / panel][depth][panel]`, padded
//!   with zero columns. A panel streams front to back, so the same buffer serves a thousand rows
//!   (where it stays in the second-level cache) and one row (where it comes from memory).
//! * `A` is read in place: six rows at a time need no packing to be fast.
//! * Accumulators that must be put aside between blocks of `k` are stored as they are: f32 in, f32
//!   out, no bit lost.
//! * The epilogue happens in registers, before the only store.
//!
//! A call takes at most 64 KiB of the caller's stack when compiled with optimization: 48 KiB of it are
//! the accumulators of 192 rows of a panel that wait between blocks of `k`. Nothing is allocated.
//!
//! See `microkernel.rs` for the tile, `blocking.rs` for the loops and the split over threads,
//! `packing.rs` for the layout. Another form of weights is another file of packing and an
//! implementation of the tile's `TileOperand`: the loop over `k` and what it asks of memory stay as they are.
//! Numbers of sixteen bits ([`Dtype`]) are `dtype.rs`, `pack_f16.rs` (packing) and `f16_tile.rs` (back to
//! floats, in the tile or before it).

mod blocking;
mod check;
mod dtype;
mod epilogue;
#[cfg(feature = "train")]
mod epilogue_grad;
mod error;
mod f16_tile;
mod int8;
mod microkernel;
#[cfg(feature = "train")]
mod pack_a;
mod pack_f16;
mod pack_fast;
mod packing;
mod prefetch;
mod small_m;
mod unpacked;
#[cfg(feature = "train")]
mod weight_grad;

pub use dtype::Dtype;
pub use epilogue::{Epilogue, Residual};
pub use error::GemmError;
pub use int8::{ActivationBits, QuantizedActivations, QuantizedMatrix, gemm_int8};
pub use packing::PackedMatrix;
pub use unpacked::{gemm_unpacked, gemm_unpacked_scratch};
#[cfg(feature = "train")]
pub use weight_grad::{weight_gradient, weight_gradient_scratch};

#[cfg(feature = "train")]
pub(crate) use microkernel::Operands;
pub(crate) use microkernel::{
    F32Operand, MAX_MR, Panels, Prefetch, PrefetchLines, Rows, Tile, TileOperand, multiply,
};
pub(crate) use packing::Column;

use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;

/// `C[m, n] = residual[m, n] + activation(scale * sum_k A[m, k] W[k, n] + bias[n])`; under
/// [`Residual::Gate`] what `C` holds is multiplied with instead of added to.
///
/// `a` is `[rows, depth]` and `c` is `[rows, columns]`, both with any strides (unit column strides
/// are the fast ones); `weight` is `[depth, columns]`. Zero rows, zero columns and zero depth are
/// all fine: with zero depth the sum is zero. Runs on the instruction set that `weight` was packed
/// for.
///
/// Error: `|sum - exact| <= 2 depth eps * sum_k |a| |w|`, one f32 accumulator, `k` ascending; NaN and
/// infinities propagate as in that order.
///
/// The bits of a row of `c` depend on that row of `a`, on `weight` and on `epilogue` only: on the numbers in
/// `weight`, however they are stored. Weights of sixteen bits ([`Dtype`]) are widened to f32 on the way,
/// which is exact, so that the bits are those of a `weight` that holds the same numbers as f32.
///
/// Stack: each thread that takes part uses less than 64 KiB of its own (48 KiB of it for sums that wait,
/// with more than 36 rows; with fewer, less than 16 KiB, or 32 with weights of sixteen bits).
///
/// # Errors
/// Shapes that do not fit together; then nothing is written.
///
/// ```
/// use simdformer_kernels::{Epilogue, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, gemm};
///
/// let isa = Isa::detect()?;
/// let weight = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; // [2, 3]
/// let mut buffer = [0.0; 2 * 64];
/// let packed = PackedMatrix::pack(isa, Matrix::new(&weight, 2, 3)?, &mut buffer)?;
///
/// let x = [1.0, 10.0];
/// let mut y = [0.0; 3];
/// let bias = [0.5, 0.5, 0.5];
/// let epilogue = Epilogue { bias: Some(&bias), ..Epilogue::default() };
/// gemm(
///     Matrix::new(&x, 1, 2)?,
///     &packed,
///     &epilogue,
///     MatrixMut::new(&mut y, 1, 3)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(y, [41.5, 52.5, 63.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gemm(
    a: Matrix<'_>,
    weight: &PackedMatrix<'_>,
    epilogue: &Epilogue<'_>,
    mut c: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), GemmError> {
    check::operands((a.rows(), a.columns()), (weight.depth(), weight.columns()), epilogue, &c)?;
    if c.rows() == 0 || c.columns() == 0 {
        return Ok(());
    }
    blocking::run(a, weight, epilogue, &mut c, parallelism.workers());
    Ok(())
}
