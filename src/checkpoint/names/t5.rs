//! `T5ForConditionalGeneration` and its descendants: blocks of two or three numbered layers. Both sides share
//! one embedding table, which has one of three names.

use super::hugging_face::affine;
use super::tensor_location::Location;
use crate::config::Side;
use crate::network::{Attention, FeedForward, LayerPart, Projection, TensorId};

pub(super) fn locate(role: TensorId) -> Vec<Location> {
    let names = match role {
        TensorId::SourceEmbedding => {
            vec!["shared.weight".to_owned(), "encoder.embed_tokens.weight".to_owned()]
        }
        TensorId::TargetEmbedding => {
            vec!["shared.weight".to_owned(), "decoder.embed_tokens.weight".to_owned()]
        }
        TensorId::Output => vec!["lm_head.weight".to_owned()],
        TensorId::FinalNorm(side, of) => {
            vec![format!("{}.final_layer_norm.{}", side.name(), affine(of))]
        }
        // Stored in the first block.
        TensorId::RelativeBias(side) => layer(side, 0, LayerPart::RelativeBias),
        TensorId::Layer(side, index, part) => layer(side, index, part),
        TensorId::OutputBias
        | TensorId::Positions(_)
        | TensorId::TokenTypes
        | TensorId::Convolution(..)
        | TensorId::EmbeddingNorm(..) => Vec::new(),
    };
    names.into_iter().map(Location::whole).collect()
}

fn layer(side: Side, index: usize, part: LayerPart) -> Vec<String> {
    let last = match side {
        Side::Encoder => 1,
        Side::Decoder => 2,
    };
    let attention = |kind| match (kind, side) {
        (Attention::Own, _) => Some((0, "SelfAttention")),
        (Attention::Cross, Side::Decoder) => Some((1, "EncDecAttention")),
        (Attention::Cross, Side::Encoder) => None,
    };
    let name = |layer: usize, rest: &str| {
        vec![format!("{}.block.{index}.layer.{layer}.{rest}", side.name())]
    };
    match part {
        LayerPart::Attention(kind, projection, of) => {
            let projection = match projection {
                Projection::Query => "q",
                Projection::Key => "k",
                Projection::Value => "v",
                Projection::Output => "o",
            };
            let Some((layer, block)) = attention(kind) else { return Vec::new() };
            name(layer, &format!("{block}.{projection}.{}", affine(of)))
        }
        LayerPart::AttentionNorm(kind, of) => {
            let Some((layer, _)) = attention(kind) else { return Vec::new() };
            name(layer, &format!("layer_norm.{}", affine(of)))
        }
        LayerPart::RelativeBias => name(0, "SelfAttention.relative_attention_bias.weight"),
        LayerPart::FeedForward(half, of) => {
            // The maps of a gated block are numbered.
            let stems: &[&str] = match half {
                FeedForward::Gate => &["wi_0"],
                FeedForward::Inner => &["wi", "wi_1"],
                FeedForward::Outer => &["wo"],
            };
            let stems = stems.iter();
            let names = stems.map(|stem| format!("DenseReluDense.{stem}.{}", affine(of)));
            names.flat_map(|rest| name(last, &rest)).collect()
        }
        LayerPart::FeedForwardNorm(of) => name(last, &format!("layer_norm.{}", affine(of))),
    }
}
