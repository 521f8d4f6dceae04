//! The norms and their parameters.

use crate::debug_slice::Elements;
use crate::error::Error;
use core::fmt;

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

impl fmt::Debug for LayerNorm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerNorm")
            .field("weight", &Elements::of(self.weight))
            .field("bias", &self.bias.map(Elements::of))
            .field("eps", &self.eps)
            .finish()
    }
}

impl fmt::Debug for RmsNorm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RmsNorm")
            .field("weight", &Elements::of(self.weight))
            .field("eps", &self.eps)
            .finish()
    }
}

/// The norm and its parameters.
#[derive(Clone, Copy)]
pub(super) enum Norm<'a> {
    Layer(LayerNorm<'a>),
    Rms(RmsNorm<'a>),
}

impl<'a> Norm<'a> {
    /// Checks that rows of `columns` columns can be normalized with this norm.
    pub(super) fn check(self, columns: usize) -> Result<(), Error> {
        let (weight, bias, eps) = match self {
            Self::Layer(norm) => (norm.weight, norm.bias, norm.eps),
            Self::Rms(norm) => (norm.weight, None, norm.eps),
        };
        Error::check_len("weight", columns, weight)?;
        if let Some(bias) = bias {
            Error::check_len("bias", columns, bias)?;
        }
        let fits = eps >= 0.0 && eps.is_finite();
        Error::check_setting("eps", f64::from(eps), fits, "finite and at least 0")
    }

    /// The weight, and the bias if there is one.
    #[cfg(feature = "train")]
    pub(super) const fn learned(&self) -> (&[f32], Option<&[f32]>) {
        match self {
            Self::Layer(norm) => (norm.weight, norm.bias),
            Self::Rms(norm) => (norm.weight, None),
        }
    }

    /// The `eps` that is added to the variance, or to the mean square.
    #[cfg(feature = "train")]
    pub(super) const fn eps(&self) -> f32 {
        match self {
            Self::Layer(norm) => norm.eps,
            Self::Rms(norm) => norm.eps,
        }
    }
}
