//! Verifies drafts: one pass computes the logits after each token of a draft.
//!
//! The bits of a row do not depend on the rest of the batch. The logits after each token of a draft are therefore
//! those of single steps, up to the first wrong token. The caller's rule chooses a token from each row of logits, in
//! order, and stops at the first difference from the draft. The tokens after that place are removed, which only
//! changes a length. The outcome equals that of single steps (`==`) for any draft. An accepted draft saves passes
//! (Stern, Shazeer and Uszkoreit 2018; Leviathan, Kalman and Matias 2022); a rejected draft costs a little time.

use super::argmax::resolve_undecided;
use super::error::SessionError;
use super::handles::HypothesisId;
use super::pruning_policy::{Banned, StepOutput};
use super::session::{Session, check_limit, check_tokens};
use super::step::StepRow;
use crate::model::layer_observer::{LayerObserver, NoObserver};
use crate::search::SearchError;

/// One hypothesis of a step, its next input token, and a draft of the tokens after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftRow<'d> {
    /// The hypothesis.
    pub row: HypothesisId,
    /// Its next input: an id below the target vocabulary.
    pub token: u32,
    /// The proposed tokens after `token`: ids below the target vocabulary. An empty draft is a plain step.
    pub draft: &'d [u32],
}

/// The result of verifying a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Number of accepted tokens, from the start of the draft.
    pub accepted: usize,
    /// The token that was chosen after them, which has not been fed; `None` if none was chosen.
    pub next: Option<u32>,
}

/// Called with the number of draft tokens before the position, and with the logits at the position, `[vocabulary]`,
/// which it may modify. Returns the chosen token, or `None` to end.
pub type TokenSelector<'f> =
    &'f mut dyn FnMut(usize, &mut [f32]) -> Result<Option<u32>, SearchError>;

impl Session<'_> {
    /// Feeds `row` its token and a draft in one pass. Then calls `choose` for the next token after each of them, in
    /// order, until it returns another token than the draft. After the call, the hypothesis has been fed its token and
    /// the accepted tokens. The result and the logits are those of the same number of [steps](Session::step), bit for
    /// bit. An empty draft is a step.
    ///
    /// `choose` may be any rule and may have state: it gets the same logits as without drafts, in the same order. With
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
    ///     let row = session.start(sentence[0])?;
    ///     let mut passes = 0;
    ///     while let Some(&token) = search.rows().tokens.first() {
    ///         let rest = known.get(session.row_len(row)?..).unwrap_or_default();
    ///         let draft = &rest[..rest.len().min(limits.draft_tokens)];
    ///         let choose = &mut |_, logits: &mut [f32]| {
    ///             search.advance(logits, &mut Hooks::default(), None)?;
    ///             Ok(search.rows().tokens.first().copied())
    ///         };
    ///         session.verify(StepRow { row, token }, draft, choose)?;
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
    /// As [`Session::step`]; more tokens in the draft than [planned](SessionError::BeyondPlan) (`draft_tokens`); an
    /// error of [`choose`](SessionError::Search). An error changes nothing.
    pub fn verify(
        &mut self,
        row: StepRow,
        draft: &[u32],
        choose: TokenSelector<'_>,
    ) -> Result<Verified, SessionError> {
        self.verify_with(row, draft, choose, &mut NoObserver)
    }

    pub(super) fn verify_with<T: LayerObserver>(
        &mut self,
        row: StepRow,
        draft: &[u32],
        choose: TokenSelector<'_>,
        observer: &mut T,
    ) -> Result<Verified, SessionError> {
        let StepRow { row, token } = row;
        let slot = self.check_row(row)?;
        self.feed_drafts(&[DraftRow { row, token, draft }], None, observer)?;
        // `choose` may fail, so the whole draft is removed first; the accepted length is restored below.
        self.kv_slots_mut()?.shrink(slot, 1 + draft.len());
        let vocabulary = self.model.config().target_vocab;
        let logits = &mut self.buffer.floats_mut()[self.plan.logits.clone()];
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
    /// let row = session.start(sentence[0])?;
    /// let banned = |_: usize, id: u32| id == start;
    ///
    /// // Two tokens by steps, then back to the start.
    /// let first = session.step_argmax(&[StepRow { row, token: start }], &banned)?[0];
    /// let second = session.step_argmax(&[StepRow { row, token: first }], &banned)?[0];
    /// session.rewind(row, 0)?;
    /// // A draft whose second token is wrong: the result has the number of accepted tokens and the right token.
    /// let draft = [first, second + 1, 9];
    /// let verified = session.verify_argmax(StepRow { row, token: start }, &draft, &banned)?;
    /// assert_eq!(verified, Verified { accepted: 1, next: Some(second) });
    /// assert_eq!(session.row_len(row)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::verify`].
    pub fn verify_argmax(
        &mut self,
        row: StepRow,
        draft: &[u32],
        banned: &(dyn Fn(usize, u32) -> bool + Sync),
    ) -> Result<Verified, SessionError> {
        let StepRow { row, token } = row;
        let slot = self.check_row(row)?;
        let best = self.step_drafts_argmax(&[DraftRow { row, token, draft }], banned)?;
        let chosen = |i: usize| Some(best[i]).filter(|&token| token != u32::MAX);
        let verified = accept_prefix(draft, |i| Ok::<_, SearchError>(chosen(i)))?;
        self.kv_slots_mut()?.shrink(slot, draft.len() - verified.accepted);
        Ok(verified)
    }

    /// `[rows and all tokens of drafts, vocabulary]`, row-major: feeds each of `rows` its token and its draft, and
    /// returns the logits after each token; the logits of one row are adjacent. They are those of the same number of
    /// [steps](Session::step), bit for bit. The caller may modify them until the next call.
    ///
    /// Use this to verify drafts of many hypotheses: after the call they have been fed their whole drafts, and
    /// [`Session::rewind`] removes the rejected tokens.
    ///
    /// ```
    /// use simdformer::{DraftRow, Limits, Model, SourceId, Session, StepRow};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open("models/fr-en")?;
    /// // Up to three draft tokens in a step, over both hypotheses.
    /// let limits = Limits { draft_tokens: 3, ..Limits::new(2, 16, 16) };
    /// let mut session = Session::new(&model, limits)?;
    /// let mut sentences = [SourceId::default(); 2];
    /// session.encode(&[&[6, 11, 0], &[9, 14, 32, 0]], &mut sentences)?;
    /// let rows = [session.start(sentences[0])?, session.start(sentences[1])?];
    /// let drafts = [
    ///     DraftRow { row: rows[0], token: 2317, draft: &[554, 9] },
    ///     DraftRow { row: rows[1], token: 2317, draft: &[14] },
    /// ];
    /// let logits = session.step_drafts(&drafts)?.to_vec();
    /// let vocabulary = model.config().target_vocab;
    /// assert_eq!(logits.len(), 5 * vocabulary);
    /// // The second hypothesis is rewound to before its draft and then stepped: the logits are the same.
    /// session.rewind(rows[1], 1)?;
    /// let step = session.step(&[StepRow { row: rows[1], token: 14 }])?;
    /// assert_eq!(step, &logits[4 * vocabulary..]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::step`]; more tokens in all drafts than [planned](SessionError::BeyondPlan) (`draft_tokens`). An
    /// error changes nothing.
    pub fn step_drafts(&mut self, rows: &[DraftRow<'_>]) -> Result<&mut [f32], SessionError> {
        Ok(self.feed_drafts(rows, None, &mut NoObserver)?.logits)
    }

    /// `[rows and all tokens of drafts]`: as [`Session::step_drafts`], but returns the best token after each token
    /// instead of logits. It is the token of [`Session::step_argmax`] with `banned(i, token)`, where `i` is an index
    /// into the result.
    ///
    /// # Errors
    /// As [`Session::step_drafts`].
    pub fn step_drafts_argmax(
        &mut self,
        rows: &[DraftRow<'_>],
        banned: &(dyn Fn(usize, u32) -> bool + Sync),
    ) -> Result<&[u32], SessionError> {
        let vocabulary = self.model.config().target_vocab;
        let stepped = self.feed_drafts(rows, Some(banned), &mut NoObserver)?;
        Ok(resolve_undecided(stepped, vocabulary, banned))
    }

    fn feed_drafts<T: LayerObserver>(
        &mut self,
        rows: &[DraftRow<'_>],
        banned: Option<Banned<'_>>,
        observer: &mut T,
    ) -> Result<StepOutput<'_>, SessionError> {
        self.plan.check_decodes()?;
        check_limit("sentences * beams", self.plan.rows, rows.len())?;
        let (vocabulary, kv_slots) = (self.model.config().target_vocab, self.kv_slots());
        let mut drafted = 0_usize;
        for (index, &DraftRow { row, token, draft }) in rows.iter().enumerate() {
            let len = kv_slots.len(self.check_row(row)?).saturating_add(draft.len());
            drafted = drafted.saturating_add(draft.len());
            check_limit("draft_tokens", self.plan.limits.draft_tokens, drafted)?;
            check_limit("target_tokens", self.plan.limits.target_tokens, len.saturating_add(1))?;
            if token as usize >= vocabulary {
                return Err(SessionError::Token { index, vocabulary, found: token });
            }
            check_tokens(draft, vocabulary)?;
            if rows[..index].iter().any(|other| other.row.slot() == row.slot()) {
                return Err(SessionError::RowTwice { found: row.slot() });
            }
        }
        let fed = rows.iter().flat_map(|&DraftRow { row, token, draft }| {
            let tokens = core::iter::once(token).chain(draft.iter().copied());
            tokens.map(move |token| (row.slot(), token))
        });
        self.feed(rows.len() + drafted, fed, banned, observer)
    }
}

/// Calls `choose` for each token of the draft up to the first difference.
fn accept_prefix<E>(
    draft: &[u32],
    mut choose: impl FnMut(usize) -> Result<Option<u32>, E>,
) -> Result<Verified, E> {
    for (accepted, &proposed) in draft.iter().enumerate() {
        let next = choose(accepted)?;
        if next != Some(proposed) {
            return Ok(Verified { accepted, next });
        }
    }
    Ok(Verified { accepted: draft.len(), next: choose(draft.len())? })
}
