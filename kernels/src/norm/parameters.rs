//! The parameters of a norm.

use crate::debug::Elements;
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
