//! The role of each tensor of the network, and its shape.

use crate::config::{Config, NormKind, Positions, Side, Stack};
use core::fmt;

/// The matrix or the vector of a linear map or of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamKind {
    /// `[outputs, inputs]` of a linear map, row-major; `[d_model]` of a norm, its scale.
    Weight,
    /// `[outputs]` of a linear map, `[d_model]` of a norm; added last.
    Bias,
}

/// The sequence that an attention block attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attention {
    /// Its own sequence (self-attention).
    Own,
    /// The encoder output (cross-attention); only in decoder layers.
    Cross,
}

/// One of the four linear maps of an attention block, from `d_model` to the concatenated heads, or back. Head
/// `h` has the outputs (of [`Output`](Self::Output): the inputs) from `h * d_k` to `(h + 1) * d_k`. Section
/// 3.2.2 of Vaswani et al. 2017.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// The query projection.
    Query,
    /// The key projection.
    Key,
    /// The value projection.
    Value,
    /// From the concatenated heads to `d_model`.
    Output,
}

/// One of the linear maps of a feed-forward block. Section 3.3 of Vaswani et al. 2017.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedForward {
    /// `d_model` to `ffn_dim`, only in a gated block. The activation is applied to this map, and the result
    /// multiplies the output of [`FeedForward::Inner`].
    Gate,
    /// `d_model` to `ffn_dim`; the activation follows it if there is no gate.
    Inner,
    /// `[d_model, ffn_dim]`: from `ffn_dim` to `d_model`, after the activation.
    Outer,
}

/// A parameter of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerPart {
    /// `[d_model, d_model]` or `[d_model]`: a projection of an attention block.
    Attention(Attention, Projection, ParamKind),
    /// `[d_model]`: the norm before (pre-norm) or after (post-norm) an attention block.
    AttentionNorm(Attention, ParamKind),
    /// `[ffn_dim, d_model]`, `[d_model, ffn_dim]`, or the bias of either: half of the feed-forward block.
    FeedForward(FeedForward, ParamKind),
    /// `[d_model]`: the norm before (pre-norm) or after (post-norm) the feed-forward block.
    FeedForwardNorm(ParamKind),
    /// `[buckets, heads]`: the table of relative positions of this layer.
    RelativeBias,
}

/// The role of a tensor in the network. Shapes are those of [`TensorId::shape`].
///
/// A role prints as a path through the network, which is also its tensor name in a checkpoint of
/// [`Family::Plain`](crate::config::Family::Plain). [`TensorId::names`] returns the names in the other
/// families.
///
/// ```
/// use simdformer::checkpoint::{Attention, LayerPart, ParamKind, Projection, TensorId};
/// use simdformer::config::{Config, Side};
///
/// let part = LayerPart::Attention(Attention::Cross, Projection::Query, ParamKind::Weight);
/// let role = TensorId::Layer(Side::Decoder, 5, part);
/// assert_eq!(role.to_string(), "decoder.layers.5.cross_attention.query.weight");
/// // `[outputs, inputs]`, as for all linear maps.
/// assert_eq!(role.shape(&Config::base(37_000)), Some(vec![512, 512]));
/// // Only the decoder has cross-attention.
/// assert_eq!(TensorId::Layer(Side::Encoder, 5, part).shape(&Config::base(37_000)), None);
/// ```
///
#[doc = include_str!("../../docs/tensor-names.md")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorId {
    /// `[source_vocab, d_model]`; not if the encoder reads features.
    SourceEmbedding,
    /// `[target_vocab, d_model]`.
    TargetEmbedding,
    /// `[target_vocab, d_model]`: the projection to logits, often tied to the target embedding.
    Output,
    /// `[target_vocab]`: added to the logits. The only role that a checkpoint may omit; it is then zero.
    OutputBias,
    /// `[max_positions + offset, d_model]`: the table of learned positions.
    Positions(Side),
    /// `[token_types, d_model]`: one row is added to each source token.
    TokenTypes,
    /// `[buckets, heads]`: the table of relative positions that all layers of a stack share.
    RelativeBias(Side),
    /// `[d_model, bins, 3]` and `[d_model]`, or `[d_model, d_model, 3]` and `[d_model]`: convolution 0 or 1 of an
    /// encoder that reads features.
    Convolution(usize, ParamKind),
    /// `[d_model]`: the norm of the embeddings, before or after the positions are added.
    EmbeddingNorm(Side, ParamKind),
    /// A parameter of the layer with this index, counted from 0, in the stack of this side.
    Layer(Side, usize, LayerPart),
    /// `[d_model]`: the norm after the last layer.
    FinalNorm(Side, ParamKind),
}

impl TensorId {
    /// Whether a checkpoint may omit the tensor; it is then zero.
    pub const fn may_be_absent(self) -> bool {
        matches!(self, Self::OutputBias)
    }

    /// The shape of this role in a model of this configuration, rows first, in elements; `None` if such a model has
    /// no such part.
    pub fn shape(self, config: &Config) -> Option<Vec<usize>> {
        let d = config.d_model;
        match self {
            Self::SourceEmbedding => config.bins.is_none().then(|| vec![config.source_vocab, d]),
            Self::TargetEmbedding | Self::Output => {
                config.decoder.map(|_| vec![config.target_vocab, d])
            }
            Self::OutputBias => config.decoder.map(|_| vec![config.target_vocab]),
            Self::Positions(side) => match (config.positions, config.max_positions(side)) {
                (Positions::Learned { offset }, Some(max)) => {
                    Some(vec![max.checked_add(offset)?, d])
                }
                _ => None,
            },
            Self::TokenTypes => (config.token_types > 0).then(|| vec![config.token_types, d]),
            Self::RelativeBias(side) => {
                let stack = config.stack(side)?;
                let bias = stack.relative_bias.filter(|bias| !bias.per_layer)?;
                Some(vec![bias.buckets, stack.heads])
            }
            Self::Convolution(index, affine) => {
                let inputs = [config.bins?, d].get(index).copied()?;
                Some(match affine {
                    ParamKind::Weight => vec![d, inputs, 3],
                    ParamKind::Bias => vec![d],
                })
            }
            Self::EmbeddingNorm(side, affine) => {
                config.stack(side)?.embedding_norm.and_then(|_| norm_shape(config, affine))
            }
            Self::FinalNorm(side, affine) => {
                config.stack(side)?.final_norm.then(|| norm_shape(config, affine))?
            }
            Self::Layer(side, layer, part) => {
                let stack = config.stack(side)?;
                if layer >= stack.layers {
                    return None;
                }
                part_shape(config, side, stack, part)
            }
        }
    }
}

/// The shape of a part of each layer of `stack`.
fn part_shape(config: &Config, side: Side, stack: &Stack, part: LayerPart) -> Option<Vec<usize>> {
    let (d, inner, biases) = (config.d_model, config.attention_dim(side), config.biases);
    let (outputs, inputs, affine, bias) = match part {
        LayerPart::Attention(Attention::Cross, ..)
        | LayerPart::AttentionNorm(Attention::Cross, _)
            if side == Side::Encoder =>
        {
            return None;
        }
        LayerPart::Attention(_, projection, affine) => match projection {
            Projection::Query => (inner, d, affine, biases.query),
            Projection::Key => (inner, d, affine, biases.key),
            Projection::Value => (inner, d, affine, biases.value),
            Projection::Output => (d, inner, affine, biases.attention_output),
        },
        LayerPart::AttentionNorm(_, affine) | LayerPart::FeedForwardNorm(affine) => {
            return norm_shape(config, affine);
        }
        LayerPart::FeedForward(FeedForward::Gate, _) if !config.gated => return None,
        LayerPart::FeedForward(FeedForward::Gate | FeedForward::Inner, affine) => {
            (stack.ffn_dim, d, affine, biases.feed_forward)
        }
        LayerPart::FeedForward(FeedForward::Outer, affine) => {
            (d, stack.ffn_dim, affine, biases.feed_forward)
        }
        LayerPart::RelativeBias => {
            let bias = stack.relative_bias.filter(|bias| bias.per_layer)?;
            return Some(vec![bias.buckets, stack.heads]);
        }
    };
    match affine {
        ParamKind::Weight => Some(vec![outputs, inputs]),
        ParamKind::Bias => bias.then(|| vec![outputs]),
    }
}

/// The shape of the scale or the bias of a norm.
fn norm_shape(config: &Config, affine: ParamKind) -> Option<Vec<usize>> {
    let bias = matches!(config.norm_kind, NormKind::LayerNorm { bias: true });
    (affine == ParamKind::Weight || bias).then(|| vec![config.d_model])
}

impl fmt::Display for TensorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SourceEmbedding => f.write_str("encoder.embedding.weight"),
            Self::TargetEmbedding => f.write_str("decoder.embedding.weight"),
            Self::Output => f.write_str("output.weight"),
            Self::OutputBias => f.write_str("output.bias"),
            Self::Positions(side) => write!(f, "{}.positions.weight", side.name()),
            Self::TokenTypes => f.write_str("encoder.token_types.weight"),
            Self::RelativeBias(side) => write!(f, "{}.relative_bias.weight", side.name()),
            Self::Convolution(index, of) => write!(f, "encoder.convolutions.{index}.{of}"),
            Self::EmbeddingNorm(side, of) => write!(f, "{}.embedding_norm.{of}", side.name()),
            Self::Layer(side, layer, part) => write!(f, "{}.layers.{layer}.{part}", side.name()),
            Self::FinalNorm(side, of) => write!(f, "{}.final_norm.{of}", side.name()),
        }
    }
}

impl fmt::Display for LayerPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attention = |attention| match attention {
            Attention::Own => "self_attention",
            Attention::Cross => "cross_attention",
        };
        match *self {
            Self::Attention(kind, projection, of) => {
                let projection = match projection {
                    Projection::Query => "query",
                    Projection::Key => "key",
                    Projection::Value => "value",
                    Projection::Output => "output",
                };
                write!(f, "{}.{projection}.{of}", attention(kind))
            }
            Self::AttentionNorm(kind, of) => write!(f, "{}_norm.{of}", attention(kind)),
            Self::FeedForward(FeedForward::Gate, of) => write!(f, "feed_forward.gate.{of}"),
            Self::FeedForward(FeedForward::Inner, of) => write!(f, "feed_forward.inner.{of}"),
            Self::FeedForward(FeedForward::Outer, of) => write!(f, "feed_forward.outer.{of}"),
            Self::FeedForwardNorm(of) => write!(f, "feed_forward_norm.{of}"),
            Self::RelativeBias => f.write_str("relative_bias.weight"),
        }
    }
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Weight => "weight",
            Self::Bias => "bias",
        })
    }
}
