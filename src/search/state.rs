//! Everything a search remembers, laid out in the caller's words.

use super::options::{SearchLimits, SearchOptions, Strategy};
use super::processors::scratch_words;

/// Rows that are filtered at once, at most: each needs scratch of two words a score.
const SCRATCHES: usize = 4;

/// Words before the lists of a result.
pub(super) const HEAD: usize = 3;

/// Words of the result of a row: what it is, two numbers, the scores of the best continuations, these.
pub(super) fn result_words(candidates: usize) -> Option<usize> {
    candidates.checked_mul(2)?.checked_add(HEAD)
}

/// The numbers that decide how much memory there is and what lies where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Sentence slots.
    pub(super) sentences: usize,
    /// Sequence slots of one sentence.
    pub(super) width: usize,
    /// Groups of beams.
    pub(super) groups: usize,
    /// Candidates that one group looks at in one step.
    pub(super) candidates: usize,
    /// Longest history.
    pub(super) target: usize,
    /// Scores in a row.
    pub(super) vocabulary: usize,
    /// Longest source.
    pub(super) source: usize,
}

impl Shape {
    /// What the limits allow at most.
    pub(super) fn of_limits(limits: &SearchLimits) -> Self {
        Self {
            sentences: limits.sentences,
            width: limits.sequences,
            groups: limits.sequences,
            candidates: candidates(limits.end_tokens, limits.sequences),
            target: limits.max_target_length,
            vocabulary: limits.vocabulary,
            source: limits.source_tokens,
        }
    }

    /// What these options need under the limits they were checked against.
    pub(super) fn of_options(options: &SearchOptions, limits: &SearchLimits) -> Self {
        let width = options.sequences();
        let groups = match &options.strategy {
            Strategy::Beam(beam) => beam.groups,
            _ => 1,
        };
        Self {
            width,
            groups,
            candidates: candidates(options.eos.len(), width / groups),
            ..Self::of_limits(limits)
        }
    }

    /// Words that the processors of one row work in.
    pub(super) fn scratch_words(&self) -> usize {
        scratch_words(self.vocabulary, self.target.max(self.source))
    }

    /// How often these words are there.
    fn scratches(&self) -> usize {
        SCRATCHES.min(self.sentences.saturating_mul(self.width))
    }

    /// Beams of one group.
    pub(super) fn group_width(&self) -> usize {
        self.width / self.groups
    }
}

/// Enough that a full set of beams is left when every end token of every beam is among the best.
fn candidates(end_tokens: usize, beams: usize) -> usize {
    end_tokens.saturating_add(1).max(2).saturating_mul(beams)
}

fn product(factors: &[usize]) -> Option<usize> {
    factors.iter().try_fold(1usize, |total, &factor| total.checked_mul(factor))
}

/// One list of fields gives the struct, its size and how it is carved, so these cannot drift apart.
macro_rules! memory {
    ($shape:ident; $($(#[$doc:meta])* $name:ident: $word:ty = $size:expr;)*) => {
        /// Fields named by what they hold; `[s]` is per sentence, `[s][b]` per sequence slot.
        pub(super) struct Memory<'a> {
            $($(#[$doc])* pub(super) $name: &'a mut [$word],)*
        }

        impl<'a> Memory<'a> {
            /// Words of all fields; `None` if they cannot be addressed.
            pub(super) fn words($shape: &Shape) -> Option<usize> {
                let mut total = 0usize;
                $(total = total.checked_add(product(&$size)?)?;)*
                Some(total)
            }

            /// Splits `words`; `None` if there are too few.
            pub(super) fn carve($shape: &Shape, words: &'a mut [u32]) -> Option<Self> {
                $(
                    let ($name, words) = words.split_at_mut_checked(product(&$size)?)?;
                    let $name = bytemuck::cast_slice_mut::<u32, $word>($name);
                )*
                let _ = words;
                Some(Self { $($name),* })
            }
        }
    };
}

memory! { shape;
    /// `[s]` one of [`super::search`]'s phase codes.
    phase: u32 = [shape.sentences];
    /// `[s]` tokens given: decoder start and prefix.
    prompt_len: u32 = [shape.sentences];
    /// `[s]` tokens in the histories, the one to be fed next included.
    len: u32 = [shape.sentences];
    /// `[s]` longest history of this sentence.
    max_len: u32 = [shape.sentences];
    /// `[s]` low and high word of the random stream.
    stream_low: u32 = [shape.sentences];
    /// See `stream_low`.
    stream_high: u32 = [shape.sentences];
    /// `[s]` first token to force, or [`super::search::NONE`].
    forced_bos: u32 = [shape.sentences];
    /// `[s]` tokens of the source that the options look at.
    source_len: u32 = [shape.sentences];
    /// `[s][source]` these tokens.
    source: u32 = [shape.sentences, shape.source];
    /// `[s]` generated tokens already streamed (beam search).
    emitted: u32 = [shape.sentences];
    /// `[s]` index of its first row in this step.
    first_row: u32 = [shape.sentences];
    /// `[s]` how many rows it has in this step.
    row_count: u32 = [shape.sentences];
    /// `[s]` tokens of a draft, which lie after the history.
    draft_len: u32 = [shape.sentences];

    /// `[s][b][target]` tokens of a live or, in greedy search and sampling, finished sequence.
    history: u32 = [shape.sentences, shape.width, shape.target];
    /// `[s][b]` sum of log-probabilities.
    score: f32 = [shape.sentences, shape.width];
    /// `[s][b]` tokens in the history of a sequence of greedy search or sampling.
    sequence_len: u32 = [shape.sentences, shape.width];
    /// `[s][b]` 1 for sequences that continue.
    alive: u32 = [shape.sentences, shape.width];
    /// `[s][b]` row of this step that the sequence reads.
    row: u32 = [shape.sentences, shape.width];
    /// `[s][b]` row of the last step that the sequence continues.
    parent: u32 = [shape.sentences, shape.width];

    /// `[s][b][target]` finished hypotheses of beam search.
    finished: u32 = [shape.sentences, shape.width, shape.target];
    /// `[s][b]` their scores.
    finished_score: f32 = [shape.sentences, shape.width];
    /// `[s][b]` their lengths, prompt included.
    finished_len: u32 = [shape.sentences, shape.width];
    /// `[s][b]` places in the group, best score first; over all groups once the sentence is done.
    order: u32 = [shape.sentences, shape.width];
    /// `[s][g]` how many hypotheses the group has.
    finished_count: u32 = [shape.sentences, shape.groups];
    /// `[s][g]` 1 for groups that are done.
    group_done: u32 = [shape.sentences, shape.groups];

    /// `[b][target]` histories of the next step while it is being made.
    next_history: u32 = [shape.width, shape.target];
    /// `[b]` the slot continued, or [`super::search::NONE`].
    next_parent: u32 = [shape.width];
    /// `[b]` the token added.
    next_token: u32 = [shape.width];
    /// `[b]` the score.
    next_score: f32 = [shape.width];
    /// `[b]` what is taken off the scores of a beam's row to make log-probabilities of them: its
    /// largest, then the logarithm of its sum; both 0 where the row holds log-probabilities.
    row_max: f32 = [shape.width];
    /// See `row_max`.
    row_log_sum: f32 = [shape.width];
    /// Candidates of one group, best first.
    candidate_score: f32 = [shape.candidates];
    /// Slot times vocabulary plus token.
    candidate: u32 = [shape.candidates];

    /// Rows of this step, in the order of the logits.
    row_sentence: u32 = [shape.sentences, shape.width];
    /// See `row_sentence`.
    row_token: u32 = [shape.sentences, shape.width];
    /// See `row_sentence`.
    row_parent: u32 = [shape.sentences, shape.width];
    /// See `row_sentence`.
    row_position: u32 = [shape.sentences, shape.width];

    /// Scores of this step before those of each row: one row for each that comes before it, and one for each
    /// token of their drafts.
    row_start: u32 = [shape.sentences, shape.width];

    /// `[row]` what has been found out about it beforehand; see [`super::parallel`].
    prepared: u32 = [shape.sentences, shape.width, result_words(shape.candidates)?];
    /// For processors and draws of as many threads.
    scratch: u32 = [shape.scratches(), shape.scratch_words()];
}

impl Memory<'_> {
    /// The source of sentence `s`, as far as a rule looks at it.
    pub(super) fn source(&self, shape: &Shape, s: usize) -> &[u32] {
        &self.source[s * shape.source..][..self.source_len[s] as usize]
    }
}
