//! What a layer normalisation has learned.

use crate::debug::Elements;
use core::fmt;

/// The learned part of a layer normalisation.
#[derive(Clone, Copy)]
pub struct LayerNorm<'a> {
    /// What each column is multiplied by, `[columns]`.
    pub weight: &'a [f32],
    /// What is added to each column, `[columns]`.
    pub bias: &'a [f32],
    /// Added to the variance: 1e-5 in most models, 1e-12 in BERT. With 0, a constant row still
    /// gives the bias.
    pub eps: f32,
}

impl fmt::Debug for LayerNorm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerNorm")
            .field("weight", &Elements::of(self.weight))
            .field("bias", &Elements::of(self.bias))
            .field("eps", &self.eps)
            .finish()
    }
}
