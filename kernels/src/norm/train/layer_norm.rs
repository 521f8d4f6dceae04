//! Layer normalization that saves the values for its gradient, and the gradient.

use super::{NormGradients, SavedNorm, forward_save, input_grad, param_grad};
use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::norm::parameters::{LayerNorm, Norm};
use crate::parallel::Parallelism;
use crate::train::{ReductionChunks, WriteMode};

/// `out = LN(x)` with exactly the bits of [`layer_norm`](crate::norm::layer_norm). It also saves the standard scores
/// `(x - mean) r` in `standard`, `[rows, columns]` like `x` and `out`, and `r = 1 / sqrt(variance + eps)` in `scale`,
/// `[rows]`.
///
/// If variance and `eps` are 0, `r` and the scores are 0. An `r` that overflows f32 becomes `f32::MAX`. Rows without
/// columns have an `r` of 0.
///
/// Error: with the `u`, `z` and `k` of [`layer_norm`](crate::norm::layer_norm), a standard score is within `u k (|z| +
/// 2)` of the exact one and `r` within `u k r`, plus `2^-149` if `r` is subnormal.
///
/// # Errors
/// Shapes or lengths disagree, `eps` is negative, infinite or NaN, or the elements of a row are not contiguous.
///
/// ```
/// use simdformer_kernels::norm::LayerNorm;
/// use simdformer_kernels::train::layer_norm_forward_save;
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let (mut standard, mut scale, mut out) = ([0.0; 4], [0.0; 2], [0.0; 4]);
/// layer_norm_forward_save(
///     Isa::best(),
///     LayerNorm { weight: &[2.0, 2.0], bias: Some(&[0.5, 0.5]), eps: 0.0 },
///     Matrix::new(&[1.0, 3.0, 7.0, 7.0], 2, 2)?,
///     MatrixMut::new(&mut standard, 2, 2)?,
///     &mut scale,
///     MatrixMut::new(&mut out, 2, 2)?,
///     Parallelism::Serial,
/// )?;
/// assert_eq!(standard, [-1.0, 1.0, 0.0, 0.0]);
/// assert_eq!(scale, [1.0, 0.0]);
/// assert_eq!(out, [-1.5, 2.5, 0.5, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer_norm_forward_save(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: Matrix<'_>,
    standard: MatrixMut<'_>,
    scale: &mut [f32],
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    forward_save::run(isa, Norm::Layer(norm), Some(x), standard, scale, out, parallelism)
}

/// [`layer_norm_forward_save`] in place: `x = LN(x)`.
///
/// # Errors
/// As [`layer_norm_forward_save`].
///
/// ```
/// use simdformer_kernels::norm::LayerNorm;
/// use simdformer_kernels::train::layer_norm_forward_save_in_place;
/// use simdformer_kernels::{Isa, MatrixMut, Parallelism};
///
/// let norm = LayerNorm { weight: &[2.0, 3.0], bias: None, eps: 0.0 };
/// let (mut x, mut standard, mut scale) = ([4.0, 8.0], [0.0; 2], [0.0]);
/// layer_norm_forward_save_in_place(
///     Isa::best(),
///     norm,
///     MatrixMut::new(&mut x, 1, 2)?,
///     MatrixMut::new(&mut standard, 1, 2)?,
///     &mut scale,
///     Parallelism::Serial,
/// )?;
/// assert_eq!((x, standard, scale), ([-2.0, 3.0], [-1.0, 1.0], [0.5]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer_norm_forward_save_in_place(
    isa: Isa,
    norm: LayerNorm<'_>,
    x: MatrixMut<'_>,
    standard: MatrixMut<'_>,
    scale: &mut [f32],
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    forward_save::run(isa, Norm::Layer(norm), None, standard, scale, x, parallelism)
}

/// `out = standard * weight + bias`: recomputes the `out` of [`layer_norm_forward_save`] with the same bits. One
/// rounding per element.
///
/// # Errors
/// As [`layer_norm_forward_save`].
///
/// ```
/// use simdformer_kernels::norm::LayerNorm;
/// use simdformer_kernels::train::layer_norm_recompute;
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let norm = LayerNorm { weight: &[2.0, 3.0], bias: Some(&[0.5, 0.5]), eps: 0.0 };
/// let (standard, mut out) = (Matrix::new(&[-1.0, 1.0], 1, 2)?, [0.0; 2]);
/// let view = MatrixMut::new(&mut out, 1, 2)?;
/// layer_norm_recompute(Isa::best(), norm, standard, view, Parallelism::Serial)?;
/// assert_eq!(out, [-1.5, 3.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer_norm_recompute(
    isa: Isa,
    norm: LayerNorm<'_>,
    standard: Matrix<'_>,
    out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    forward_save::recompute(isa, Norm::Layer(norm), standard, out, parallelism)
}

/// The gradient of a layer normalization's input: with `g = weight * d_out`, in every row `d_x = r (g - mean(g) -
/// standard mean(g * standard))`, stored or added. `saved` is what [`layer_norm_forward_save`] saved; `r` is its
/// `scale`. All matrices are `[rows, columns]`.
///
/// Error, against the formula with the same `standard` and `scale`, without underflow: `u (columns / 64 + 15) r (|g| +
/// mean |g| + |standard| mean |g * standard|)`, with `u = 2^-24`. Adding to the previous content takes one more
/// rounding.
///
/// # Errors
/// As [`layer_norm_forward_save`].
///
/// ```
/// use simdformer_kernels::norm::LayerNorm;
/// use simdformer_kernels::train::{SavedNorm, WriteMode, layer_norm_backward};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let norm = LayerNorm { weight: &[1.0; 4], bias: None, eps: 0.0 };
/// let standard = Matrix::new(&[-1.0, 1.0, 1.0, -1.0], 1, 4)?;
/// let d_out = Matrix::new(&[4.0, 0.0, 0.0, 0.0], 1, 4)?;
/// let mut d_x = [0.0; 4];
/// layer_norm_backward(
///     Isa::best(),
///     norm,
///     SavedNorm { standard, scale: &[2.0] },
///     d_out,
///     WriteMode::Store,
///     MatrixMut::new(&mut d_x, 1, 4)?,
///     Parallelism::Serial,
/// )?;
/// // Both means have magnitude 1: the gradient is orthogonal to the constant vector and to `standard`.
/// assert_eq!(d_x, [4.0, 0.0, 0.0, -4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer_norm_backward(
    isa: Isa,
    norm: LayerNorm<'_>,
    saved: SavedNorm<'_>,
    d_out: Matrix<'_>,
    write: WriteMode,
    d_x: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    input_grad::run(isa, Norm::Layer(norm), saved, Some(d_out), write, d_x, parallelism)
}

/// [`layer_norm_backward`] in place: `d` is the gradient of the output on entry, and that of the input on return.
///
/// # Errors
/// As [`layer_norm_backward`].
///
/// ```
/// use simdformer_kernels::norm::LayerNorm;
/// use simdformer_kernels::train::{SavedNorm, layer_norm_backward_in_place};
/// use simdformer_kernels::{Isa, Matrix, MatrixMut, Parallelism};
///
/// let norm = LayerNorm { weight: &[1.0; 4], bias: None, eps: 0.0 };
/// let standard = Matrix::new(&[-1.0, 1.0, 1.0, -1.0], 1, 4)?;
/// let saved = SavedNorm { standard, scale: &[2.0] };
/// let mut d = [4.0, 0.0, 0.0, 0.0];
/// let view = MatrixMut::new(&mut d, 1, 4)?;
/// layer_norm_backward_in_place(Isa::best(), norm, saved, view, Parallelism::Serial)?;
/// assert_eq!(d, [4.0, 0.0, 0.0, -4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer_norm_backward_in_place(
    isa: Isa,
    norm: LayerNorm<'_>,
    saved: SavedNorm<'_>,
    d: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    input_grad::run(isa, Norm::Layer(norm), saved, None, WriteMode::Store, d, parallelism)
}

/// The gradients of a layer normalization's weight, `d_weight = sum over rows of d_out * standard`, and bias, `d_bias
/// = sum over rows of d_out`, both `[columns]`, stored or added. For each column the rows of a reduction chunk are
/// added in order, then the chunks in order. Without rows, zeros are stored.
///
/// Error: with `l` the rows of the longest chunk and `n` the number of chunks, `d_weight` is within `u (l + n + 1) sum
/// |d_out * standard|` of the exact sum and `d_bias` within `u (l + n) sum |d_out|`, with `u = 2^-24`; the previous
/// content counts as a summand.
///
/// # Errors
/// Shapes or lengths disagree, the reduction chunks and the matrices have different numbers of rows, or the elements
/// of a row are not contiguous.
///
/// ```
/// use simdformer_kernels::train::{
///     NormGradients, ReductionChunks, WriteMode, layer_norm_parameters_backward,
/// };
/// use simdformer_kernels::{Isa, Matrix, Parallelism};
///
/// let standard = Matrix::new(&[-1.0, 1.0, 1.0, -1.0], 2, 2)?;
/// let d_out = Matrix::new(&[3.0, 4.0, 5.0, 6.0], 2, 2)?;
/// let (mut d_weight, mut d_bias) = ([0.0; 2], [0.0; 2]);
/// layer_norm_parameters_backward(
///     Isa::best(),
///     standard,
///     d_out,
///     ReductionChunks::new(&[2])?,
///     WriteMode::Store,
///     NormGradients { weight: &mut d_weight, bias: Some(&mut d_bias) },
///     Parallelism::Serial,
/// )?;
/// assert_eq!((d_weight, d_bias), ([2.0, -2.0], [8.0, 10.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn layer_norm_parameters_backward(
    isa: Isa,
    standard: Matrix<'_>,
    d_out: Matrix<'_>,
    chunks: ReductionChunks<'_>,
    write: WriteMode,
    gradients: NormGradients<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    param_grad::run(isa, (standard, d_out), chunks, write, gradients, parallelism)
}
