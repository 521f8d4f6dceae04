//! Drafts: proposals for the next tokens of a sentence. A step accepts the correct prefix of a draft.
//!
//! A draft is stored in the history after the final tokens, so that at each of its positions the rules read the
//! same history as without a draft. The step chooses a token at each position as usual and continues while the
//! chosen token equals the draft token. Every rule therefore runs as often, in the same order and on the same
//! scores as without drafts. The random number of a position depends on the position alone.

use super::hooks::{Hooks, OnToken};
use super::limits::tokens;
use super::limits::wrong_state;
use super::options::Strategy;
use super::search::{ACTIVE, Search};
use super::state::Slot;
use crate::error::Error;

impl Search<'_> {
    /// Proposes `proposal` as the next tokens of a sentence, for the next step. Returns how many of the tokens are
    /// used, at most [`Self::draft_capacity`]. [`Self::drafted`] returns them. The caller feeds them to the model after
    /// the token of the sentence's row, and [`Self::advance`] takes the logits after each of them. In the following
    /// step, the [position](super::RowInput::position) of the sentence's row shows how many tokens were accepted.
    /// The caller then [removes](crate::Session::rewind) the rejected tokens from its cache. The generated tokens
    /// do not depend on drafts.
    ///
    /// Returns 0 in beam search, where a sentence has several sequences, and within a prefix. A second draft in the
    /// same step replaces the first.
    ///
    /// ```
    /// use simdformer::search::{Hooks, Request, Search, SearchLimits, SearchOptions, words};
    ///
    /// // A model of 9 tokens that counts to 8, the end token.
    /// fn model(token: u32) -> [f32; 9] {
    ///     core::array::from_fn(|id| if id as u32 == token + 1 { 5.0 } else { 0.0 })
    /// }
    ///
    /// let options = SearchOptions { eos: vec![8], ..SearchOptions::default() };
    /// let limits = SearchLimits {
    ///     sentences: 1,
    ///     sequences: 1,
    ///     max_target_length: 16,
    ///     vocabulary: 9,
    ///     end_tokens: 1,
    ///     source_tokens: 0,
    /// };
    /// let mut memory = vec![0; words(&limits)?];
    /// let mut search = Search::new(&options, &limits, &mut memory)?;
    /// let sentence = search.admit(&Request::default())?;
    /// let mut steps = 0;
    /// while let Some(&token) = search.rows().tokens.first() {
    ///     // Two correct tokens, then a wrong one.
    ///     search.draft(sentence, &[token + 1, token + 2, 0])?;
    ///     let fed = core::iter::once(&token).chain(search.drafted(sentence));
    ///     let mut logits: Vec<f32> = fed.flat_map(|&token| model(token)).collect();
    ///     search.advance(&mut logits, &mut Hooks::default(), None)?;
    ///     steps += 1;
    /// }
    /// let best = search.hypotheses(sentence).next().map(|hypothesis| hypothesis.tokens);
    /// assert_eq!((best, steps), (Some(&[1, 2, 3, 4, 5, 6, 7, 8][..]), 3));
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidHandle`] for a slot that is free or finished, [`Error::Token`] for an id outside the
    /// vocabulary; nothing is changed.
    pub fn draft(&mut self, sentence: u32, proposal: &[u32]) -> Result<usize, Error> {
        let s = sentence as usize;
        if self.memory.phase.get(s) != Some(&ACTIVE) {
            return Err(wrong_state("an unfinished sentence", sentence));
        }
        tokens("draft", self.limits.vocabulary, proposal)?;
        let taken = proposal.len().min(self.draft_capacity(sentence));
        let (target, first) = (self.limits.max_target_length, self.slot(s).first);
        let m = &mut self.memory;
        if taken > 0 {
            // The sentence has one sequence, so this is its history.
            let start = first * target + m.len[s] as usize;
            m.history[start..start + taken].copy_from_slice(&proposal[..taken]);
        }
        let before = core::mem::replace(&mut m.draft_len[s], taken as u32) as usize;
        for start in &mut m.row_start[m.first_row[s] as usize + 1..self.rows] {
            *start = *start + taken as u32 - before as u32;
        }
        self.scored_rows = self.scored_rows + taken - before;
        Ok(taken)
    }

    /// The maximum number of tokens that [`Self::draft`] can use for a sentence now.
    #[must_use]
    pub fn draft_capacity(&self, sentence: u32) -> usize {
        let (s, m) = (sentence as usize, &self.memory);
        if m.phase.get(s) != Some(&ACTIVE) || m.len[s] < m.prompt_len[s] {
            return 0;
        }
        let Slot { width, options, .. } = self.slot(s);
        if width > 1 || matches!(options.strategy, Strategy::Beam(_)) {
            return 0;
        }
        // The model never gets the last token, so the draft does not include it.
        (m.max_len[s] - 1).saturating_sub(m.len[s]) as usize
    }

    /// The draft of a sentence in this step: the tokens that [`Self::draft`] used.
    #[must_use]
    pub fn drafted(&self, sentence: u32) -> &[u32] {
        let (s, m) = (sentence as usize, &self.memory);
        let len = m.draft_len.get(s).map_or(0, |&len| len as usize);
        if len == 0 {
            return &[];
        }
        &m.history[self.slot(s).first * self.limits.max_target_length + m.len[s] as usize..][..len]
    }

    /// The target of a sentence up to now: decoder start, prefix, and the chosen tokens of its first sequence.
    /// Empty for a free slot and in beam search, where the tokens are not final.
    #[must_use]
    pub fn target(&self, sentence: u32) -> &[u32] {
        let (s, m) = (sentence as usize, &self.memory);
        if self.prompt(sentence).is_empty() {
            return &[];
        }
        let Slot { first, options, .. } = self.slot(s);
        match options.strategy {
            Strategy::Beam(_) => &[],
            _ => {
                &m.history[first * self.limits.max_target_length..]
                    [..m.sequence_len[first] as usize]
            }
        }
    }

    /// Advances a sentence by the accepted tokens of its draft and one more. `rows` and `best` hold the row of
    /// the sentence, followed by the rows of its draft. If `muted` returns true, no further tokens are taken.
    pub(super) fn step_draft(
        &mut self,
        slot: Slot<'_>,
        rows: &mut [f32],
        best: Option<&[u32]>,
        hooks: &mut Hooks<'_>,
        on_token: &mut Option<OnToken<'_>>,
        muted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let places = rows.chunks_exact_mut(self.limits.vocabulary).enumerate();
        for (i, scores) in places {
            let at = slot.first * self.limits.max_target_length + self.memory.len[slot.s] as usize;
            let proposal = self.memory.history[at];
            let best = best.map(|best| &best[i..=i]);
            self.step_sequences(slot, scores, best, hooks, on_token)?;
            let right = self.memory.history[at] == proposal;
            if !right || self.memory.phase[slot.s] != ACTIVE || muted() {
                break;
            }
        }
        Ok(())
    }
}
