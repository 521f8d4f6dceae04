//! The text encoder and the text decoder of `SeamlessM4TModel` and its version 2.

use super::hugging_face::affine;
use super::tensor_location::Location;
use crate::config::Side;
use crate::network::{Attention, FeedForward, LayerPart, Projection, TensorId};

pub(super) fn locate(role: TensorId) -> Vec<Location> {
    let one = |name: String| vec![Location::whole(name)];
    let names: &[&str] = match role {
        TensorId::SourceEmbedding => &["text_encoder.embed_tokens.weight", "shared.weight"],
        TensorId::TargetEmbedding => &["text_decoder.embed_tokens.weight", "shared.weight"],
        TensorId::Output => &["lm_head.weight"],
        TensorId::FinalNorm(side, of) => {
            return one(format!("text_{}.layer_norm.{}", side.name(), affine(of)));
        }
        TensorId::Layer(side, layer, part) => {
            let part = layer_part(side, part);
            let name = |part| format!("text_{}.layers.{layer}.{part}", side.name());
            return part.map(|part| one(name(part))).unwrap_or_default();
        }
        _ => &[],
    };
    names.iter().map(|&name| Location::whole(name)).collect()
}

/// `None` if these models have no name for the part.
fn layer_part(side: Side, part: LayerPart) -> Option<String> {
    let block = |kind| match (kind, side) {
        (Attention::Own, _) => Some("self_attn"),
        (Attention::Cross, Side::Decoder) => Some("cross_attention"),
        (Attention::Cross, Side::Encoder) => None,
    };
    Some(match part {
        LayerPart::Attention(kind, projection, of) => {
            let projection = match projection {
                Projection::Query => "q_proj",
                Projection::Key => "k_proj",
                Projection::Value => "v_proj",
                Projection::Output => "out_proj",
            };
            format!("{}.{projection}.{}", block(kind)?, affine(of))
        }
        LayerPart::AttentionNorm(kind, of) => {
            format!("{}_layer_norm.{}", block(kind)?, affine(of))
        }
        LayerPart::FeedForward(FeedForward::Inner, of) => format!("ffn.fc1.{}", affine(of)),
        LayerPart::FeedForward(FeedForward::Outer, of) => format!("ffn.fc2.{}", affine(of)),
        LayerPart::FeedForwardNorm(of) => format!("ffn_layer_norm.{}", affine(of)),
        LayerPart::FeedForward(FeedForward::Gate, _) | LayerPart::RelativeBias => return None,
    })
}
