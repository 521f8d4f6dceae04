//! State dicts of `torch.nn.Transformer`, together with `src_embed`, `tgt_embed` and `generator`.
//!
//! Query, key and value are one matrix, with their rows in this order. All names may begin with `transformer.`,
//! if the transformer is a field of the saved module.

use super::hugging_face::affine;
use super::tensor_location::Location;
use crate::config::Side;
use crate::network::{Attention, FeedForward, LayerPart, Projection, TensorId};

pub(super) fn locate(role: TensorId) -> Vec<Location> {
    let names: &[&str] = match role {
        TensorId::SourceEmbedding => &["src_embed.weight"],
        TensorId::TargetEmbedding => &["tgt_embed.weight"],
        TensorId::Output => &["generator.weight"],
        TensorId::OutputBias => &["generator.bias"],
        TensorId::FinalNorm(side, of) => {
            return inside(format!("{}.norm.{}", side.name(), affine(of)), (0, 1));
        }
        TensorId::Layer(side, layer, part) => {
            let Some((part, block)) = layer_part(side, part) else { return Vec::new() };
            return inside(format!("{}.layers.{layer}.{part}", side.name()), block);
        }
        TensorId::Positions(_)
        | TensorId::TokenTypes
        | TensorId::RelativeBias(_)
        | TensorId::Convolution(..)
        | TensorId::EmbeddingNorm(..) => &[],
    };
    names.iter().map(|&name| Location::whole(name)).collect()
}

fn inside(name: String, block: (usize, usize)) -> Vec<Location> {
    let prefixed = format!("transformer.{name}");
    vec![Location { name, block }, Location { name: prefixed, block }]
}

/// `None` if the library has no name for the part.
fn layer_part(side: Side, part: LayerPart) -> Option<(String, (usize, usize))> {
    const WHOLE: (usize, usize) = (0, 1);
    let block = |kind| match kind {
        Attention::Own => "self_attn",
        Attention::Cross => "multihead_attn",
    };
    // Norms are numbered in the order of the blocks: self-attention, cross-attention if there is one,
    // feed-forward.
    let (stem, of) = match part {
        LayerPart::Attention(kind, projection, of) => {
            let thirds = match projection {
                Projection::Query => (0, 3),
                Projection::Key => (1, 3),
                Projection::Value => (2, 3),
                Projection::Output => {
                    let name = format!("{}.out_proj.{}", block(kind), affine(of));
                    return Some((name, WHOLE));
                }
            };
            return Some((format!("{}.in_proj_{}", block(kind), affine(of)), thirds));
        }
        LayerPart::AttentionNorm(Attention::Own, of) => ("norm1", of),
        LayerPart::AttentionNorm(Attention::Cross, of) => ("norm2", of),
        LayerPart::FeedForward(FeedForward::Inner, of) => ("linear1", of),
        LayerPart::FeedForward(FeedForward::Outer, of) => ("linear2", of),
        LayerPart::FeedForwardNorm(of) => match side {
            Side::Encoder => ("norm2", of),
            Side::Decoder => ("norm3", of),
        },
        LayerPart::FeedForward(FeedForward::Gate, _) | LayerPart::RelativeBias => return None,
    };
    Some((format!("{stem}.{}", affine(of)), WHOLE))
}
