//! Matrix products with packed weights: `C = post_op(activation(scale * A W + bias))`.
//!
//! **Each output element has one accumulator, and `k` runs through it in order.** This rule holds for any number of
//! rows, any split over threads and any blocking. A row therefore has the same bits alone, in a batch of a thousand,
//! and on any number of threads. The kernels may still choose their tiles freely.
//!
//! * `W` is packed once into panels of [`Isa::panel`] columns, `[columns / panel][depth][panel]`, padded with zero
//!   columns. A tile reads a panel from front to back. The same buffer therefore serves a thousand rows (the panel
//!   stays in the L2 cache) and one row (the panel is read from memory).
//! * `A` is read in place. Six rows at a time are fast without packing.
//! * Partial sums are stored between blocks of `k` as f32, so no bit is lost.
//! * The epilogue runs in registers, before the only store.
//!
//! `microkernel.rs` has the tile, `blocking.rs` the loops and the split over threads, and `packing.rs` the layout.
//! Another weight dtype needs another packing file and another implementation of `TileOperand`. The loop over `k` and
//! its prefetch policy do not change. For the 16-bit dtypes, `pack_f16.rs` has the layout and the packing, and
//! `f16_tile.rs` the conversion to f32, in the tile or before it.

mod blocking;
mod epilogue;
#[cfg(feature = "train")]
mod epilogue_grad;
mod f16_tile;
mod int8;
mod microkernel;
#[cfg(feature = "train")]
mod pack_a;
mod pack_f16;
mod pack_options;
mod packing;
mod prefetch_weights;
mod small_m;
mod store_tile;
mod unpack;
mod unpacked;
#[cfg(feature = "train")]
mod weight_grad;
mod weight_source;

pub use epilogue::{Epilogue, PostOp};
pub use int8::{Quantization, QuantizedActivations, QuantizedMatrix, gemm_int8};
pub use pack_options::PackOptions;
pub use packing::PackedMatrix;
pub use unpacked::{gemm_unpacked, gemm_unpacked_scratch};
#[cfg(feature = "train")]
pub use weight_grad::{weight_gradient, weight_gradient_scratch};
pub use weight_source::PackSource;

pub(crate) use f16_tile::F16Operand;
pub(crate) use int8::{
    Columns, Int8Panels, Integers, LEVELS, MIN_AMAX, PANEL, Rounding, Row, Single, magnitude,
    quantize_columns, round,
};
pub(crate) use microkernel::{F32Operand, Panels, Rows, Tile, TileOperand, multiply};
pub(crate) use store_tile::{load_line, store_line};
pub(crate) use unpack::Column;

use crate::error::Error;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;
use epilogue::check_operands;

/// `C[m, n] = post_op(activation(scale * sum_k A[m, k] W[k, n] + bias[n]))`. The [`PostOp`] adds the previous content of
/// `C` or a matrix, multiplies by the previous content or by a derivative, or does nothing.
///
/// `a` is `[rows, depth]` and `c` is `[rows, columns]`, both with any strides (unit column strides are fastest);
/// `weight` is `[depth, columns]`. Zero rows, zero columns and zero depth are valid: with zero depth the sum is zero.
/// The call runs on the instruction set that `weight` was packed for.
///
/// Error: `|sum - exact| <= 2 depth eps * sum_k |a| |w|`, with one f32 accumulator and `k` ascending. NaN and
/// infinities propagate as in that order.
///
/// The bits of a row of `c` depend only on that row of `a`, on the values in `weight` and on `epilogue`. They do not
/// depend on the dtype of `weight`: 16-bit weights ([`Dtype`](crate::Dtype)) are widened to f32, which is exact, so the
/// bits are those of an f32 `weight` with the same values.
///
/// Stack: each participating thread uses less than 64 KiB of its own stack. With more than 36 rows, 48 KiB of it are
/// partial sums. With fewer rows the call uses less than 16 KiB, or less than 32 KiB with 16-bit weights.
///
/// # Errors
/// The shapes do not match. Nothing is written then.
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
) -> Result<(), Error> {
    let shape = (weight.depth(), weight.columns());
    check_operands(["a", "weight"], (a.rows(), a.columns()), shape, epilogue, &c)?;
    if c.rows() == 0 || c.columns() == 0 {
        return Ok(());
    }
    blocking::multiply_packed(a, weight, epilogue, &mut c, parallelism.workers());
    Ok(())
}
