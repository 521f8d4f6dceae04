//! Verifies drafts: one pass computes the logits after each token of a draft.
//!
//! The bits of a row do not depend on the rest of the batch. The logits after each token of a draft are therefore
//! those of single steps, up to the first wrong token. The caller's rule chooses a token from each row of logits, in
//! order, and stops at the first difference from the draft. The tokens after that place are removed, which only
//! changes a length. The outcome equals that of single steps (`==`) for any draft. An accepted draft saves passes
//! (Stern, Shazeer and Uszkoreit 2018; Leviathan, Kalman and Matias 2022); a rejected draft costs a little time.

use super::session::Session;
use super::step::{Output, StepRow};
use crate::error::Error;

/// The result of verifying a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Number of accepted tokens, from the start of the draft.
    pub accepted: usize,
    /// The token that was chosen after them, which has not been fed; `None` if none was chosen.
    pub next: Option<u32>,
}

/// The function of [`Session::verify`].
type TokenSelector<'f> = &'f mut dyn FnMut(usize, &mut [f32]) -> Result<Option<u32>, Error>;

impl Session<'_> {
    /// Feeds the hypothesis of `row` its token and its draft in one pass. Then calls `choose` for the next token after each of them, in
    /// order, until it returns another token than the draft. After the call, the hypothesis has been fed its token and
    /// the accepted tokens. The result and the logits are those of the same number of [steps](Session::step), bit for
    /// bit. An empty draft is a step.
    ///
    /// `choose` gets the number of draft tokens before the position, and the logits at the position, `[vocabulary]`, which
    /// it may modify. It returns the chosen token, or `None` to end. It may be any rule and may have state: it gets the same logits as without drafts, in the same order. With
    /// a [`Search`](crate::search::Search) this is the decoding loop with all its options. Sampling works too, because
    /// the random number of a token depends only on its position:
    ///
    /// ```
    /// use simdformer::search::{Hooks, Request, Search, SearchLimits, words};
    /// use simdformer::{Limits, Model, SourceId, Session, StepRow};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open("models/fr-en")?;
    /// let limits = Limits { draft_tokens: 8, ..Limits::new(1, 16, 40) };
    /// let mut session = Session::new(&model, limits)?;
    /// let options = session.search_options();
    /// let search_limits = SearchLimits {
    ///     sentences: 1,
    ///     sequences: 1,
    ///     max_target_length: limits.target_tokens + 1,
    ///     vocabulary: model.config().target_vocab,
    ///     end_tokens: limits.end_tokens,
    ///     source_tokens: 0,
    /// };
    /// let mut memory = vec![0; words(&search_limits)?];
    ///
    /// // Decodes with drafts from `known`, and counts the passes.
    /// let mut decode = |known: &[u32]| -> Result<_, Box<dyn std::error::Error>> {
    ///     let mut search = Search::new(&options, &search_limits, &mut memory)?;
    ///     let slot = search.admit(&Request::default())?;
    ///     session.clear();
    ///     let mut sentence = [SourceId::default()];
    ///     session.encode(&[&[6, 11, 0]], &mut sentence)?;
    ///     let hypothesis = session.start(sentence[0])?;
    ///     let mut passes = 0;
    ///     while let Some(&token) = search.rows().tokens.first() {
    ///         let rest = known.get(session.hypothesis_len(hypothesis)?..).unwrap_or_default();
    ///         let draft = &rest[..rest.len().min(limits.draft_tokens)];
    ///         let choose = &mut |_, logits: &mut [f32]| {
    ///             search.advance(logits, &mut Hooks::default(), None)?;
    ///             Ok(search.rows().tokens.first().copied())
    ///         };
    ///         session.verify(StepRow { hypothesis, token, draft }, choose)?;
    ///         passes += 1;
    ///     }
    ///     let best = search.hypotheses(slot).next().map(|best| best.tokens.to_vec());
    ///     Ok((best.unwrap_or_default(), passes))
    /// };
    /// let (plain, steps) = decode(&[])?;
    /// let (again, passes) = decode(&plain)?;
    /// assert_eq!(again, plain);
    /// assert_eq!((steps, passes), (plain.len(), plain.len().div_ceil(9)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::step`]; more tokens in the draft than [planned](Error::BeyondLimit) (`draft_tokens`); an
    /// error of [`choose`](Error::InvalidOption). An error changes nothing.
    pub fn verify(
        &mut self,
        row: StepRow<'_>,
        choose: TokenSelector<'_>,
    ) -> Result<Verified, Error> {
        let (slot, draft) = (self.check_hypothesis(row.hypothesis)?, row.draft);
        self.feed(&[row], Output::Logits(None))?;
        // `choose` may fail, so the whole draft is removed first; the accepted length is restored below.
        self.kv_slots_mut()?.shrink(slot, 1 + draft.len());
        let vocabulary = self.model.config().target_vocab;
        let logits = self.plan.buffers.logits.slice_of_mut(self.buffer.floats_mut());
        let verified =
            accept_prefix(draft, |i| choose(i, &mut logits[i * vocabulary..][..vocabulary]))?;
        self.kv_slots_mut()?.grow(slot, 1 + verified.accepted);
        Ok(verified)
    }

    /// As [`Session::verify`], with greedy choice: the largest logit among the tokens for which `banned(i, token)` is
    /// false, and the lowest id among equal logits. `i` is the number of draft tokens before the position. The result
    /// and the cost are those of [`Session::step_argmax`]. An end token is treated like any other token: a draft should
    /// end with it.
    ///
    /// ```
    /// use simdformer::{Limits, Model, SourceId, Session, StepRow, Verified};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open("models/fr-en")?;
    /// let start = model.config().search_options().start;
    /// let limits = Limits { draft_tokens: 4, ..Limits::new(1, 16, 16) };
    /// let mut session = Session::new(&model, limits)?;
    /// let mut sentence = [SourceId::default()];
    /// session.encode(&[&[6, 11, 0]], &mut sentence)?;
    /// let hypothesis = session.start(sentence[0])?;
    /// let banned = |_: usize, id: u32| id == start;
    ///
    /// // Two tokens by steps, then back to the start.
    /// let first = session.step_argmax(&[StepRow::new(hypothesis, start)], &banned)?[0];
    /// let second = session.step_argmax(&[StepRow::new(hypothesis, first)], &banned)?[0];
    /// session.rewind(hypothesis, 0)?;
    /// // A draft whose second token is wrong: the result has the number of accepted tokens and the right token.
    /// let row = StepRow { hypothesis, token: start, draft: &[first, second + 1, 9] };
    /// let verified = session.verify_argmax(row, &banned)?;
    /// assert_eq!(verified, Verified { accepted: 1, next: Some(second) });
    /// assert_eq!(session.hypothesis_len(hypothesis)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::verify`].
    pub fn verify_argmax(
        &mut self,
        row: StepRow<'_>,
        banned: &(dyn Fn(usize, u32) -> bool + Sync),
    ) -> Result<Verified, Error> {
        let (slot, draft) = (self.check_hypothesis(row.hypothesis)?, row.draft);
        let best = self.step_argmax(&[row], banned)?;
        let verified =
            accept_prefix(draft, |i| Ok(Some(best[i]).filter(|&token| token != u32::MAX)))?;
        self.kv_slots_mut()?.shrink(slot, draft.len() - verified.accepted);
        Ok(verified)
    }
}

/// Calls `choose` for each token of the draft up to the first difference.
fn accept_prefix(
    draft: &[u32],
    mut choose: impl FnMut(usize) -> Result<Option<u32>, Error>,
) -> Result<Verified, Error> {
    for (accepted, &proposed) in draft.iter().enumerate() {
        let next = choose(accepted)?;
        if next != Some(proposed) {
            return Ok(Verified { accepted, next });
        }
    }
    Ok(Verified { accepted: draft.len(), next: choose(draft.len())? })
}
