//! Normalization of rows, alone or fused with the preceding residual addition:
//!
//! * Layer normalization (Ba, Kiros and Hinton 2016), with or without a bias: [`layer_norm`] and its variants, `y = (x
//!   - mean) / sqrt(variance + eps) * weight + bias`.
//! * Root-mean-square normalization (Zhang and Sennrich 2019), `y = x / sqrt(mean(x^2) + eps) * weight`: [`rms_norm`]
//!   and its variants.
//!
//! Layer normalization uses the corrected two-pass variance (Chan, Golub and LeVeque 1983, "Algorithms for computing
//! the sample variance"): with `d = x - mean'` for an approximate mean, `variance = (sum d^2 - (sum d)^2 / n) / n`,
//! and `sum d / n` corrects the mean as well. The approximate mean is computed from `x - x_0`, so a constant row has
//! `d = 0` everywhere and gives exactly the bias. All passes over a row run while it is in the L1 cache, so each byte
//! of memory is read and written once.
//!
//! If the variance or the mean square of a row is outside the safe range of f32 (entries of 1e30, or tiny ones with
//! `eps` 0), the row is computed again in f64. Only sums `x + residual` that overflow f32 themselves cannot be
//! recovered.

mod parameters;
mod passes;
mod rms;
mod tasks;
#[cfg(feature = "train")]
pub(crate) mod train;

pub use parameters::{LayerNorm, RmsNorm};
pub use rms::{
    add_into_rms_norm, add_rms_norm, add_rms_norm_in_place, rms_norm, rms_norm_in_place,
};

use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;
use parameters::Norm;
use tasks::{Operands, run};

/// `out = LN(x)` for every row of `x` `[rows, columns]`; `out` has the same shape.
///
/// Error: let `u = 2^-24`, `z` the exact normalized value before weight and bias, and `k = columns / 64 + 8` the
/// longest chain of additions. Each result is within `u (k (|z| + 2) |weight| + 2 |result|)` of the exact one if the
/// mean is at most 1e5 standard deviations from 0. Rows with infinities or NaN give NaN.
///
/// # Errors
/// Shapes or lengths disagree, `eps` is negative, infinite or NaN, or the elements of a row are not contiguous.
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, layer_norm};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let x = [1.0, 3.0, 7.0, 7.0];
/// let mut y = [0.0; 4];
/// layer_norm(
///     Isa::detect()?,
///     LayerNorm { weight: &[2.0, 2.0], bias: Some(&[0.5, 0.5]), eps: 0.0 },
///     Matrix::new(&x, 2, 2)?,
///     MatrixMut::new(&mut y, 2, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(y, [-1.5, 2.5, 0.5, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer_norm(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: Matrix<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    run(isa, Norm::Layer(norm), Operands::Plain(x), out, parallelism)
}

/// `x = LN(x)`, `[rows, columns]`: [`layer_norm`] in place.
///
/// # Errors
/// As [`layer_norm`].
pub fn layer_norm_in_place(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    run(isa, Norm::Layer(norm), Operands::InPlace, x, parallelism)
}

/// `out = LN(x + residual)`, with the sum rounded to f32, in one pass over memory: [`layer_norm`] of a sum. All
/// `[rows, columns]`.
///
/// # Errors
/// As [`layer_norm`].
pub fn add_layer_norm(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: Matrix<'_>,
    residual: Matrix<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    run(isa, Norm::Layer(norm), Operands::Add(x, residual), out, parallelism)
}

/// `residual = LN(x + residual)`: the end of a post-norm block, [`add_layer_norm`] in place.
///
/// # Errors
/// As [`layer_norm`].
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, add_layer_norm_in_place};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let norm = LayerNorm { weight: &[1.0, 1.0], bias: Some(&[0.0, 0.0]), eps: 0.0 };
/// let mut stream = [1.0, 2.0];
/// add_layer_norm_in_place(
///     Isa::best(),
///     norm,
///     Matrix::new(&[4.0, 7.0], 1, 2)?,
///     MatrixMut::new(&mut stream, 1, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(stream, [-1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_layer_norm_in_place(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: Matrix<'_>,
    residual: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    run(isa, Norm::Layer(norm), Operands::AddInPlace(x), residual, parallelism)
}

/// `residual += x; out = LN(residual)`: the end of one pre-norm block and the start of the next. All
/// `[rows, columns]`; the bits of `out` are those of [`add_layer_norm`].
///
/// # Errors
/// As [`layer_norm`].
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, add_into_layer_norm};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let norm = LayerNorm { weight: &[1.0, 1.0], bias: Some(&[0.0, 0.0]), eps: 0.0 };
/// let (mut stream, mut normed) = ([1.0, 2.0], [0.0; 2]);
/// add_into_layer_norm(
///     Isa::best(),
///     norm,
///     Matrix::new(&[4.0, 7.0], 1, 2)?,
///     MatrixMut::new(&mut stream, 1, 2)?,
///     MatrixMut::new(&mut normed, 1, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!((stream, normed), ([5.0, 9.0], [-1.0, 1.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_into_layer_norm(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: Matrix<'_>,
    residual: MatrixMut<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    run(isa, Norm::Layer(norm), Operands::AddInto(x, residual), out, parallelism)
}
