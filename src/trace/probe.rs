//! The intermediate tensors that a probe can receive, their place in the architecture, and the probe with its views.

use crate::config::Side;
use core::fmt;

macro_rules! stages {
    ($($(#[$doc:meta])* $stage:ident = $name:literal,)*) => {
        /// The intermediate tensors, in the order of computation. Shapes are those of a [`View`]: `rows` are
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

/// `[rows, columns]` in f32: an intermediate tensor of one sentence, or of one hypothesis about it. The rows may have a
/// stride. [`View::row`] and [`View::iter`] read them without a copy.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct View<'v> {
    /// The tensor.
    pub stage: Stage,
    /// Its place in the architecture.
    pub place: Place,
    /// Slot of the sentence ([`crate::SourceId::slot`]). In [`crate::Session::encoder_output`], which uses no slot: the
    /// index of the source in the request.
    pub sentence: u32,
    /// Slot of the hypothesis ([`crate::HypothesisId::slot`]); `None` for a tensor of the source.
    pub hypothesis: Option<u32>,
    /// Position of the first row in its sequence. If a hypothesis is fed token by token, this is the step, from 0.
    pub position: usize,
    /// Number of rows: consecutive tokens.
    pub rows: usize,
    /// Numbers in a row; [`Stage`] states their meaning.
    pub columns: usize,
    pub(super) stride: usize,
    pub(super) data: &'v [f32],
}

impl<'v> View<'v> {
    /// Row `i`, `[columns]`; empty if `i >= rows`.
    pub fn row(&self, i: usize) -> &'v [f32] {
        let start = i.saturating_mul(self.stride);
        let end = start.saturating_add(self.columns);
        if i < self.rows { self.data.get(start..end).unwrap_or(&[]) } else { &[] }
    }

    /// The rows in order, each `[columns]`.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'v [f32]> + use<'v> {
        let view = *self;
        (0..view.rows).map(move |i| view.row(i))
    }
}

impl fmt::Debug for View<'_> {
    /// Prints the metadata, not the numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("stage", &self.stage)
            .field("place", &self.place)
            .field("sentence", &self.sentence)
            .field("hypothesis", &self.hypothesis)
            .field("position", &self.position)
            .field("rows", &self.rows)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

/// Receives the intermediate tensors of a session. An example is at [`Session::traced`](crate::Session::traced).
pub trait Probe: Send {
    /// Whether the probe receives `stage`. Stages that need extra work ([`Stage::Embedding`], [`Stage::Scores`],
    /// [`Stage::Weights`], [`Stage::Projection`], [`Stage::Probabilities`]) are computed only if this is true.
    fn wants(&self, stage: Stage) -> bool {
        let _ = stage;
        true
    }

    /// Whether the probe receives `stage` of this place; called for [`Stage::Scores`] and [`Stage::Weights`] of each head, if
    /// [`wants`](Self::wants) is true. What it does not receive is not computed.
    fn wants_at(&self, stage: Stage, place: Place) -> bool {
        let _ = (stage, place);
        true
    }

    /// Called with each selected tensor as soon as its block is finished, on the thread that leads the pass. The helper
    /// threads go back to their pool if the call takes long. It may enter rayon, and panic; see
    /// [`Threads`](crate::Threads).
    fn look(&mut self, view: &View<'_>);
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
    #[test]
    fn a_view_returns_only_its_rows() {
        let data = [1.0, 2.0, 9.0, 3.0, 4.0, 9.0, 5.0, 6.0];
        let place = Place { side: Side::Encoder, layer: None, block: None, head: None };
        let view = View {
            stage: Stage::Query,
            place,
            sentence: 0,
            hypothesis: None,
            position: 0,
            rows: 2,
            columns: 2,
            stride: 3,
            data: &data,
        };
        assert_eq!(view.iter().collect::<Vec<_>>(), [[1.0, 2.0], [3.0, 4.0]]);
        assert!(view.row(2).is_empty() && view.row(usize::MAX).is_empty());
    }
}
