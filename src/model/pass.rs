//! What goes through a stack in one pass: tokens, whose they are, and the memory to work in.

use crate::features::Features;
use core::ops::Range;
use simdformer_kernels::Bias;
use simdformer_kernels::relative::RelativeBuckets;

/// The tokens of a pass as the embedding reads them.
#[derive(Clone, Copy)]
pub(crate) struct Tokens<'p> {
    /// None where the encoder reads features.
    pub(crate) ids: &'p [u32],
    /// Position of each in its sequence.
    pub(crate) positions: &'p [u32],
    /// Row `p` is added at position `p`, `[positions, d_model]`.
    pub(crate) position_table: &'p [f32],
}

/// What is added to the scores of self-attention for the distance from query to key, written when a
/// session is made: a table for all layers, or one for each.
#[derive(Clone, Copy, Default)]
pub(crate) struct Relative<'p> {
    /// Of [`RelativeBuckets::table_len`] floats each; empty where nothing is added.
    pub(crate) tables: &'p [f32],
    /// Floats from one layer's table to the next; 0 for one for all.
    pub(crate) layer_stride: usize,
    /// What the tables were made with, and for how many positions.
    pub(crate) buckets: Option<(RelativeBuckets, usize)>,
}

impl<'p> Relative<'p> {
    /// The bias of layer `layer`.
    pub(crate) fn of_layer(&self, layer: usize) -> Option<Bias<'p>> {
        let (buckets, positions) = self.buckets?;
        Some(buckets.bias(positions, self.tables.get(layer * self.layer_stride..)?))
    }
}

/// A pass through the encoder: the tokens of whole sentences laid end to end.
#[derive(Clone, Copy)]
pub(crate) struct SourcePass<'p> {
    pub(crate) tokens: Tokens<'p>,
    /// Of each sentence, where the encoder reads them.
    pub(crate) features: &'p [Features<'p>],
    /// Of each sentence, in positions.
    pub(crate) lengths: &'p [u32],
    pub(crate) relative: Relative<'p>,
    /// Sentence slots that are to keep the memory; none if nothing is kept.
    pub(crate) slots: Option<&'p [u32]>,
}

/// A pass through the decoder.
#[derive(Clone, Copy)]
pub(crate) struct TargetPass<'p> {
    pub(crate) tokens: Tokens<'p>,
    /// The hypothesis that each token continues.
    pub(crate) hypotheses: &'p [u32],
    /// Slot that keeps each token's key and value.
    pub(crate) slots: &'p [u32],
    /// Sentence slot of each token.
    pub(crate) sentences: &'p [u32],
    /// Source length of each sentence slot.
    pub(crate) source_lens: &'p [u32],
    pub(crate) past: Past<'p>,
    pub(crate) relative: Relative<'p>,
}

/// Where the past of the tokens of a pass is.
#[derive(Clone, Copy)]
pub(crate) enum Past<'p> {
    /// Token `r` sees `lens[r]` keys, key `j` in slot `ancestry[r * stride + j]`. With a stride of 0 all
    /// tokens continue one hypothesis.
    SlotTable { lens: &'p [u32], ancestry: &'p [u32], stride: usize },
    /// The tokens follow each other in one slot that holds their whole past.
    Slot { slot: usize, len: usize },
}

/// Whose rows the tokens of a pass are.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'p> {
    /// Whole sources laid end to end; without slots, sentence `i` is source `i`.
    Source { lengths: &'p [u32], slots: Option<&'p [u32]> },
    /// Token `i` is position `positions[i]` of hypothesis `hypotheses[i]` about sentence
    /// `sentences[i]`.
    Target { hypotheses: &'p [u32], sentences: &'p [u32], positions: &'p [u32] },
}

/// Rows in a layer.
#[derive(Clone, Copy)]
pub(crate) struct At<'p> {
    pub(crate) rows: Rows<'p>,
    pub(crate) layer: usize,
}

impl<'p> SourcePass<'p> {
    pub(crate) fn rows(&self) -> Rows<'p> {
        Rows::Source { lengths: self.lengths, slots: self.slots }
    }

    pub(crate) fn at(&self, layer: usize) -> At<'p> {
        At { rows: self.rows(), layer }
    }
}

impl<'p> TargetPass<'p> {
    pub(crate) fn rows(&self) -> Rows<'p> {
        let &Self { hypotheses, sentences, tokens: Tokens { positions, .. }, .. } = self;
        Rows::Target { hypotheses, sentences, positions }
    }

    pub(crate) fn at(&self, layer: usize) -> At<'p> {
        At { rows: self.rows(), layer }
    }
}

impl Rows<'_> {
    /// Those of some tokens of a target; all of a source.
    pub(crate) fn of(self, tokens: Range<usize>) -> Self {
        match self {
            Self::Target { hypotheses, sentences, positions } => Self::Target {
                hypotheses: &hypotheses[tokens.clone()],
                sentences: &sentences[tokens.clone()],
                positions: &positions[tokens],
            },
            source @ Self::Source { .. } => source,
        }
    }
}

/// Memory of a stack for a pass of `rows` tokens. What a block has written stays until the next block.
pub(crate) struct Workspace<'w> {
    /// `[rows, d_model]`: the residual stream, and in the end the stack's output.
    pub(crate) x: &'w mut [f32],
    /// `[rows, d_model]`: the other half of an "Add & Norm".
    pub(crate) h: &'w mut [f32],
    /// `[rows, d_model]`: what the heads found, side by side.
    pub(crate) context: &'w mut [f32],
    /// `[rows, 3 d_model]`: query, key and value; in cross-attention `[rows, d_model]`, the query.
    pub(crate) qkv: &'w mut [f32],
    /// `[min(rows, FEED_FORWARD_ROWS), ffn_dim]`.
    pub(crate) hidden: &'w mut [f32],
    /// For the attention kernel of the encoder; the decoder needs none.
    pub(crate) scratch: &'w mut [f32],
    /// Of [`stem_floats`](super::blocks::stem_floats), for the convolutions of an encoder that has them.
    pub(crate) frames: &'w mut [f32],
    /// For rows that are multiplied with bytes.
    pub(crate) rounded: &'w mut [f32],
}
