//! Activation checkpointing: which activations the forward pass saves, and which the backward pass recomputes.

/// The activations that the forward pass saves for the backward pass. The others are recomputed from the same
/// operands in the same order, so all four variants give the same bits.
///
/// Floats saved and work added per token and layer of Transformer-base (d_model 512, feed-forward 2048):
///
/// | | encoder | decoder | more work |
/// |---|---|---|---|
/// | [`Everything`](SavedActivations::Everything) | 5,130 | 6,680 and 1,024 for each source token | under 1 % |
/// | [`Projections`](SavedActivations::Projections) | 3,082 | 4,632 and 1,024 | 7 % |
/// | [`Context`](SavedActivations::Context) | 1,546 | 2,584 | 15 % |
/// | [`Inputs`](SavedActivations::Inputs) | 512 | 512 | 24 % to 33 % |
///
/// With `Everything`, an encoder that reads features also saves the input of its second convolution's activation,
/// `d_model` floats per position. The output of its first convolution is always recomputed from the features.
///
/// Source: Chen et al. 2016 (arXiv 1604.06174) for `Inputs`, Korthikanti et al. 2022 (2205.05198) for `Projections`
/// and `Context`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SavedActivations {
    /// Saves the norms' standard scores, the projections, the contexts and the inputs of activations. The results of
    /// norms and activations are recomputed elementwise.
    #[default]
    Everything,
    /// As `Everything`, without the hidden layers of the feed-forward blocks, whose first product is recomputed.
    Projections,
    /// Saves the norms' standard scores and the contexts. Queries, keys and values are recomputed too.
    Context,
    /// Saves the input of each layer; the whole layer is recomputed.
    Inputs,
}
