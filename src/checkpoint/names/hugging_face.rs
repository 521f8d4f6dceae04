//! The common names of the Hugging Face families.

use super::tensor_location::Location;
use crate::config::Side;
use crate::network::{Attention, FeedForward, LayerPart, ParamKind, Projection, TensorId};

const SHARED: &str = "model.shared.weight";
const ENCODER: &str = "model.encoder.embed_tokens.weight";
const DECODER: &str = "model.decoder.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

pub(super) const fn affine(affine: ParamKind) -> &'static str {
    match affine {
        ParamKind::Weight => "weight",
        ParamKind::Bias => "bias",
    }
}

/// Layers and embeddings. `shared`: source and target embedding are one matrix with its own name.
pub(super) fn locate(role: TensorId, shared: bool) -> Vec<Location> {
    let names: &[&str] = match role {
        TensorId::SourceEmbedding if shared => &[ENCODER, SHARED],
        TensorId::SourceEmbedding => &[ENCODER],
        TensorId::TargetEmbedding if shared => &[DECODER, SHARED],
        TensorId::TargetEmbedding => &[DECODER],
        TensorId::Output => &[HEAD],
        TensorId::Layer(side, layer, part) => {
            let Some(part) = layer_part(part) else { return Vec::new() };
            return vec![Location::whole(format!("model.{}.layers.{layer}.{part}", side.name()))];
        }
        TensorId::OutputBias
        | TensorId::Positions(_)
        | TensorId::TokenTypes
        | TensorId::RelativeBias(_)
        | TensorId::Convolution(..)
        | TensorId::EmbeddingNorm(..)
        | TensorId::FinalNorm(..) => &[],
    };
    names.iter().map(|&name| Location::whole(name)).collect()
}

/// `model.{encoder,decoder}.{part}.{weight,bias}`.
pub(super) fn stack_part(side: Side, part: &str, of: ParamKind) -> Vec<Location> {
    vec![Location::whole(format!("model.{}.{part}.{}", side.name(), affine(of)))]
}

/// `None` if these families have no name for the part.
fn layer_part(part: LayerPart) -> Option<String> {
    let block = |kind| match kind {
        Attention::Own => "self_attn",
        Attention::Cross => "encoder_attn",
    };
    let (stem, of) = match part {
        LayerPart::Attention(kind, projection, of) => {
            let projection = match projection {
                Projection::Query => "q_proj",
                Projection::Key => "k_proj",
                Projection::Value => "v_proj",
                Projection::Output => "out_proj",
            };
            return Some(format!("{}.{projection}.{}", block(kind), affine(of)));
        }
        LayerPart::AttentionNorm(kind, of) => {
            return Some(format!("{}_layer_norm.{}", block(kind), affine(of)));
        }
        LayerPart::FeedForward(FeedForward::Inner, of) => ("fc1", of),
        LayerPart::FeedForward(FeedForward::Outer, of) => ("fc2", of),
        LayerPart::FeedForwardNorm(of) => ("final_layer_norm", of),
        LayerPart::FeedForward(FeedForward::Gate, _) | LayerPart::RelativeBias => return None,
    };
    Some(format!("{stem}.{}", affine(of)))
}
