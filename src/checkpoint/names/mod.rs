//! What a tensor is for, and how each family spells it.

mod bart;
mod hugging_face;
mod m2m100;
mod marian;
mod nn_transformer;

use core::ops::Range;

use crate::config::{Config, Family, Positions, Side};

/// The matrix or the vector of a linear map or of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Affine {
    /// `[outputs, inputs]` of a linear map; `[d_model]` of a norm, whose factor it is.
    Weight,
    /// `[outputs]`, or `[d_model]`.
    Bias,
}

/// Where an attention block looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attention {
    /// At its own sentence.
    Own,
    /// At the memory of the encoder; in decoder layers only.
    Cross,
}

/// One of the four linear maps of an attention block, `d_model` to `d_model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// What a position asks.
    Query,
    /// What a position is found by.
    Key,
    /// What a position answers.
    Value,
    /// From the joined heads back to the model.
    Output,
}

/// One of the two linear maps of a feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedForward {
    /// `d_model` to `ffn_dim`, before the activation.
    Inner,
    /// `ffn_dim` to `d_model`, after it.
    Outer,
}

/// A parameter of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerPart {
    /// A projection of an attention block.
    Attention(Attention, Projection, Affine),
    /// The norm before (pre-norm) or after (post-norm) an attention block.
    AttentionNorm(Attention, Affine),
    /// Half of the feed-forward block.
    FeedForward(FeedForward, Affine),
    /// The norm of the feed-forward block.
    FeedForwardNorm(Affine),
}

impl LayerPart {
    /// The 16 parameters of an encoder layer or the 26 of a decoder layer, in the order in which they are used.
    pub fn all(side: Side) -> impl Iterator<Item = Self> {
        use Affine::{Bias, Weight};
        use Projection::{Key, Output, Query, Value};
        let kinds: &[Attention] = match side {
            Side::Encoder => &[Attention::Own],
            Side::Decoder => &[Attention::Own, Attention::Cross],
        };
        let attention = kinds.iter().flat_map(|&kind| {
            let projections = [Query, Key, Value, Output].into_iter().flat_map(move |projection| {
                [Weight, Bias].map(|affine| Self::Attention(kind, projection, affine))
            });
            projections.chain([Weight, Bias].map(|affine| Self::AttentionNorm(kind, affine)))
        });
        let halves = [FeedForward::Inner, FeedForward::Outer].into_iter();
        attention
            .chain(halves.flat_map(|half| [Weight, Bias].map(|a| Self::FeedForward(half, a))))
            .chain([Weight, Bias].map(Self::FeedForwardNorm))
    }
}

/// What a tensor is for. Shapes are those of [`Role::shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `[source_vocab, d_model]`.
    SourceEmbedding,
    /// `[target_vocab, d_model]`.
    TargetEmbedding,
    /// `[target_vocab, d_model]`: the projection to logits, often the target embedding itself.
    Output,
    /// `[target_vocab]`: added to the logits. The one role that may be absent: then it is zero.
    OutputBias,
    /// `[max_positions + offset, d_model]`: the table of learned positions.
    Positions(Side),
    /// `[d_model]`: the norm after the embeddings.
    EmbeddingNorm(Side, Affine),
    /// A parameter of layer `1`, counted from 0.
    Layer(Side, usize, LayerPart),
    /// `[d_model]`: the norm after the last layer.
    FinalNorm(Side, Affine),
}

impl Role {
    /// Every role that a model of this configuration has, [`Role::OutputBias`] included, in the order of use.
    pub fn all(config: &Config) -> impl Iterator<Item = Self> + '_ {
        let side_roles = |side: Side| {
            let before = [
                Self::Positions(side),
                Self::EmbeddingNorm(side, Affine::Weight),
                Self::EmbeddingNorm(side, Affine::Bias),
            ];
            let layers = (0..config.stack(side).layers).flat_map(move |layer| {
                LayerPart::all(side).map(move |part| Self::Layer(side, layer, part))
            });
            let after = [Affine::Weight, Affine::Bias].map(|affine| Self::FinalNorm(side, affine));
            before.into_iter().chain(layers).chain(after)
        };
        [Self::SourceEmbedding, Self::TargetEmbedding]
            .into_iter()
            .chain(side_roles(Side::Encoder))
            .chain(side_roles(Side::Decoder))
            .chain([Self::Output, Self::OutputBias])
            .filter(|role| role.shape(config).is_some())
    }

    /// The shape this role has in a model of this configuration; `None` if such a model has no such part.
    pub fn shape(self, config: &Config) -> Option<Vec<usize>> {
        let d = config.d_model;
        match self {
            Self::SourceEmbedding => Some(vec![config.source_vocab, d]),
            Self::TargetEmbedding | Self::Output => Some(vec![config.target_vocab, d]),
            Self::OutputBias => Some(vec![config.target_vocab]),
            Self::Positions(_) => match (config.positions, config.max_positions) {
                (Positions::Learned { offset }, Some(max)) => {
                    Some(vec![max.checked_add(offset)?, d])
                }
                _ => None,
            },
            Self::EmbeddingNorm(side, _) => config.stack(side).embedding_norm.then(|| vec![d]),
            Self::FinalNorm(side, _) => config.stack(side).final_norm.then(|| vec![d]),
            Self::Layer(side, layer, part) => {
                let stack = config.stack(side);
                if layer >= stack.layers {
                    return None;
                }
                let (outputs, inputs, affine) = match part {
                    LayerPart::Attention(Attention::Cross, ..)
                    | LayerPart::AttentionNorm(Attention::Cross, _)
                        if side == Side::Encoder =>
                    {
                        return None;
                    }
                    LayerPart::Attention(_, _, affine) => (d, d, affine),
                    LayerPart::AttentionNorm(..) | LayerPart::FeedForwardNorm(_) => {
                        return Some(vec![d]);
                    }
                    LayerPart::FeedForward(FeedForward::Inner, affine) => {
                        (stack.ffn_dim, d, affine)
                    }
                    LayerPart::FeedForward(FeedForward::Outer, affine) => {
                        (d, stack.ffn_dim, affine)
                    }
                };
                Some(match affine {
                    Affine::Weight => vec![outputs, inputs],
                    Affine::Bias => vec![outputs],
                })
            }
        }
    }
}

/// A place where a role may be found: a tensor, or one of several equal blocks of its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::checkpoint) struct Location {
    pub(in crate::checkpoint) name: String,
    /// Which block of how many.
    pub(in crate::checkpoint) block: (usize, usize),
}

impl Location {
    pub(in crate::checkpoint) fn whole(name: impl Into<String>) -> Self {
        Self { name: name.into(), block: (0, 1) }
    }

    /// The shape of the stored tensor, given that of the role.
    pub(in crate::checkpoint) fn stored_shape(&self, mut role: Vec<usize>) -> Vec<usize> {
        if let Some(rows) = role.first_mut() {
            *rows *= self.block.1;
        }
        role
    }

    /// The rows of the stored tensor that are the role, which has `rows` of them.
    pub(in crate::checkpoint) fn rows(&self, rows: usize) -> Range<usize> {
        let begin = rows * self.block.0;
        begin..begin + rows
    }
}

/// Places where the family keeps a role, the preferred one first; none if the family has no such part.
pub(in crate::checkpoint) fn locate(family: Family, role: Role) -> Vec<Location> {
    match family {
        Family::Marian => marian::locate(role),
        Family::Bart | Family::MBart => bart::locate(role),
        Family::M2M100 => m2m100::locate(role),
        Family::NnTransformer => nn_transformer::locate(role),
    }
}

/// Whether the family writes this tensor and nobody needs it.
pub(in crate::checkpoint) fn ignorable(family: Family, name: &str) -> bool {
    if name.ends_with("embed_positions._float_tensor") || name.ends_with(".version") {
        return true;
    }
    match family {
        // Tables of a formula.
        Family::Marian | Family::M2M100 => {
            name.ends_with("embed_positions.weight") || name.ends_with("embed_positions.weights")
        }
        _ => false,
    }
}

/// The stack and the layer that a tensor belongs to, by its name, in any of the families.
pub(in crate::checkpoint) fn layer_of(name: &str) -> Option<(Side, usize)> {
    let name =
        name.strip_prefix("model.").or_else(|| name.strip_prefix("transformer.")).unwrap_or(name);
    let (side, rest) = name.split_once(".layers.")?;
    let side = [Side::Encoder, Side::Decoder].into_iter().find(|s| s.name() == side)?;
    let (layer, _) = rest.split_once('.')?;
    Some((side, layer.parse().ok()?))
}

/// Up to three of `names` that differ least from `wanted`, the nearest first.
pub(in crate::checkpoint) fn nearest<'a>(
    wanted: &str,
    names: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    const COMPARED: usize = 4096;
    let limit = 2 + wanted.len() / 4;
    let mut scored: Vec<(usize, &str)> = names
        .filter(|name| name.len().abs_diff(wanted.len()) <= limit)
        .take(COMPARED)
        .map(|name| (edits(wanted.as_bytes(), name.as_bytes()), name))
        .filter(|&(edits, _)| edits <= limit)
        .collect();
    scored.sort_unstable();
    scored.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

/// Insertions, deletions and replacements from one to the other (Wagner and Fischer 1974), one row kept.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let best = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = best;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits(b"kitten", b"sitting"), 3);
        assert_eq!(edits(b"", b"abc"), 3);
        assert_eq!(
            nearest("fc1.weight", ["fc1.bias", "fc2.weight", "x"].into_iter()),
            ["fc2.weight"]
        );
    }

    #[test]
    fn layers_are_found_in_names() {
        assert_eq!(layer_of("model.decoder.layers.11.fc1.bias"), Some((Side::Decoder, 11)));
        assert_eq!(layer_of("encoder.layers.0.norm1.bias"), Some((Side::Encoder, 0)));
        assert_eq!(layer_of("encoder.layers.x.norm1.bias"), None);
        assert_eq!(layer_of("model.shared.weight"), None);
    }
}
