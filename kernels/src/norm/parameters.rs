//! What a layer normalisation has learned.

/// The learned part of a layer normalisation.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm<'a> {
    /// What each column is multiplied by, `[columns]`.
    pub weight: &'a [f32],
    /// What is added to each column, `[columns]`.
    pub bias: &'a [f32],
    /// Added to the variance: 1e-5 in most models, 1e-12 in BERT. With 0, a constant row still
    /// gives the bias.
    pub eps: f32,
}
