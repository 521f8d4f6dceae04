//! Root-mean-square normalization that saves the values for its gradient, and the gradient.

use super::{NormGradients, SavedNorm, forward_save, input_grad, param_grad};
use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::norm::parameters::{Norm, RmsNorm};
use crate::parallel::Parallelism;
use crate::train::{ReductionChunks, WriteMode};

/// `out = x r weight` with exactly the bits of [`rms_norm`](crate::norm::rms_norm). It also saves the standard scores
/// `x r` in `standard`, `[rows, columns]` like `x` and `out`, and `r = 1 / sqrt(mean(x^2) + eps)` in `scale`,
/// `[rows]`.
///
/// If the mean square and `eps` are 0, `r` and the scores are 0. An `r` that overflows f32 becomes `f32::MAX`. Rows
/// without columns have an `r` of 0.
///
/// Error: `r` and the standard scores have a relative error of at most `u (columns / 128 + 12)`, plus `2^-149` if they
/// are subnormal; `u = 2^-24`.
///
/// # Errors
/// As [`rms_norm`](crate::norm::rms_norm), or the number of scales differs from the number of rows.
///
/// ```
/// use simdformer_kernels::norm::RmsNorm;
/// use simdformer_kernels::train::rms_norm_forward_save;
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let (mut standard, mut scale, mut out) = ([0.0; 2], [0.0], [0.0; 2]);
/// rms_norm_forward_save(
///     Isa::best(),
///     RmsNorm { weight: &[5.0, 3.0], eps: 0.0 },
///     Matrix::new(&[2.0, -2.0], 1, 2)?,
///     MatrixMut::new(&mut standard, 1, 2)?,
///     &mut scale,
///     MatrixMut::new(&mut out, 1, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!((standard, scale, out), ([1.0, -1.0], [0.5], [5.0, -3.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rms_norm_forward_save(
    isa: Isa,
    norm: RmsNorm<'_>,
    x: Matrix<'_>,
    standard: MatrixMut<'_>,
    scale: &mut [f32],
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    forward_save::run(isa, Norm::Rms(norm), Some(x), standard, scale, out, parallelism)
}

/// [`rms_norm_forward_save`] in place: `x` becomes the output.
///
/// # Errors
/// As [`rms_norm_forward_save`].
///
/// ```
/// use simdformer_kernels::norm::RmsNorm;
/// use simdformer_kernels::train::rms_norm_forward_save_in_place;
/// use simdformer_kernels::{Isa, MatrixMut, Parallelism};
///
/// let (mut x, mut standard, mut scale) = ([2.0, -2.0], [0.0; 2], [0.0]);
/// rms_norm_forward_save_in_place(
///     Isa::best(),
///     RmsNorm { weight: &[5.0, 3.0], eps: 0.0 },
///     MatrixMut::new(&mut x, 1, 2)?,
///     MatrixMut::new(&mut standard, 1, 2)?,
///     &mut scale,
///     Parallelism::Serial,
/// )?;
/// assert_eq!((standard, scale, x), ([1.0, -1.0], [0.5], [5.0, -3.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rms_norm_forward_save_in_place(
    isa: Isa,
    norm: RmsNorm<'_>,
    x: MatrixMut<'_>,
    standard: MatrixMut<'_>,
    scale: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    forward_save::run(isa, Norm::Rms(norm), None, standard, scale, x, parallelism)
}

/// `out = standard * weight`: recomputes the `out` of [`rms_norm_forward_save`] with the same bits. One rounding per
/// element.
///
/// # Errors
/// As [`rms_norm_forward_save`].
///
/// ```
/// use simdformer_kernels::norm::RmsNorm;
/// use simdformer_kernels::train::rms_norm_recompute;
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let norm = RmsNorm { weight: &[5.0, 3.0], eps: 0.0 };
/// let (standard, mut out) = (Matrix::new(&[1.0, -1.0], 1, 2)?, [0.0; 2]);
/// let view = MatrixMut::new(&mut out, 1, 2)?;
/// rms_norm_recompute(Isa::best(), norm, standard, view, Parallelism::Serial)?;
/// assert_eq!(out, [5.0, -3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rms_norm_recompute(
    isa: Isa,
    norm: RmsNorm<'_>,
    standard: Matrix<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    forward_save::recompute(isa, Norm::Rms(norm), standard, out, parallelism)
}

/// The gradient of a root-mean-square normalization's input: with `g = weight * d_out`, in every row `d_x = r (g -
/// standard mean(g * standard))`, stored or added. `saved` is what [`rms_norm_forward_save`] saved; `r` is its
/// `scale`. All matrices are `[rows, columns]`.
///
/// Error, against the formula with the same `standard` and `scale`, without underflow: `u (columns / 64 + 15) r (|g| +
/// |standard| mean |g * standard|)`, with `u = 2^-24`. Adding to the previous content takes one more rounding.
///
/// # Errors
/// As [`rms_norm_forward_save`].
///
/// ```
/// use simdformer_kernels::norm::RmsNorm;
/// use simdformer_kernels::train::{SavedNorm, WriteMode, rms_norm_backward};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let mut d_x = [f32::NAN; 2];
/// rms_norm_backward(
///     Isa::best(),
///     RmsNorm { weight: &[1.0, 3.0], eps: 0.0 },
///     SavedNorm { standard: Matrix::new(&[1.0, -1.0], 1, 2)?, scale: &[0.5] },
///     Matrix::new(&[4.0, 0.0], 1, 2)?,
///     WriteMode::Store,
///     MatrixMut::new(&mut d_x, 1, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(d_x, [1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rms_norm_backward(
    isa: Isa,
    norm: RmsNorm<'_>,
    saved: SavedNorm<'_>,
    d_out: Matrix<'_>,
    write: WriteMode,
    d_x: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    input_grad::run(isa, Norm::Rms(norm), saved, Some(d_out), write, d_x, parallelism)
}

/// [`rms_norm_backward`] in place: `d` is the gradient of the output on entry, and that of the input on return.
///
/// # Errors
/// As [`rms_norm_backward`].
///
/// ```
/// use simdformer_kernels::norm::RmsNorm;
/// use simdformer_kernels::train::{SavedNorm, rms_norm_backward_in_place};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let norm = RmsNorm { weight: &[1.0, 3.0], eps: 0.0 };
/// let saved = SavedNorm { standard: Matrix::new(&[1.0, -1.0], 1, 2)?, scale: &[0.5] };
/// let mut d = [4.0, 0.0];
/// let view = MatrixMut::new(&mut d, 1, 2)?;
/// rms_norm_backward_in_place(Isa::best(), norm, saved, view, Parallelism::Serial)?;
/// assert_eq!(d, [1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rms_norm_backward_in_place(
    isa: Isa,
    norm: RmsNorm<'_>,
    saved: SavedNorm<'_>,
    d: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    input_grad::run(isa, Norm::Rms(norm), saved, None, WriteMode::Store, d, parallelism)
}

/// The gradient of a root-mean-square normalization's weight, `d_weight = sum over rows of d_out * standard`,
/// `[columns]`, stored or added, computed as in
/// [`layer_norm_parameters_backward`](crate::train::layer_norm_parameters_backward).
///
/// # Errors
/// As [`layer_norm_parameters_backward`](crate::train::layer_norm_parameters_backward).
///
/// ```
/// use simdformer_kernels::train::{ReductionChunks, WriteMode, rms_norm_parameters_backward};
/// use simdformer_kernels::{Isa, Matrix, Parallelism};
///
/// let standard = Matrix::new(&[-1.0, 1.0, 1.0, -1.0], 2, 2)?;
/// let d_out = Matrix::new(&[3.0, 4.0, 5.0, 6.0], 2, 2)?;
/// let mut d_weight = [1.0; 2];
/// let chunks = ReductionChunks::new(&[2])?;
/// rms_norm_parameters_backward(
///     Isa::best(),
///     standard,
///     d_out,
///     chunks,
///     WriteMode::Add,
///     &mut d_weight,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(d_weight, [3.0, -1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rms_norm_parameters_backward(
    isa: Isa,
    standard: Matrix<'_>,
    d_out: Matrix<'_>,
    chunks: ReductionChunks<'_>,
    write: WriteMode,
    d_weight: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let gradients = NormGradients { weight: d_weight, bias: None };
    param_grad::run(isa, (standard, d_out), chunks, write, gradients, parallelism)
}
