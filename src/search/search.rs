//! The state machine: it admits sentences, returns rows, takes logits and stores the finished hypotheses.

use core::fmt;
use core::ops::ControlFlow;

use super::hooks::{Hooks, OnToken, Token};
use super::limits::{SearchLimits, too_few_words, wrong_length, wrong_state};
use super::options::{SearchOptions, Strategy};
use super::request::Request;
use super::state::{Memory, MemoryRanges, Slot, SlotOptions, reuse_memory};
use crate::error::{Error, ErrorValue};
use crate::ref_or_arc::RefOrArc;

/// Marks a missing token, row or slot.
pub(super) const NONE: u32 = u32::MAX;

/// The phase of a free slot. That of a finished sentence is [`FINISHED`] and its [`Finish`].
const VACANT: u32 = 0;
pub(super) const ACTIVE: u32 = 1;
const FINISHED: u32 = 2;

/// Why a sentence is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// An end token came, or beam search could not improve its hypotheses.
    End,
    /// At least one sequence reached the maximum length.
    Length,
    /// The caller stopped it.
    Stopped,
    /// No token was allowed to come next.
    Exhausted,
    /// A score of this sentence was NaN or `+inf` after all processors. The hypotheses contain the tokens that were
    /// chosen before.
    NotFinite,
}

impl Finish {
    const ALL: [Self; 5] =
        [Self::End, Self::Length, Self::Stopped, Self::Exhausted, Self::NotFinite];
}

/// The operand of errors of planned memory.
const MEMORY: &str = "the memory for the limits of the search";

/// A finished sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hypothesis<'s> {
    /// Generated tokens: without decoder start and prefix, with the end token if there is one.
    pub tokens: &'s [u32],
    /// Natural logarithm; higher is better. Beam search: `sum log p / n^length_penalty` over processed
    /// log-probabilities, where `n` is the number of [`tokens`](Self::tokens). Greedy search and sampling: the sum
    /// of the log-softmax of the processed scores. NaN in greedy search without [`SearchOptions::scores`].
    pub score: f32,
}

/// A search over any number of sentences. See the [module](super) for the loop around it, and
/// [`Session`](crate::Session) for the loop with a model.
pub struct Search<'a> {
    /// The options of sentences without their own.
    pub(super) options: &'a SearchOptions,
    /// `[sentences]`: the options of each slot.
    pub(super) slots: Vec<SlotOptions<'a>>,
    pub(super) limits: SearchLimits,
    pub(super) memory: Memory<'a>,
    /// Scratch for processors and sampling.
    pub(super) scratch: &'a mut [u32],
    /// `[rows]` results of [`super::parallel_rows`] for each row, valid if `prepared` is true.
    pub(super) results: &'a mut [u32],
    pub(super) prepared: bool,
    pub(super) rows: usize,
    /// Rows of logits: one for each row, and one for each token of a draft.
    pub(super) scored_rows: usize,
    /// The sentence that caused the last error.
    failed: Option<u32>,
}

impl fmt::Debug for Search<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search").field("rows", &self.rows().len()).finish_non_exhaustive()
    }
}

/// The number of 4-byte words that any search within the limits needs.
///
/// # Errors
/// [`Error::InvalidOption`] for a limit of 0, [`Error::OutOfMemory`] if the memory cannot be addressed or an
/// index does not fit in 32 bits.
pub fn words(limits: &SearchLimits) -> Result<usize, Error> {
    limits.validate()?;
    // Rows, sentences, lengths and candidates (slot times vocabulary plus token) are u32.
    let index = limits.sequences.checked_mul(limits.vocabulary);
    let rows = limits.sequences.checked_mul(limits.sentences);
    let small = [index, rows, Some(limits.max_target_length)];
    if small.into_iter().any(|n| n.is_none_or(|n| n >= NONE as usize)) {
        return Err(Error::too_large(MEMORY));
    }
    Ok(MemoryRanges::new(limits).map_err(Error::of_memory(MEMORY))?.len())
}

impl<'a> Search<'a> {
    /// Creates a search with all sentence slots free. `memory` has at least [`words`]`(limits)` words. `options` are
    /// those of every sentence without [its own](Self::admit_with). Allocates a pointer for each slot.
    ///
    /// # Errors
    /// As [`words`] and [`SearchOptions::validate`]; [`Error::InvalidInput`] if `memory` is too short.
    pub fn new(
        options: &'a SearchOptions,
        limits: &SearchLimits,
        memory: &'a mut [u32],
    ) -> Result<Self, Error> {
        Self::with_slots(options, limits, memory, Vec::new())
    }

    /// [`Self::new`] in the memory of `slots`, which does not grow if it has space for the slots of the limits.
    pub(crate) fn with_slots(
        options: &'a SearchOptions,
        limits: &SearchLimits,
        memory: &'a mut [u32],
        mut slots: Vec<SlotOptions<'a>>,
    ) -> Result<Self, Error> {
        let expected = words(limits)?;
        let found = memory.len();
        if found < expected {
            return Err(too_few_words("search memory", expected, found));
        }
        options.validate(limits)?;
        let ranges = MemoryRanges::new(limits).map_err(Error::of_memory(MEMORY))?;
        let mut memory = ranges.split(memory).map_err(Error::of_memory(MEMORY))?;
        memory.phase.fill(VACANT);
        memory.row_count.fill(0);
        slots.clear();
        slots.resize(limits.sentences, RefOrArc::Borrowed(options));
        let scratch = core::mem::take(&mut memory.scratch);
        let results = core::mem::take(&mut memory.prepared);
        Ok(Self {
            options,
            slots,
            limits: *limits,
            memory,
            scratch,
            results,
            prepared: false,
            rows: 0,
            scored_rows: 0,
            failed: None,
        })
    }

    /// The memory of the options of the slots, empty, for [`Self::with_slots`].
    pub(crate) fn into_slots(self) -> Vec<SlotOptions<'static>> {
        reuse_memory(self.slots)
    }

    /// Starts a sentence in the lowest free slot and returns the slot. Its first row, with the decoder start, is
    /// the last of [`Self::rows`]. A prefix is fed one token per step, and the search ignores the logits of those
    /// steps; [`Self::skip_prompt`] skips them.
    ///
    /// # Errors
    /// No slot is free or the prompt is too long ([`Error::InvalidInput`]), or an id is outside the vocabulary
    /// ([`Error::Token`]); nothing is changed.
    pub fn admit(&mut self, request: &Request<'_>) -> Result<u32, Error> {
        self.admit_valid(request, RefOrArc::Borrowed(self.options))
    }

    /// [`Self::admit`] with options of its own: sentences with different strategies, lengths and rules run side by side.
    ///
    /// ```
    /// use simdformer::search::{BeamOptions, Hooks, Request, Search, SearchLimits, SearchOptions, Strategy, words};
    ///
    /// let greedy = SearchOptions { eos: vec![2], ..SearchOptions::default() };
    /// let strategy = Strategy::Beam(BeamOptions { beams: 2, ..BeamOptions::default() });
    /// let beams = SearchOptions { strategy, ..greedy.clone() };
    /// let limits = SearchLimits {
    ///     sentences: 2,
    ///     sequences: 2,
    ///     max_target_length: 8,
    ///     vocabulary: 5,
    ///     end_tokens: 1,
    ///     source_tokens: 0,
    /// };
    /// let mut memory = vec![0; words(&limits)?];
    /// let mut search = Search::new(&greedy, &limits, &mut memory)?;
    /// search.admit(&Request::default())?;
    /// search.admit_with(&Request::default(), &beams)?;
    /// let mut logits = [0.0, 3.0, 0.0, 2.0, 0.0].repeat(2);
    /// search.advance(&mut logits, &mut Hooks::default(), None)?;
    /// // The greedy sentence has one row, the other one has two.
    /// assert_eq!(search.rows().tokens, [1, 1, 3]);
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::admit`]; options that are not [valid](SearchOptions::validate) under the limits of the search.
    pub fn admit_with(
        &mut self,
        request: &Request<'_>,
        options: impl Into<RefOrArc<'a, SearchOptions>>,
    ) -> Result<u32, Error> {
        let options = options.into();
        options.validate(&self.limits)?;
        self.admit_valid(request, options)
    }

    /// [`Self::admit_with`] valid options.
    pub(crate) fn admit_valid(
        &mut self,
        request: &Request<'_>,
        options: SlotOptions<'a>,
    ) -> Result<u32, Error> {
        let SearchLimits { sentences, max_target_length: target, vocabulary, .. } = self.limits;
        let s = self.memory.phase.iter().position(|&phase| phase == VACANT);
        let s = s.ok_or_else(|| {
            let taken = ErrorValue::new(&"all {} taken", [sentences, 0]);
            Error::invalid_input("", "a free sentence slot", taken)
        })?;
        let prompt = request.prefix.len() + 1;
        let longest = request.longest(&options, target, vocabulary)?;
        let source = request.required_source(&options, self.limits.source_tokens)?;
        let m = &mut self.memory;
        let slot = Slot::new(s, &options, &self.limits);
        m.phase[s] = ACTIVE;
        m.prompt_len[s] = prompt as u32;
        m.len[s] = 1;
        m.max_len[s] = longest as u32;
        m.stream_low[s] = request.stream as u32;
        m.stream_high[s] = (request.stream >> 32) as u32;
        m.forced_bos[s] = request.forced_bos.or(options.forced_bos).unwrap_or(NONE);
        m.source_len[s] = source.len() as u32;
        m.source[s * self.limits.source_tokens..][..source.len()].copy_from_slice(source);
        m.emitted[s] = 0;
        m.draft_len[s] = 0;
        m.score[slot.sequences()].fill(0.0);
        m.sequence_len[slot.sequences()].fill(prompt as u32);
        m.alive[slot.sequences()].fill(0);
        m.alive[slot.first] = 1;
        m.parent[slot.first] = NONE;
        m.finished_count[slot.first..][..slot.groups].fill(0);
        m.group_done[slot.first..][..slot.groups].fill(0);
        let history = &mut m.history[slot.first * target..][..prompt];
        history[0] = options.start;
        history[1..].copy_from_slice(request.prefix);
        self.slots[s] = options;
        self.add_rows(s);
        Ok(s as u32)
    }

    /// Moves a newly admitted sentence to the end of its prompt: its first row then feeds the last token of
    /// [`Self::prompt`]. The KV cache of the caller must already contain the tokens before it.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] unless the sentence is at its first row.
    pub fn skip_prompt(&mut self, sentence: u32) -> Result<(), Error> {
        let s = sentence as usize;
        let m = &mut self.memory;
        if m.phase.get(s) != Some(&ACTIVE) || m.len[s] != 1 {
            return Err(wrong_state("a just admitted sentence", sentence));
        }
        m.len[s] = m.prompt_len[s];
        let last = m.len[s] as usize - 1;
        let row = m.first_row[s] as usize;
        m.row_token[row] =
            m.history[s * self.limits.sequences * self.limits.max_target_length + last];
        m.row_position[row] = last as u32;
        Ok(())
    }

    /// The decoder start and the prefix of a sentence; empty for a free slot.
    #[must_use]
    pub fn prompt(&self, sentence: u32) -> &[u32] {
        let (s, m) = (sentence as usize, &self.memory);
        if m.phase.get(s).is_none_or(|&phase| phase == VACANT) {
            return &[];
        }
        let start = s * self.limits.sequences * self.limits.max_target_length;
        &m.history[start..start + m.prompt_len[s] as usize]
    }

    /// Chooses the next token of every row and makes the rows of the next step.
    ///
    /// `logits` is `[rows, vocabulary]` in the order of [`Self::rows`]. The logits after each token of a
    /// [draft](Self::draft) directly follow those of its row. The processors work in `logits`; its contents
    /// afterwards are unspecified.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for logits of another size; then the search does not change. All other errors
    /// (no allowed token, [`Error::InvalidInput`], or an error that a rule of the caller returns)
    /// stop every sentence with its current hypotheses, and no rows remain; [`Self::failed`] returns the sentence
    /// that caused the error. NaN or `+inf` in the logits is no error: the sentence finishes with
    /// [`Finish::NotFinite`], and the others continue.
    pub fn advance(
        &mut self,
        logits: &mut [f32],
        hooks: &mut Hooks<'_>,
        on_token: Option<OnToken<'_>>,
    ) -> Result<(), Error> {
        self.advance_with(logits, None, hooks, on_token, &|| false)
    }

    /// [`Self::advance`], or [`Self::advance_argmax`] where `best` has a token for each row. If `muted` returns
    /// true, a sentence takes no further token of its draft.
    pub(crate) fn advance_with(
        &mut self,
        logits: &mut [f32],
        best: Option<&[u32]>,
        hooks: &mut Hooks<'_>,
        mut on_token: Option<OnToken<'_>>,
        muted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let vocabulary = self.limits.vocabulary;
        self.failed = None;
        if logits.len() != self.scored_rows * vocabulary {
            let expected = self.scored_rows * vocabulary;
            return Err(wrong_length("logits", expected, logits.len()));
        }
        for s in 0..self.limits.sentences {
            if self.memory.phase[s] != ACTIVE {
                continue;
            }
            let first = self.memory.first_row[s] as usize;
            if self.memory.len[s] < self.memory.prompt_len[s] {
                self.memory.len[s] += 1;
                self.memory.parent[s * self.limits.sequences] = first as u32;
                continue;
            }
            let start = self.memory.row_start[first] as usize;
            let count = (self.memory.row_count[s] + self.memory.draft_len[s]) as usize;
            let rows = &mut logits[start * vocabulary..(start + count) * vocabulary];
            let options = self.slots[s].clone();
            let slot = Slot::new(s, &options, &self.limits);
            let best = best.filter(|_| options.need_argmax_only() && hooks.is_empty());
            let best = best.map(|best| &best[start..start + count]);
            let step = match &options.strategy {
                Strategy::Beam(beam) => self.step_beams(slot, beam, rows, hooks, &mut on_token),
                _ if self.memory.draft_len[s] > 0 => {
                    self.step_draft(slot, rows, best, hooks, &mut on_token, muted)
                }
                _ => self.step_sequences(slot, rows, best, hooks, &mut on_token),
            };
            if let Err(error) = step {
                self.failed = Some(s as u32);
                self.stop_all();
                return Err(error);
            }
        }
        self.make_rows();
        Ok(())
    }

    /// Ends a sentence with its current hypotheses: the finished ones, and the open ones scored at their present
    /// length. Its rows stay until the next [`Self::advance`], unless no other sentence is active; their logits are
    /// ignored.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] for a slot that is free or finished.
    pub fn stop(&mut self, sentence: u32) -> Result<(), Error> {
        let s = sentence as usize;
        if self.memory.phase.get(s) != Some(&ACTIVE) {
            return Err(wrong_state("an unfinished sentence", sentence));
        }
        self.end_slot(s, Finish::Stopped);
        if !self.memory.phase.contains(&ACTIVE) {
            self.make_rows();
        }
        Ok(())
    }

    /// Frees the slot of a finished sentence.
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] for a slot that is free, unfinished, or stopped with rows left.
    pub fn release(&mut self, sentence: u32) -> Result<(), Error> {
        if self.finish(sentence).is_none() || self.memory.row_count[sentence as usize] != 0 {
            return Err(wrong_state("a finished sentence (without rows)", sentence));
        }
        self.memory.phase[sentence as usize] = VACANT;
        self.slots[sentence as usize] = RefOrArc::Borrowed(self.options);
        Ok(())
    }

    /// Why a sentence is finished; `None` if it is not.
    #[must_use]
    pub fn finish(&self, sentence: u32) -> Option<Finish> {
        let phase = self.memory.phase.get(sentence as usize)?;
        Finish::ALL.get(phase.checked_sub(FINISHED)? as usize).copied()
    }

    /// The sentence that caused the last error of [`Self::advance`], if one sentence caused it.
    #[must_use]
    pub fn failed(&self) -> Option<u32> {
        self.failed
    }

    /// The hypotheses of a finished sentence, at most `num_return_sequences`, and at least one unless the sentence
    /// ended before its prompt was fed completely. Beam search: best first and all different. Sampling: in the
    /// order of the sample numbers. Empty for an unfinished sentence and a free slot.
    pub fn hypotheses(&self, sentence: u32) -> impl ExactSizeIterator<Item = Hypothesis<'_>> {
        let (s, m, target) = (sentence as usize, &self.memory, self.limits.max_target_length);
        let options = self.slots.get(s).map_or(self.options, |options| &**options);
        let Slot { first, width, .. } = Slot::new(s, options, &self.limits);
        let count = match (self.finish(sentence), &options.strategy) {
            (None, _) => 0,
            (_, Strategy::Beam(_)) => m.finished_count[first] as usize,
            _ => width,
        };
        (0..count.min(options.num_return_sequences)).map(move |rank| {
            let prompt = m.prompt_len[s] as usize;
            let (slot, text, len, score) = if let Strategy::Beam(_) = options.strategy {
                let slot = first + m.order[first + rank] as usize;
                (slot, &*m.finished, m.finished_len[slot], m.finished_score[slot])
            } else {
                let slot = first + rank;
                let scored = options.scored();
                let score = if scored { m.score[slot] } else { f32::NAN };
                (slot, &*m.history, m.sequence_len[slot], score)
            };
            Hypothesis { tokens: &text[slot * target..][prompt..len as usize], score }
        })
    }

    fn stop_all(&mut self) {
        for s in 0..self.limits.sentences {
            if self.memory.phase[s] == ACTIVE {
                self.end_slot(s, Finish::Stopped);
            }
        }
        self.make_rows();
    }

    /// The sentence in slot `s`.
    pub(super) fn slot(&self, s: usize) -> Slot<'_> {
        Slot::new(s, &self.slots[s], &self.limits)
    }

    /// Finishes a sentence.
    pub(super) fn end(&mut self, slot: Slot<'_>, finish: Finish) {
        if let Strategy::Beam(beam) = &slot.options.strategy {
            self.end_beams(slot, beam, finish);
        }
        self.memory.phase[slot.s] = FINISHED + finish as u32;
    }

    fn end_slot(&mut self, s: usize, finish: Finish) {
        let options = self.slots[s].clone();
        self.end(Slot::new(s, &options, &self.limits), finish);
    }

    /// Streams one token. Returns true if the caller stops the sentence.
    pub(super) fn emit(on_token: &mut Option<OnToken<'_>>, s: usize, token: Token) -> bool {
        match on_token {
            Some(on_token) => on_token(s as u32, token) == ControlFlow::Break(()),
            None => false,
        }
    }
}
