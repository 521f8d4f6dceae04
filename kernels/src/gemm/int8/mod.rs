//! Products with int8 weights. The result has the same bits on every instruction set.
//!
//! Each column of the weights is stored as int8 values and one scale. Each row of the activations is quantized at run
//! time to 8 bits, or to 16 bits ([`Quantization::W8A16`]), with one scale. The integer products are accumulated in
//! 32 bits:
//!
//! ```text
//! column:  scale_w = amax_w / 127     w' = round(w * (127 / amax_w))
//! row:     scale_x = amax_x / L       x' = round(x * (L / amax_x))        L = 127, or more
//! sum:     S = sum_k x'[k] w'[k]      32 bits, exact
//! result:  post_op(activation(scale * ((f32(S) * scale_w) * scale_x) + bias))
//! ```
//!
//! Integer sums do not depend on the order, so tiles, blocks of `k`, threads and instruction sets may differ. All other
//! operations up to the bias are single f32 operations in the written order, never fused. The activation functions also
//! have the same bits everywhere. The result therefore has the same bits on every machine.
//!
//! * `amax` is the largest magnitude. It is computed on the bits of the floats as integers, because instruction sets
//!   treat NaN differently in a float maximum. `round` rounds to the nearest integer, ties to even, after one
//!   multiplication.
//! * A row or column with `amax` below 1e-30 has a scale of zero and zero values. A row or column with an element that
//!   is not finite has a scale of NaN: that whole row or column of the result is NaN, and the others are not affected.
//! * Sums wrap. Only the final sum has to fit 32 bits, and it does up to the depth that [`QuantizedMatrix::buffer_len`]
//!   allows.
//!
//! A scale per column can be applied after the sum. A scale per row makes the bits of a row independent of its batch.
//!
//! * `quantization.rs`: computes a scale from a largest magnitude.
//! * `weights.rs`: the weights, their panels and their quantization, which the pruning table of the
//!   [`pruned_argmax`](crate::pruned_argmax) shares.
//! * `quantized_activations.rs`: the activations; `pack_activations.rs`: their layout and quantization, one row at a time,
//!   or one tile at a time (`quantize_tile.rs`).
//! * `tile_operand.rs`: the operands of a tile; `product.rs`: the tiles, and the loops around them; `widened.rs`: the tiles
//!   of more than four rows on AVX2 without VNNI.
//! * `amx.rs`: many rows on CPUs with AMX, with tile registers. Tests on other CPUs run an emulator of the blocks of
//!   `amx_tile.rs`.
//! * `i8mm.rs`: many rows on AArch64 CPUs with I8MM, two rows and two columns at a time.

#[cfg(any(vectors = "x86_64", test))]
mod amx;
#[cfg(vectors = "aarch64")]
mod i8mm;
mod pack_activations;
mod product;
mod quantization;
mod quantize_tile;
mod quantized_activations;
#[cfg(test)]
mod tests;
mod tile_operand;
mod weights;
mod widened;

pub use quantization::Quantization;
pub use quantized_activations::QuantizedActivations;
pub use weights::QuantizedMatrix;

pub(crate) use quantization::{LEVELS, MIN_AMAX, Rounding, magnitude, round};
pub(crate) use quantize_tile::Row;
pub(crate) use tile_operand::{Integers, Single};
pub(crate) use weights::{Columns, Int8Panels, PANEL, quantize_columns};

use super::epilogue::{Epilogue, check_operands};
use crate::error::Error;
use crate::matrix::MatrixMut;
use crate::parallel::Parallelism;

/// `C = post_op(activation(scale * (X' W') + bias))`, as [`gemm`](crate::gemm()), where `X'` and `W'` are the
/// dequantized activations and weights.
///
/// `rows` is `[rows, depth]`, `weight` is `[depth, columns]`, `c` is `[rows, columns]` with any strides. Zero rows,
/// columns and depth are valid. The call runs on the instruction set that `rows` was quantized for.
///
/// One element is `(f32(S) * column scale) * row scale`, where `S` is the exact sum of integer products, followed by
/// the epilogue with one f32 operation at a time. The bits are the same on every instruction set, and do not depend on
/// the batch, the threads or the other columns.
///
/// Error, for rows and columns of finite elements: quantization changes each element by `|dx| <= 0.51 * row scale` and
/// `|dw| <= 0.51 * column scale`, half a step and the roundings of the scale. A row or a column whose elements are all
/// below 1e-30 in magnitude has a scale of 0 and becomes zeros: `|dx| = |x|` or `|dw| = |w|`. Each product then has
/// `|x' w' - x w| <= |dx| |w| + |x'| |dw|`. The result has four more roundings, each by `2^-24` of its value, or by
/// `2^-150` where the value is subnormal. If `f32(S) * column scale` exceeds the largest f32, the result is infinite,
/// also where `row scale` would make it finite.
///
/// Stack: less than 32 KiB of each participating thread.
///
/// # Errors
/// The shapes do not match. Nothing is written then.
///
/// ```
/// use simdformer_kernels::{
///     Epilogue, Exec, Isa, Matrix, MatrixMut, Parallelism, Quantization, QuantizedActivations,
///     QuantizedMatrix, gemm_int8,
/// };
///
/// let isa = Isa::detect()?;
/// let weight = [127.0, 2.0, -127.0, 1.0, 127.0, 2.0]; // [2, 3]
/// let mut buffer = vec![0.0; QuantizedMatrix::buffer_len(2, 3)?];
/// let weight = QuantizedMatrix::quantize(isa, Matrix::new(&weight, 2, 3)?, &mut buffer)?;
///
/// let (x, precision) = ([127.0, 10.0], Quantization::W8A8);
/// let mut buffer = vec![0.0; QuantizedActivations::buffer_len(1, 2, precision)?];
/// let x = Matrix::new(&x, 1, 2)?;
/// let rows = QuantizedActivations::quantize(Exec::serial(isa), x, precision, &mut buffer)?;
///
/// let mut y = [0.0; 3];
/// let c = MatrixMut::new(&mut y, 1, 3)?;
/// gemm_int8(&rows, &weight, &Epilogue::default(), c, Parallelism::Serial)?;
/// assert_eq!((y[0], y[2]), (127.0 * 127.0 + 10.0, -127.0 * 127.0 + 20.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gemm_int8(
    rows: &QuantizedActivations<'_>,
    weight: &QuantizedMatrix<'_>,
    epilogue: &Epilogue<'_>,
    mut c: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    // Without the feature no operand can exist. The check removes the code below from such builds.
    if !cfg!(feature = "int8") {
        return Err(Error::NO_INT8);
    }
    let shape = (weight.depth(), weight.columns());
    check_operands(["rows", "weight"], (rows.rows(), rows.depth()), shape, epilogue, &c)?;
    if c.rows() == 0 || c.columns() == 0 {
        return Ok(());
    }
    product::multiply_quantized(rows, weight, epilogue, &mut c, parallelism.workers());
    Ok(())
}
