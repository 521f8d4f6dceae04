//! The state of a search, in one slice of the caller's words, and the part of it that a sentence uses.

use super::limits::SearchLimits;
use super::options::{SearchOptions, Strategy};
use crate::ref_or_arc::RefOrArc;
use core::ops::Range;

/// Maximum number of rows that are filtered at the same time. Each needs scratch of two words per score.
const SCRATCHES: usize = 4;

/// Words before the lists in a result.
pub(super) const HEAD: usize = 3;

/// Words of the result of a row: a state, two numbers, and the scores and ids of the best continuations.
pub(super) const fn result_words(candidates: usize) -> usize {
    candidates.saturating_mul(2).saturating_add(HEAD)
}

/// The sizes of the memory that follow from the limits.
impl SearchLimits {
    /// Candidates that one group of beams examines in one step.
    pub(super) fn candidates(&self) -> usize {
        candidates(self.end_tokens, self.sequences)
    }

    /// Words of scratch that are enough for every rule and filter of one row.
    pub(super) fn scratch_words(&self) -> usize {
        let longest = self.max_target_length.max(self.source_tokens);
        self.vocabulary.saturating_mul(2).max(longest)
    }

    /// Number of scratch buffers.
    fn scratches(&self) -> usize {
        SCRATCHES.min(self.sentences.saturating_mul(self.sequences))
    }
}

/// The number of candidates. It leaves one continuation per beam even if every end token of every beam is among
/// the best.
pub(super) fn candidates(end_tokens: usize, beams: usize) -> usize {
    end_tokens.saturating_add(1).max(2).saturating_mul(beams)
}

crate::memory::arena! {
    /// The fields are described by their contents; `[s]` is per sentence, `[s][b]` per sequence slot.
    pub(super) struct MemoryRanges, Memory(limits: &SearchLimits) {
        /// `[s]` one of the phase codes of [`super::search`].
        phase: u32 = [limits.sentences];
        /// `[s]` tokens of the prompt: decoder start and prefix.
        prompt_len: u32 = [limits.sentences];
        /// `[s]` tokens in the histories, including the token to feed next.
        len: u32 = [limits.sentences];
        /// `[s]` maximum history length of this sentence.
        max_len: u32 = [limits.sentences];
        /// `[s]` low and high word of the random stream.
        stream_low: u32 = [limits.sentences];
        /// See `stream_low`.
        stream_high: u32 = [limits.sentences];
        /// `[s]` first token to force, or [`super::search::NONE`].
        forced_bos: u32 = [limits.sentences];
        /// `[s]` number of source tokens.
        source_len: u32 = [limits.sentences];
        /// `[s][source]` source tokens, if an option reads them.
        source: u32 = [limits.sentences, limits.source_tokens];
        /// `[s]` generated tokens already streamed (beam search).
        emitted: u32 = [limits.sentences];
        /// `[s]` index of its first row in this step.
        first_row: u32 = [limits.sentences];
        /// `[s]` number of its rows in this step.
        row_count: u32 = [limits.sentences];
        /// `[s]` number of draft tokens, which are stored after the history.
        draft_len: u32 = [limits.sentences];

        /// `[s][b][target]` tokens of an active sequence; in greedy search and sampling also of a finished one.
        history: u32 = [limits.sentences, limits.sequences, limits.max_target_length];
        /// `[s][b]` sum of log-probabilities.
        score: f32 = [limits.sentences, limits.sequences];
        /// `[s][b]` tokens in the history of a sequence (greedy search and sampling).
        sequence_len: u32 = [limits.sentences, limits.sequences];
        /// `[s][b]` 1 for sequences that continue.
        alive: u32 = [limits.sentences, limits.sequences];
        /// `[s][b]` row of this step that the sequence reads.
        row: u32 = [limits.sentences, limits.sequences];
        /// `[s][b]` row of the previous step that the sequence continues.
        parent: u32 = [limits.sentences, limits.sequences];

        /// `[s][b][target]` finished hypotheses of beam search.
        finished: u32 = [limits.sentences, limits.sequences, limits.max_target_length];
        /// `[s][b]` scores of the finished hypotheses.
        finished_score: f32 = [limits.sentences, limits.sequences];
        /// `[s][b]` lengths of the finished hypotheses, prompt included.
        finished_len: u32 = [limits.sentences, limits.sequences];
        /// `[s][b]` indices of finished hypotheses in the group, best score first; over all groups after the sentence
        /// is done.
        order: u32 = [limits.sentences, limits.sequences];
        /// `[s][g]` number of finished hypotheses of the group.
        finished_count: u32 = [limits.sentences, limits.sequences];
        /// `[s][g]` 1 for groups that are done.
        group_done: u32 = [limits.sentences, limits.sequences];

        /// `[b][target]` histories of the next step during its construction.
        next_history: u32 = [limits.sequences, limits.max_target_length];
        /// `[b]` the beam to continue, or [`super::search::NONE`].
        next_parent: u32 = [limits.sequences];
        /// `[b]` the token to append.
        next_token: u32 = [limits.sequences];
        /// `[b]` the score of the continuation.
        next_score: f32 = [limits.sequences];
        /// `[b]` numbers to subtract from a beam's logits to get log-probabilities: the maximum here, the log-sum in
        /// `row_log_sum`. Both are 0 if the row already holds log-probabilities.
        row_max: f32 = [limits.sequences];
        /// See `row_max`.
        row_log_sum: f32 = [limits.sequences];
        /// Candidates of one group, best first.
        candidate_score: f32 = [limits.candidates()];
        /// Slot times vocabulary plus token.
        candidate: u32 = [limits.candidates()];

        /// Rows of this step, in the order of the logits.
        row_sentence: u32 = [limits.sentences, limits.sequences];
        /// See `row_sentence`.
        row_token: u32 = [limits.sentences, limits.sequences];
        /// See `row_sentence`.
        row_parent: u32 = [limits.sentences, limits.sequences];
        /// See `row_sentence`.
        row_position: u32 = [limits.sentences, limits.sequences];

        /// `[row]` index of the row's first line of logits: one line for each row before it, and one for each token of
        /// their drafts.
        row_start: u32 = [limits.sentences, limits.sequences];

        /// `[row]` results of [`super::parallel_rows`].
        prepared: u32 = [limits.sentences, limits.sequences, result_words(limits.candidates())];
        /// Scratch for processors and sampling, one buffer for each thread.
        scratch: u32 = [limits.scratches(), limits.scratch_words()];
    }
}

impl Memory<'_> {
    /// The source of sentence `s`; empty if no rule reads it.
    pub(super) fn source(&self, limits: &SearchLimits, s: usize) -> &[u32] {
        &self.source[s * limits.source_tokens..][..self.source_len[s] as usize]
    }
}

/// The options of one sentence. Those that outlive the search are borrowed; those of a request that arrives during the
/// search are shared.
pub(crate) type SlotOptions<'o> = RefOrArc<'o, SearchOptions>;

/// An empty vector in the memory of `slots`, for options of another lifetime. A vector that is collected from its own
/// iterator keeps its memory; the tests that count allocations would fail otherwise.
pub(super) fn reuse_memory<'o>(mut slots: Vec<SlotOptions<'_>>) -> Vec<SlotOptions<'o>> {
    slots.clear();
    slots.into_iter().map_while(|_| None).collect()
}

/// Where a session keeps the memory of the options of its slots between two calls.
pub(crate) enum SlotMemory<'a> {
    Owned(Vec<SlotOptions<'static>>),
    /// That of the session from which a traced one was made.
    Borrowed(&'a mut Vec<SlotOptions<'static>>),
}

impl SlotMemory<'_> {
    pub(crate) fn vec_mut(&mut self) -> &mut Vec<SlotOptions<'static>> {
        match self {
            Self::Owned(slots) => slots,
            Self::Borrowed(slots) => slots,
        }
    }
}

/// A sentence slot, its options, and the part of its memory that they use. Memory has the shape of the limits, so that
/// sentences with different options stand side by side.
#[derive(Clone, Copy)]
pub(super) struct Slot<'o> {
    /// Its index.
    pub(super) s: usize,
    pub(super) options: &'o SearchOptions,
    /// Index of its first sequence slot, and of its first group of beams: there are as many places for groups.
    pub(super) first: usize,
    /// Its sequences.
    pub(super) width: usize,
    /// Its groups of beams.
    pub(super) groups: usize,
}

impl<'o> Slot<'o> {
    pub(super) fn new(s: usize, options: &'o SearchOptions, limits: &SearchLimits) -> Self {
        let width = options.sequences();
        let groups = match &options.strategy {
            Strategy::Beam(beam) => beam.groups,
            _ => 1,
        };
        Self { s, options, first: s.saturating_mul(limits.sequences), width, groups }
    }

    /// Its sequence slots.
    pub(super) fn sequences(&self) -> Range<usize> {
        self.first..self.first + self.width
    }

    /// Beams of one group.
    pub(super) fn group_width(&self) -> usize {
        self.width / self.groups
    }

    /// Candidates that one group examines in one step.
    pub(super) fn candidates(&self) -> usize {
        candidates(self.options.eos.len(), self.group_width())
    }
}
