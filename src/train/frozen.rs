//! Which tensors of each family are frozen, and which do not decay, as in the library of the family.

use crate::config::{Config, Family, Side};
use crate::network::{LayerPart, ParamKind, TensorId};

/// Whether the tensor is frozen.
///
/// Transformers stores `final_logits_bias` as a buffer, and the sinusoids of Whisper's encoder as a table without a
/// gradient. Position tables that are computed from a formula are not in a checkpoint and are not passed to this
/// function.
pub(super) fn is_frozen(config: &Config, role: TensorId) -> bool {
    match role {
        TensorId::OutputBias => !matches!(config.family, Family::NnTransformer | Family::Plain),
        TensorId::Positions(Side::Encoder) => config.family == Family::Whisper,
        _ => false,
    }
}

/// The id whose embedding has no gradient from lookups, only as a column of a tied output: `padding_idx` of PyTorch.
/// T5 and this crate's own families have none.
pub(super) fn padding_row(config: &Config) -> Option<u32> {
    match config.family {
        Family::T5 | Family::Mt5 | Family::Umt5 | Family::NnTransformer | Family::Plain => None,
        _ => config.tokens.pad,
    }
}

/// Whether weight decay applies to the tensor, as in transformers: to matrices, but not to norms, biases and tables
/// of relative positions.
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
