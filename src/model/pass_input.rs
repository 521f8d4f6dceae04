//! The input of one pass through a stack: tokens, their hypotheses or sentences, and the workspace.

use crate::input_features::Features;
use core::ops::Range;
use simdformer_kernels::Bias;
use simdformer_kernels::relative::RelativeBuckets;

/// The tokens of a pass, as the embedding reads them.
#[derive(Clone, Copy)]
pub(crate) struct Tokens<'p> {
    /// Empty if the encoder reads features.
    pub(crate) ids: &'p [u32],
    /// Position of each token in its sequence.
    pub(crate) positions: &'p [u32],
    /// Position embeddings, `[positions, d_model]`.
    pub(crate) position_table: &'p [f32],
}

/// The relative position biases of self-attention scores, by distance from query to key. Written when a session
/// is created: one table for all layers, or one for each.
#[derive(Clone, Copy, Default)]
pub(crate) struct Relative<'p> {
    /// The tables, [`RelativeBuckets::table_len`] floats each; empty if there is no bias.
    pub(crate) tables: &'p [f32],
    /// Floats from one layer's table to the next; 0 if all layers share one.
    pub(crate) layer_stride: usize,
    /// The buckets of the tables, and the number of positions.
    pub(crate) buckets: Option<(RelativeBuckets, usize)>,
}

impl<'p> Relative<'p> {
    /// The bias of layer `layer`.
    pub(crate) fn of_layer(&self, layer: usize) -> Option<Bias<'p>> {
        let (buckets, positions) = self.buckets?;
        Some(buckets.bias(positions, self.tables.get(layer * self.layer_stride..)?))
    }
}

/// A pass through the encoder: the concatenated tokens of whole sentences.
#[derive(Clone, Copy)]
pub(crate) struct SourcePass<'p> {
    pub(crate) tokens: Tokens<'p>,
    /// The features of each sentence, if the encoder reads features.
    pub(crate) features: &'p [Features<'p>],
    /// The length of each sentence, in positions.
    pub(crate) lengths: &'p [u32],
    pub(crate) relative: Relative<'p>,
    /// Sentence slots that store the encoder output; `None` if it is not stored.
    pub(crate) slots: Option<&'p [u32]>,
}

/// A pass through the decoder.
#[derive(Clone, Copy)]
pub(crate) struct TargetPass<'p> {
    pub(crate) tokens: Tokens<'p>,
    /// The hypothesis that each token continues.
    pub(crate) hypotheses: &'p [u32],
    /// KV slot of each token's key and value.
    pub(crate) slots: &'p [u32],
    /// Sentence slot of each token.
    pub(crate) sentences: &'p [u32],
    /// Source length of each sentence slot.
    pub(crate) source_lens: &'p [u32],
    pub(crate) past: Past<'p>,
    pub(crate) relative: Relative<'p>,
}

/// The earlier tokens of a pass in the KV cache.
#[derive(Clone, Copy)]
pub(crate) enum Past<'p> {
    /// Token `r` attends to `lens[r]` keys; key `j` is in slot `ancestry[r * stride + j]`. With a stride of 0 all
    /// tokens continue one hypothesis.
    SlotTable { lens: &'p [u32], ancestry: &'p [u32], stride: usize },
    /// The tokens are consecutive in one slot that holds all their earlier tokens.
    Slot { slot: usize, len: usize },
}

/// The sentences or hypotheses of the tokens of a pass.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'p> {
    /// Concatenated whole sources; without slots, sentence `i` is source `i`.
    Source { lengths: &'p [u32], slots: Option<&'p [u32]> },
    /// Token `i` is position `positions[i]` of hypothesis `hypotheses[i]` of sentence `sentences[i]`.
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
    /// The rows of a range of target tokens; all rows of a source.
    pub(crate) fn select_tokens(self, tokens: Range<usize>) -> Self {
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

/// Workspace of a stack for a pass of `rows` tokens. The output of a block stays until the next block.
pub(crate) struct Workspace<'w> {
    /// `[rows, d_model]`: the residual stream; at the end the output of the stack.
    pub(crate) x: &'w mut [f32],
    /// `[rows, d_model]`: the second operand of an "Add & Norm".
    pub(crate) h: &'w mut [f32],
    /// `[rows, d_model]`: the concatenated outputs of the heads.
    pub(crate) context: &'w mut [f32],
    /// `[rows, 3 d_model]`: query, key and value; in cross-attention `[rows, d_model]`, the query.
    pub(crate) qkv: &'w mut [f32],
    /// `[min(rows, FEED_FORWARD_ROWS), ffn_dim]`.
    pub(crate) hidden: &'w mut [f32],
    /// Scratch for the encoder's attention kernel; the decoder needs none.
    pub(crate) scratch: &'w mut [f32],
    /// [`conv_floats`](super::blocks::conv_floats) elements, for encoders with convolutions.
    pub(crate) frames: &'w mut [f32],
    /// Buffer for quantized activations.
    pub(crate) rounded: &'w mut [f32],
}
