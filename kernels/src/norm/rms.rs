//! Root-mean-square normalization, in the same five variants as layer normalization.

use super::parameters::{Norm, RmsNorm};
use super::tasks::{Operands, run};
use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;

/// `out = x / sqrt(mean(x^2) + eps) * weight` for every row of `x` `[rows, columns]`; `out` has the same shape. There
/// is no mean subtraction and no bias (Zhang and Sennrich 2019, "Root Mean Square Layer Normalization"; called
/// `T5LayerNorm` in T5).
///
/// Error: each result is within `u (columns / 128 + 12) |result| + 2^-149 (1 + |weight|)` of the exact one, with `u =
/// 2^-24`; the second term is for subnormal numbers. NaN in a row makes the whole row NaN. An infinity becomes NaN and
/// makes the other elements 0, as in the formula.
///
/// # Errors
/// Shapes or lengths disagree, `eps` is negative, infinite or NaN, or the elements of a row are not contiguous.
///
/// ```
/// use simdformer_kernels::norm::{RmsNorm, rms_norm};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let x = [1.0, 7.0, 0.0, 0.0]; // The mean square of the first row is 25.
/// let mut y = [9.0; 4];
/// rms_norm(
///     Isa::detect()?,
///     RmsNorm { weight: &[5.0, 10.0], eps: 0.0 },
///     Matrix::new(&x, 2, 2)?,
///     MatrixMut::new(&mut y, 2, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert!(y.iter().zip([1.0, 14.0, 0.0, 0.0]).all(|(y, exact)| (y - exact).abs() < 1e-5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rms_norm(
    isa: Isa,
    norm: RmsNorm<'_>,
    x: Matrix<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    run(isa, Norm::Rms(norm), Operands::Plain(x), out, parallelism)
}

/// `x = RMSNorm(x)`, `[rows, columns]`: [`rms_norm`] in place.
///
/// # Errors
/// As [`rms_norm`].
///
/// ```
/// use simdformer_kernels::norm::{RmsNorm, rms_norm_in_place};
/// use simdformer_kernels::{Isa, MatrixMut, Parallelism};
///
/// let norm = RmsNorm { weight: &[0.5; 4], eps: 0.0 };
/// let mut x = [2.0, -2.0, 2.0, 2.0];
/// rms_norm_in_place(Isa::best(), norm, MatrixMut::new(&mut x, 1, 4)?, Parallelism::Serial)?;
/// assert_eq!(x, [0.5, -0.5, 0.5, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rms_norm_in_place(
    isa: Isa,
    norm: RmsNorm<'_>,
    x: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    run(isa, Norm::Rms(norm), Operands::InPlace, x, parallelism)
}

/// `out = RMSNorm(x + residual)`, with the sum rounded to f32, in one pass over memory: [`rms_norm`] of a sum. All
/// `[rows, columns]`.
///
/// # Errors
/// As [`rms_norm`].
///
/// ```
/// use simdformer_kernels::norm::{RmsNorm, add_rms_norm};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let mut y = [0.0; 4];
/// add_rms_norm(
///     Isa::best(),
///     RmsNorm { weight: &[1.0; 4], eps: 0.0 },
///     Matrix::new(&[1.0, -3.0, 1.0, 2.0], 1, 4)?,
///     Matrix::new(&[1.0, 1.0, 1.0, 0.0], 1, 4)?,
///     MatrixMut::new(&mut y, 1, 4)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(y, [1.0, -1.0, 1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_rms_norm(
    isa: Isa,
    norm: RmsNorm<'_>,
    x: Matrix<'_>,
    residual: Matrix<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    run(isa, Norm::Rms(norm), Operands::Add(x, residual), out, parallelism)
}

/// `residual = RMSNorm(x + residual)`: [`add_rms_norm`] in place.
///
/// # Errors
/// As [`rms_norm`].
///
/// ```
/// use simdformer_kernels::norm::{RmsNorm, add_rms_norm_in_place};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let mut stream = [1.0, 2.0];
/// add_rms_norm_in_place(
///     Isa::best(),
///     RmsNorm { weight: &[1.0, 3.0], eps: 0.0 },
///     Matrix::new(&[3.0, 2.0], 1, 2)?,
///     MatrixMut::new(&mut stream, 1, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(stream, [1.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_rms_norm_in_place(
    isa: Isa,
    norm: RmsNorm<'_>,
    x: Matrix<'_>,
    residual: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    run(isa, Norm::Rms(norm), Operands::AddInPlace(x), residual, parallelism)
}

/// `residual += x; out = RMSNorm(residual)`: the end of one pre-norm block and the start of the next. All
/// `[rows, columns]`; the bits of `out` are those of [`add_rms_norm`].
///
/// # Errors
/// As [`rms_norm`].
///
/// ```
/// use simdformer_kernels::norm::{RmsNorm, add_into_rms_norm};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let (mut stream, mut normed) = ([1.0, 2.0], [0.0; 2]);
/// add_into_rms_norm(
///     Isa::best(),
///     RmsNorm { weight: &[1.0, 3.0], eps: 0.0 },
///     Matrix::new(&[3.0, 2.0], 1, 2)?,
///     MatrixMut::new(&mut stream, 1, 2)?,
///     MatrixMut::new(&mut normed, 1, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!((stream, normed), ([4.0, 4.0], [1.0, 3.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_into_rms_norm(
    isa: Isa,
    norm: RmsNorm<'_>,
    x: Matrix<'_>,
    residual: MatrixMut<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    run(isa, Norm::Rms(norm), Operands::AddInto(x, residual), out, parallelism)
}
