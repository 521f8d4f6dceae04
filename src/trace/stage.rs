//! The intermediate tensors that a probe can receive, and their place in the architecture.

use crate::config::Side;
use core::fmt;

macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident = $name:literal,)*) => {
        /// The intermediate tensors, in the order of computation. Shapes are those of a [`super::View`]: `rows` are
        /// tokens of one sentence. Formulas are those of sections 3.1 to 3.5 of Vaswani et al. 2017.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Stage {
            $($(#[$doc])* $stage,)*
        }

        impl Stage {
            /// Every stage.
            pub const ALL: &'static [Self] = &[$(Self::$stage,)*];

            /// The name, in lower case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$stage => $name,)*
                }
            }

            /// The stage with this [name](Self::name); `None` if there is none.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|stage| stage.name() == name)
            }
        }
    };
}

stages! {
    /// Rows of the embedding table times [`Config::embedding_scale`](crate::config::Config::embedding_scale),
    /// `[rows, d_model]`. Absent if the encoder reads features.
    Embedding = "embedding",
    /// The position encodings that are added to the embeddings, `[rows, d_model]`.
    Position = "position",
    /// The sum of both, normalized if the architecture has an embedding norm: the input of the first layer,
    /// `[rows, d_model]`.
    Input = "input",
    /// Queries of all heads, concatenated, `[rows, d_model]`.
    Query = "query",
    /// Keys of all heads, concatenated, `[rows, d_model]`. Cross-attention computes its keys once, when the source is
    /// encoded: then `rows` are source tokens and `side` is the decoder.
    Key = "key",
    /// Values, with the layout of the keys.
    Value = "value",
    /// `scale * query key^T` of one head before any mask, plus the bias of relative positions, `[rows, keys]`; keys
    /// count from position 0.
    Scores = "scores",
    /// Softmax of the scores over the visible keys of a query, exactly 0 for all other keys, `[rows, keys]`.
    Weights = "weights",
    /// `weights value` of all heads, concatenated, `[rows, d_model]`, before the output projection.
    Context = "context",
    /// `context W_O + b`, `[rows, d_model]`: the output of attention before the residual is added.
    Projection = "projection",
    /// `activation(x W1 + b1)`, `[rows, ffn_dim]`, in the feed-forward block.
    FeedForward = "feed-forward",
    /// The residual stream after the output of a block is added, `[rows, d_model]`.
    Residual = "residual",
    /// The block's LayerNorm, `[rows, d_model]`: after [`Stage::Residual`] with post-norm, before the block with
    /// pre-norm.
    Norm = "norm",
    /// The encoder output, `[rows, d_model]`.
    Memory = "memory",
    /// The last hidden state of the decoder, `[rows, d_model]`.
    Output = "output",
    /// The logits including the output bias, `[rows, vocabulary]`.
    Logits = "logits",
    /// Softmax of the logits, `[1, vocabulary]`, one view per row.
    Probabilities = "probabilities",
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A block of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Block {
    /// Self-attention.
    Own,
    /// Attention of the decoder to the encoder output.
    Cross,
    /// The feed-forward block.
    FeedForward,
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "self-attention",
            Self::Cross => "cross-attention",
            Self::FeedForward => "feed-forward",
        })
    }
}

/// The place of an intermediate tensor in the architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The stack: encoder or decoder.
    pub side: Side,
    /// The layer, from 0; `None` before the first layer and after the last.
    pub layer: Option<usize>,
    /// The block of the layer; `None` outside all layers.
    pub block: Option<Block>,
    /// The head, from 0; `None` if the tensor has all heads.
    pub head: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for (i, &stage) in Stage::ALL.iter().enumerate() {
            assert_eq!(Stage::from_name(stage.name()), Some(stage));
            assert!(Stage::ALL[..i].iter().all(|other| other.name() != stage.name()));
        }
        assert_eq!(Stage::from_name("nothing"), None);
    }
}
