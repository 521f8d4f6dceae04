//! Products with weights in eight bits, whose bits are the same on every instruction set.
//!
//! A column of the weights is kept as signed bytes and one scale, a row of the other operand is rounded to
//! bytes (or to 16 bits, [`ActivationBits::Sixteen`]) and one scale as it comes, and the products of bytes are
//! added up in 32 bits:
//!
//! ```text
//! column:  scale_w = amax_w / 127     w' = round(w * (127 / amax_w))
//! row:     scale_x = amax_x / L       x' = round(x * (L / amax_x))        L = 127, or more
//! sum:     S = sum_k x'[k] w'[k]      32 bits, exact
//! result:  residual + activation(scale * ((f32(S) * scale_w) * scale_x) + bias)
//! ```
//!
//! Sums of integers have no order, so tiles, blocks of `k`, threads and instruction sets are free, and
//! all else up to the bias is one rounding of f32 an operation, in the order written, nowhere fused; an
//! activation has the same bits everywhere as well. So the result has them on every machine.
//!
//! * `amax` is the largest magnitude, found among the bits of the floats as integers, where no instruction
//!   set has rules of its own for NaN. `round` is to the nearest integer, ties to even, after one
//!   multiplication.
//! * A row or column whose `amax` is below 1e-30 has a scale of zero, and bytes of zero. One with
//!   something in it that is not finite has a scale of NaN: the whole row, or column, of the result is NaN,
//!   and the others are what they are without it.
//! * Sums wrap: only the last one has to fit, which it does up to the depth that [`QuantizedMatrix::len`] allows.
//!
//! Columns have a scale each, so that it leaves the sum; rows too, so that no row's bits depend on its batch.
//!
//! * `activation_bits.rs`: from a largest magnitude to a scale.
//! * `weights.rs`: the weights; `quantize_weights.rs`: how they lie in memory, and how they get there.
//! * `activations.rs`: the other operand; `pack_activations.rs`: how it lies in memory, and how it gets there, from `row_reader.rs`,
//!   one row after the other, or a tile at a time (`quantize_tile.rs`).
//! * `operand.rs`: what a tile multiplies; `product.rs`: the tiles, and the loops around them.
//! * `amx.rs`: many rows on CPUs with AMX, by tile registers. No such CPU has run it: what `lanes::tiles`
//!   says a block does was run by an emulation, and compared with the oracle, and its assembly was read.
//! * `i8mm.rs`: many rows on CPUs of AArch64 with I8MM, two rows and two columns at a time; `prefetch.rs`: what both ask
//!   memory for meanwhile.

mod activation_bits;
mod activations;
#[cfg(any(target_arch = "x86_64", test))]
mod amx;
#[cfg(target_arch = "aarch64")]
mod i8mm;
mod operand;
mod pack_activations;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", test))]
mod prefetch;
mod product;
mod quantize_tile;
mod quantize_weights;
mod row_reader;
#[cfg(test)]
mod tests;
mod weights;

pub use activation_bits::ActivationBits;
pub use activations::QuantizedActivations;
pub use weights::QuantizedMatrix;

use super::check;
use super::epilogue::Epilogue;
use super::error::GemmError;
use crate::matrix::MatrixMut;
use crate::parallel::Parallelism;

/// `C = residual + activation(scale * (X' W') + bias)`, as [`gemm`](crate::gemm()), with `X'` and `W'` what
/// rounded rows and weights stand for.
///
/// `rows` is `[rows, depth]`, `weight` is `[depth, columns]`, `c` is `[rows, columns]` with any strides.
/// Zero rows, columns and depth are fine. Runs on the instruction set that `rows` were rounded for.
///
/// One element is `(f32(S) * column scale) * row scale`, `S` the exact sum of products of integers, then
/// what the epilogue says, an f32 operation each: the same bits on every instruction set, whatever the
/// batch, the threads and the other columns.
///
/// Error: with `|dx| <= row scale / 2` and `|dw| <= column scale / 2` for what rounding moves each element,
/// `|x' w' - x w| <= |dx| |w| + |x'| |dw|` for each product, and four roundings of the result.
///
/// Stack: less than 16 KiB of each thread that takes part.
///
/// # Errors
/// Shapes that do not fit together; then nothing is written.
///
/// ```
/// use simdformer_kernels::{
///     QuantizedMatrix, QuantizedActivations, Epilogue, Isa, Matrix, MatrixMut, Parallelism, ActivationBits, gemm_int8,
/// };
///
/// let isa = Isa::detect()?;
/// let weight = [127.0, 2.0, -127.0, 1.0, 127.0, 2.0]; // [2, 3]
/// let mut buffer = vec![0.0; QuantizedMatrix::len(2, 3)?];
/// let weight = QuantizedMatrix::quantize(isa, Matrix::new(&weight, 2, 3)?, &mut buffer)?;
///
/// let (x, precision) = ([127.0, 10.0], ActivationBits::Eight);
/// let mut buffer = vec![0.0; QuantizedActivations::len(1, 2, precision)?];
/// let x = Matrix::new(&x, 1, 2)?;
/// let rows = QuantizedActivations::quantize(isa, x, precision, &mut buffer, Parallelism::Serial)?;
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
) -> Result<(), GemmError> {
    // No operand exists without the feature, and no code below is compiled.
    if !cfg!(feature = "int8") {
        return Err(GemmError::MissingFeature { feature: "int8" });
    }
    let shape = (weight.depth(), weight.columns());
    check::operands((rows.rows(), rows.depth()), shape, epilogue, &c)?;
    if c.rows() == 0 || c.columns() == 0 {
        return Ok(());
    }
    product::run(rows, weight, epilogue, &mut c, parallelism.workers());
    Ok(())
}
