//! What each tensor of the network is for, and its shape.

use crate::config::{Config, Positions, Side};

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
    /// Whether a checkpoint may lack it: then it is zero.
    pub const fn may_be_absent(self) -> bool {
        matches!(self, Self::OutputBias)
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
