//! The norms and their parameters.

use crate::debug_slice::impl_debug;
use crate::error::Error;
use crate::rows::RowVector;
use crate::simd::SimdF32;

/// The parameters of a layer normalization.
#[derive(Clone, Copy)]
pub struct LayerNorm<'a> {
    /// The factor of each column, `[columns]`.
    pub weight: &'a [f32],
    /// The summand of each column, `[columns]`; `None` in models without biases.
    pub bias: Option<&'a [f32]>,
    /// Added to the variance: 1e-5 in most models, 1e-12 in BERT. With 0, a constant row still
    /// gives the bias.
    pub eps: f32,
}

/// The parameters of a root-mean-square normalization.
#[derive(Clone, Copy)]
pub struct RmsNorm<'a> {
    /// The factor of each column, `[columns]`.
    pub weight: &'a [f32],
    /// Added to the mean square, inside the root: 1e-6 in T5. With 0, a row of zeros still gives zeros.
    pub eps: f32,
}

impl_debug!(LayerNorm { [weight], [bias], eps });

impl_debug!(RmsNorm { [weight], eps });

/// A norm and its parameters.
#[derive(Clone, Copy, Debug)]
pub enum Norm<'a> {
    /// Layer normalization: `y = (x - mean) / sqrt(variance + eps) * weight + bias`.
    Layer(LayerNorm<'a>),
    /// Root-mean-square normalization: `y = x / sqrt(mean(x^2) + eps) * weight`.
    Rms(RmsNorm<'a>),
}

/// The parameters of any norm.
#[derive(Clone, Copy)]
pub(super) struct Parameters<'a> {
    /// Whether the mean is subtracted: a layer normalization.
    pub(super) centered: bool,
    pub(super) weight: &'a [f32],
    pub(super) bias: Option<&'a [f32]>,
    pub(super) eps: f32,
}

impl<'a> Norm<'a> {
    /// The parameters, if rows of `columns` columns can be normalized with them.
    pub(super) fn checked(self, columns: usize) -> Result<Parameters<'a>, Error> {
        let parameters = match self {
            Self::Layer(LayerNorm { weight, bias, eps }) => {
                Parameters { centered: true, weight, bias, eps }
            }
            Self::Rms(RmsNorm { weight, eps }) => {
                Parameters { centered: false, weight, bias: None, eps }
            }
        };
        let Parameters { weight, bias, eps, .. } = parameters;
        Error::check_len("weight", columns, weight)?;
        if let Some(bias) = bias {
            Error::check_len("bias", columns, bias)?;
        }
        let fits = eps >= 0.0 && eps.is_finite();
        Error::check_setting("eps", f64::from(eps), fits, "finite and at least 0")?;
        Ok(parameters)
    }
}

impl Parameters<'_> {
    /// The number of columns.
    pub(super) const fn columns(&self) -> usize {
        self.weight.len()
    }

    /// The results of the standard scores `z` at `at`: `z * weight`, if `BIAS` plus the bias.
    ///
    /// # Safety
    /// The row that is walked over has at most as many elements as the weight. There is a bias if `BIAS`.
    #[inline(always)]
    pub(super) unsafe fn affine<S: SimdF32, const BIAS: bool>(
        &self,
        s: S,
        at: RowVector,
        z: S::F32,
    ) -> S::F32 {
        let bias = self.bias.map_or(core::ptr::null(), <[f32]>::as_ptr);
        // SAFETY: the caller's contract; `Norm::checked` checked that the bias is as long as the weight.
        unsafe {
            let weight = at.load(s, self.weight.as_ptr());
            if BIAS { s.mul_add(z, weight, at.load(s, bias)) } else { s.mul(z, weight) }
        }
    }
}
