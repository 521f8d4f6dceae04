//! What can be seen, and where.

use crate::config::Side;
use core::fmt;

macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident = $name:literal,)*) => {
        /// The intermediates, in the order in which data flows. Shapes are those of a [`super::View`]:
        /// `rows` are tokens of one sentence. Formulas are those of sections 3.1 to 3.5 of Vaswani et al.
        /// 2017.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Stage {
            $($(#[$doc])* $stage,)*
        }

        impl Stage {
            /// Every stage.
            pub const ALL: &'static [Self] = &[$(Self::$stage,)*];

            /// Its name, in lower case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$stage => $name,)*
                }
            }

            /// The stage of that [name](Self::name); `None` if there is none.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|stage| stage.name() == name)
            }
        }
    };
}

stages! {
    /// Rows of the embedding table times [`Config::embedding_scale`](crate::config::Config::embedding_scale),
    /// `[rows, d_model]`; not shown where the encoder reads features.
    Embedding = "embedding",
    /// What is added to them, `[rows, d_model]`.
    Position = "position",
    /// Their sum, normed where the architecture wants it: what the first layer reads,
    /// `[rows, d_model]`.
    Input = "input",
    /// Queries of all heads side by side, `[rows, d_model]`.
    Query = "query",
    /// Keys of all heads side by side, `[rows, d_model]`. Cross-attention makes its keys once, when
    /// the source is encoded: then `rows` are source tokens and `side` is the decoder's.
    Key = "key",
    /// Values, as the keys.
    Value = "value",
    /// `scale * query key^T` of one head before any mask, and what relative positions add,
    /// `[rows, keys]`; keys count from position 0.
    Scores = "scores",
    /// Softmax of the scores over the keys that a query may see, exactly 0 elsewhere,
    /// `[rows, keys]`.
    Weights = "weights",
    /// `weights value` of all heads side by side, `[rows, d_model]`: merged heads, before the output
    /// projection.
    Context = "context",
    /// `activation(x W1 + b1)`, `[rows, ffn_dim]`: inside the feed-forward block.
    FeedForward = "feed-forward",
    /// The residual stream after a block was added to it, `[rows, d_model]`.
    Residual = "residual",
    /// The block's LayerNorm, `[rows, d_model]`: after [`Stage::Residual`] in post-norm, before the
    /// block in pre-norm.
    Norm = "norm",
    /// The encoder's output, `[rows, d_model]`.
    Memory = "memory",
    /// The decoder's last hidden state, `[rows, d_model]`.
    Output = "output",
    /// One number per token of the target vocabulary, the output bias added, `[rows, vocabulary]`.
    Logits = "logits",
    /// Softmax of the logits, `[1, vocabulary]`, one row at a time.
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
    /// Attention of the decoder to the memory.
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

/// Where in the architecture an intermediate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which stack.
    pub side: Side,
    /// Which layer, from 0; `None` below the first and above the last.
    pub layer: Option<usize>,
    /// Which block of the layer; `None` where there is no layer.
    pub block: Option<Block>,
    /// Which head, from 0; `None` where all are side by side.
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
