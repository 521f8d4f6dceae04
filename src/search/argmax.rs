//! Greedy search from the best token of each row, without logits.
//!
//! Most rules of greedy search only ban tokens. Then the logits are not needed: the model can search for the
//! largest logit that is not banned. Kernels for this ([`simdformer_kernels::pruned_argmax`]) need a quarter to
//! a third of the time.

use super::hooks::{Hooks, OnToken};
use super::limits::wrong_length;
use super::logits_processors::{completed_ngrams, is_end_token};
use super::options::{SearchOptions, SettingFields as _, Strategy};
use super::search::{NONE, Search};
use super::state::Slot;
use crate::error::Error;

/// `u32::MAX`: marks a row without a best token; the caller supplies its logits instead.
pub const UNDECIDED: u32 = simdformer_kernels::pruned_argmax::UNDECIDED;

/// Whether `token` after `history` would complete the sequence `word`.
fn completes(history: &[u32], word: &[u32], token: u32) -> bool {
    matches!(word, [rest @ .., last] if *last == token && history.ends_with(rest))
}

impl SearchOptions {
    /// Whether all rules of these options only ban tokens, or force them.
    pub(super) fn only_ban(&self) -> bool {
        !self.change_scores() && self.timestamps.is_none()
    }

    /// Whether a step of a sentence with these options, without rules of the caller, needs only its best token.
    pub(super) fn need_argmax_only(&self) -> bool {
        matches!(self.strategy, Strategy::Greedy) && !self.scores && self.only_ban()
    }
}

impl Search<'_> {
    /// Whether the next step needs only the best token of each row that [`Self::banned`] does not ban. This is the
    /// case in greedy search without [scores](SearchOptions::scores), without rules of the caller, and without
    /// rules that change scores in other ways than banning or forcing tokens, for every sentence.
    #[must_use]
    pub fn needs_argmax_only(&self, hooks: &Hooks<'_>) -> bool {
        self.lines_with_logits(hooks) == 0
    }

    /// Whether `token` is banned in row `row` of the logits of this step, if [`Self::needs_argmax_only`]. The rows are
    /// those of [`Self::rows`], each followed by the rows of its [draft](Self::draft). Returns false in a row whose token
    /// is forced, and for a row that does not exist.
    #[must_use]
    pub fn banned(&self, row: usize, token: u32) -> bool {
        let m = &self.memory;
        let Some((s, drafted)) = self.place(row) else { return false };
        let slot = self.slot(s);
        let (o, len) = (slot.options, m.len[s] + drafted);
        // A forced row does not use its best token, so the answer does not matter.
        if self.forced(slot, len).is_some() {
            return false;
        }
        let history = self.history(slot, len);
        let prompt = m.prompt_len[s] as usize;
        let too_short =
            history.len() < o.min_length || history.len().saturating_sub(prompt) < o.min_new_tokens;
        let completes_ngram = |size: Option<usize>, text| {
            size.is_some_and(|size| completed_ngrams(size, text, history).any(|id| id == token))
        };
        (too_short && o.eos.contains(&token))
            || self.suppressed(slot, len, token)
            || o.bad_words
                .iter()
                .any(|word| completes(history, word, token) && !is_end_token(word, &o.eos))
            || completes_ngram(o.no_repeat_ngram, history)
            || completes_ngram(o.encoder_no_repeat_ngram, m.source(&self.limits, s))
    }

    /// [`Self::advance`] if [`Self::needs_argmax_only`]. `best`, `[rows]`, holds for each row of the logits the
    /// token with the largest logit that is not banned, the lowest id if several are equal; or [`UNDECIDED`], and
    /// then `logits`, `[rows, vocabulary]`, holds the logits of that row. Other rows of `logits` are ignored.
    ///
    /// ```
    /// use simdformer::search::{Hooks, Request, Search, SearchLimits, SearchOptions, words};
    ///
    /// let options = SearchOptions { scores: false, eos: vec![2], ..SearchOptions::default() };
    /// let limits = SearchLimits {
    ///     sentences: 1,
    ///     sequences: 1,
    ///     max_target_length: 8,
    ///     vocabulary: 5,
    ///     end_tokens: 1,
    ///     source_tokens: 0,
    /// };
    /// let mut memory = vec![0; words(&limits)?];
    /// let mut search = Search::new(&options, &limits, &mut memory)?;
    /// let sentence = search.admit(&Request::default())?;
    /// let (mut logits, hooks) = ([0.0; 5], &mut Hooks::default());
    /// assert!(search.needs_argmax_only(hooks));
    /// search.advance_argmax(&[4], &mut logits, hooks, None)?;
    /// search.advance_argmax(&[2], &mut logits, hooks, None)?;
    /// let best = search.hypotheses(sentence).next().map(|hypothesis| hypothesis.tokens);
    /// assert_eq!(best, Some(&[4, 2][..]));
    /// # Ok::<(), simdformer::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::advance`]; also [`Error::InvalidInput`] if `best` does not have one token per row, and
    /// [`Error::Token`] for a token outside the vocabulary; these two do not change the search.
    pub fn advance_argmax(
        &mut self,
        best: &[u32],
        logits: &mut [f32],
        hooks: &mut Hooks<'_>,
        on_token: Option<OnToken<'_>>,
    ) -> Result<(), Error> {
        let (expected, found) = (self.scored_rows, best.len());
        if found != expected {
            return Err(wrong_length("best", expected, found));
        }
        let vocabulary = self.limits.vocabulary;
        let outside = |&&token: &&u32| token != UNDECIDED && token as usize >= vocabulary;
        if let Some(&found) = best.iter().find(outside) {
            return Err(Error::token("best", None, vocabulary, found));
        }
        self.advance_with(logits, Some(best), hooks, on_token, &|| false)
    }

    /// The sentence of row `row` of the logits, and how many tokens of its draft precede the row.
    fn place(&self, row: usize) -> Option<(usize, u32)> {
        let sentences = self.rows().sentences;
        if self.scored_rows == self.rows {
            return sentences.get(row).map(|&s| (s as usize, 0));
        }
        let starts = &self.memory.row_start[..self.rows];
        let last = starts.partition_point(|&start| start as usize <= row).checked_sub(1)?;
        let (s, drafted) = (sentences[last] as usize, row - starts[last] as usize);
        (row < self.scored_rows).then_some((s, drafted as u32))
    }

    /// The first `len` tokens of a target and its draft, in greedy search.
    fn history(&self, slot: Slot<'_>, len: u32) -> &[u32] {
        let start = slot.first * self.limits.max_target_length;
        &self.memory.history[start..start + len as usize]
    }

    /// The forced token after the first `len` tokens of a sentence, if a rule forces one. If several tokens are
    /// allowed, it is the lowest, because all get the same score. `Some(None)` if all of them are banned.
    pub(super) fn forced(&self, slot: Slot<'_>, len: u32) -> Option<Option<u32>> {
        let (o, bos) = (slot.options, self.memory.forced_bos[slot.s]);
        let bos = (bos != NONE).then_some(bos);
        let allowed = |&token: &u32| !self.suppressed(slot, len, token);
        if self.forces_end(slot, len) {
            return Some(o.forced_eos.iter().copied().filter(allowed).min());
        }
        let token = bos.filter(|_| len == 1)?;
        Some(Some(token).filter(allowed))
    }

    /// Whether the next token of a sentence of `len` tokens must be one of [`SearchOptions::forced_eos`].
    pub(super) fn forces_end(&self, slot: Slot<'_>, len: u32) -> bool {
        let o = slot.options;
        len + 1 == self.memory.max_len[slot.s] && !o.forced_eos.is_empty() && o.set_a_length()
    }

    /// Whether `token` is banned by a rule that also applies to forced tokens.
    fn suppressed(&self, slot: Slot<'_>, len: u32, token: u32) -> bool {
        let Slot { s, options: o, .. } = slot;
        let m = &self.memory;
        let forced_first = m.prompt_len[s] == 1 && m.forced_bos[s] != NONE;
        o.suppress.contains(&token)
            || (len == m.prompt_len[s] + u32::from(forced_first)
                && o.begin_suppress.contains(&token))
    }
}
