//! What training leaves as it is, family by family, and what does not decay, as the library whose names a checkpoint follows does.

use crate::config::{Config, Family, Side};
use crate::network::{LayerPart, ParamKind, TensorId};

/// Whether no update touches the tensor of `role`.
///
/// Transformers keeps `final_logits_bias` as a buffer, and Whisper's encoder its sinusoids as a table that needs
/// no gradient. Position tables of formulas are in no checkpoint's list and are not asked for here.
pub(super) fn is_frozen(config: &Config, role: TensorId) -> bool {
    match role {
        TensorId::OutputBias => !matches!(config.family, Family::NnTransformer | Family::Plain),
        TensorId::Positions(Side::Encoder) => config.family == Family::Whisper,
        _ => false,
    }
}

/// The id whose embedding learns nothing from being looked up, only as a column of a tied output: `padding_idx` of
/// PyTorch. T5 and this crate's own families have none.
pub(super) fn padding_row(config: &Config) -> Option<u32> {
    match config.family {
        Family::T5 | Family::Mt5 | Family::Umt5 | Family::NnTransformer | Family::Plain => None,
        _ => config.tokens.pad,
    }
}

/// Whether an update with a decay lets the tensor decay: matrices do; norms, biases and tables of relative positions do
/// not, as in transformers.
pub(super) fn decays(role: TensorId) -> bool {
    !matches!(
        role,
        TensorId::OutputBias
            | TensorId::RelativeBias(_)
            | TensorId::Convolution(_, ParamKind::Bias)
            | TensorId::EmbeddingNorm(..)
            | TensorId::FinalNorm(..)
            | TensorId::Layer(
                _,
                _,
                LayerPart::Attention(_, _, ParamKind::Bias)
                    | LayerPart::AttentionNorm(..)
                    | LayerPart::FeedForward(_, ParamKind::Bias)
                    | LayerPart::FeedForwardNorm(_)
                    | LayerPart::RelativeBias
            )
    )
}
