//! The buffers of a session and of its decoding loop: each is declared once, with its type and its size.

use super::limits::Limits;
use crate::model::blocks::FEED_FORWARD_ROWS;

/// The sizes from which the buffers are planned.
pub(crate) struct Sizes {
    pub(crate) limits: Limits,
    /// Hypotheses of all sentences.
    pub(crate) rows: usize,
    /// Tokens of one step, with draft tokens.
    pub(crate) fed: usize,
    /// Tokens of one pass.
    pub(crate) pass: usize,
    pub(crate) d_model: usize,
    /// Width of all heads.
    pub(crate) attention: usize,
    pub(crate) ffn: usize,
    pub(crate) vocabulary: usize,
    /// Rows of the position tables.
    pub(crate) source_positions: usize,
    pub(crate) target_positions: usize,
    /// Floats of the tables of relative positions.
    pub(crate) source_relative: usize,
    pub(crate) target_relative: usize,
    /// Floats of the caches of all layers.
    pub(crate) own_cache: usize,
    pub(crate) cross_cache: usize,
    /// Floats of other buffers.
    pub(crate) frames: usize,
    pub(crate) rounded: usize,
    pub(crate) attention_scratch: usize,
    pub(crate) best_scratch: usize,
    /// Rows of logits.
    pub(crate) logits: usize,
    /// Words of the search.
    pub(crate) search: usize,
    /// Draft tokens of one step, and the sentences that can have drafts.
    pub(crate) drafted: usize,
    pub(crate) drafting: usize,
}

crate::memory::arena! {
    /// The buffers in which a session computes.
    pub(crate) struct SessionRanges, SessionBuffers(size: &Sizes) {
        "keys and values of the targets" {
            /// See [`Caches`](crate::kv::Caches).
            own_cache: f32 = [size.own_cache];
        }
        "keys and values of the sources" {
            /// See [`Caches`](crate::kv::Caches).
            cross_cache: f32 = [size.cross_cache];
        }
        "positions" {
            /// `[positions, d_model]`.
            source_positions: f32 = [size.source_positions, size.d_model];
            /// `[positions, d_model]`.
            target_positions: f32 = [size.target_positions, size.d_model];
            /// `[layers or 1, heads, distances]`: the biases of relative positions.
            source_relative: f32 = [size.source_relative];
            /// As `source_relative`.
            target_relative: f32 = [size.target_relative];
        }
        "activations of one pass" {
            /// `[pass, d_model]`; these five are described in [`Workspace`](crate::model::pass_input::Workspace).
            x: f32 = [size.pass, size.d_model];
            /// `[pass, d_model]`.
            h: f32 = [size.pass, size.d_model];
            /// `[pass, attention]`.
            context: f32 = [size.pass, size.attention];
            /// `[pass, 3 attention]`.
            qkv: f32 = [size.pass, 3, size.attention];
            /// `[min(pass, FEED_FORWARD_ROWS), ffn]`.
            hidden: f32 = [size.pass.min(FEED_FORWARD_ROWS), size.ffn];
        }
        "frames of features" {
            /// The input of the convolutions.
            frames: f32 = [size.frames];
        }
        "quantized activations" {
            /// Quantized input rows of int8 products.
            rounded: f32 = [size.rounded];
        }
        "scratch of attention" {
            /// Of the encoder.
            attention_scratch: f32 = [size.attention_scratch];
        }
        "logits" {
            /// `[fed, vocabulary]`.
            logits: f32 = [size.logits, size.vocabulary];
        }
        "pruned argmax" {
            /// `[fed]`: the best token of each row.
            best_tokens: u32 = [size.fed];
            /// `[fed]`: its logit.
            best_values: f32 = [size.fed];
            /// Scratch of the kernel.
            best_scratch: f32 = [size.best_scratch];
        }
        "tokens, slots and lengths" {
            /// `[pass]`: the tokens of a pass.
            tokens: u32 = [size.pass];
            /// `[pass]`: the position of each token.
            positions: u32 = [size.pass];
            /// `[pass]`: the slot of the hypothesis that each token continues.
            hypotheses: u32 = [size.pass];
            /// `[pass]`: the KV slot of each token; in the encoder, the length of each source.
            slots: u32 = [size.pass];
            /// `[pass]`: the sentence slot of each token.
            sentences: u32 = [size.pass];
            /// `[pass]`: the number of keys that each token sees.
            key_counts: u32 = [size.pass];
            /// `[fed, target_tokens]`: the slots of these keys.
            key_slots: u32 = [size.fed, size.limits.target_tokens];
            /// `[rows]` and `[rows, target_tokens]`: see [`KvSlots`](crate::kv::KvSlots).
            hypothesis_lens: u32 = [size.rows];
            /// See `hypothesis_lens`.
            slot_table: u32 = [size.rows, size.limits.target_tokens];
            /// `[rows, 2]`: the generation numbers of hypotheses.
            hypothesis_generations: u32 = [size.rows, 2];
            /// `[sentences]`: the length of the source, 0 for a free slot.
            source_lens: u32 = [size.limits.sentences];
            /// `[sentences, 2]`: the generation numbers of sentences.
            sentence_generations: u32 = [size.limits.sentences, 2];
        }
    }
}

/// Words of the state of a draft length, see `generate/speculative/draft_length.rs`.
pub(crate) const DRAFT_LENGTH_WORDS: usize = 3;

crate::memory::arena! {
    /// The buffers of the decoding loop. A slot of the search is `[sentences]`, a hypothesis slot of the session
    /// `[rows]`.
    pub(crate) struct LoopRanges, LoopBuffers(size: &Sizes) {
        /// The memory of the search.
        search: u32 = [size.search];
        /// `[rows]`: the hypothesis slots of the search's rows in this step.
        now: u32 = [size.rows];
        /// `[rows]`: the same for the last step.
        before: u32 = [size.rows];
        /// `[rows]`: for each row of the last step, the number of its children.
        children: u32 = [size.rows];
        /// `[sentences]`: for each slot of the search, the index of its source.
        source_of: u32 = [size.limits.sentences];
        /// `[sentences]`: in a call that serves a queue, the lower half of the number of the request in each slot.
        request_of: u32 = [size.limits.sentences];
        /// `[sentences]`: the sentence slot of that source.
        sentence_of: u32 = [size.limits.sentences];
        /// `[sentences]`: the hypothesis slot of its first row.
        first_row: u32 = [size.limits.sentences];
        /// `[draft_tokens]`: the tokens of new drafts.
        draft: u32 = [size.drafted];
        /// `[sentences]`, if there are drafts: the length of the draft of each slot of the search in this step.
        draft_lens: u32 = [size.drafting];
        /// `[sentences, DRAFT_LENGTH_WORDS]`, if there are drafts.
        draft_length_states: u32 = [size.drafting, DRAFT_LENGTH_WORDS];
    }
}
