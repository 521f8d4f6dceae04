//! Drafts: guesses at the next tokens of hypotheses, checked in one pass.
//!
//! The bits of a row do not depend on what else is in its batch, so the logits after each token of a draft
//! are those that steps would give, as far as the draft is right. Whoever chooses goes along them, one after
//! the other, and stops where the draft is wrong; what was fed beyond that place is taken back, which is a
//! length. So the outcome is that of steps with `==`, whatever the draft: a good one saves passes
//! (Stern, Shazeer and Uszkoreit 2018; Leviathan, Kalman and Matias 2022), a bad one costs a little time.

use super::argmax::decide;
use super::error::SessionError;
use super::handles::HypothesisId;
use super::pruning_policy::{Banned, StepOutput};
use super::session::{Session, beyond, check_tokens};
use super::step::StepRow;
use crate::model::layer_observer::{LayerObserver, NoObserver};
use crate::search::SearchError;

/// One hypothesis of a step, the token it is continued with, and a guess at those that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftRow<'d> {
    /// The hypothesis.
    pub row: HypothesisId,
    /// Its next input: an id below the target vocabulary.
    pub token: u32,
    /// What may come after it, ids below the target vocabulary; none is a plain step.
    pub draft: &'d [u32],
}

/// What became of a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// How many of its first tokens were chosen.
    pub accepted: usize,
    /// The token that was chosen after these, which nobody has been fed; `None` where none was.
    pub next: Option<u32>,
}

/// Called with how many tokens of the draft come before, and the logits of the token after them,
/// `[vocabulary]`, which it may work in: says which token that is, or `None` to end.
pub type TokenSelector<'f> =
    &'f mut dyn FnMut(usize, &mut [f32]) -> Result<Option<u32>, SearchError>;

impl Session<'_> {
    /// Feeds `row` its token and a whole draft in one pass, and asks `choose` for the next token after each
    /// of them, in order, until it says another than the draft. Then the hypothesis has been fed its token and
    /// the tokens of the draft that were chosen, as by that many [steps](Session::step), and the logits were
    /// those of these steps, bit for bit. An empty draft is a step.
    ///
    /// `choose` may be any rule, with any memory of its own: it sees what it would see without drafts, and
    /// in that order. With a [`Search`](crate::search::Search) it is the decoding loop with all its options,
    /// sampling too, as the random number of a token depends on its place alone:
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
    /// // Decodes with what is known of the target; counts the passes.
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
    /// As [`Session::step`]; more tokens in the draft than were [planned](SessionError::BeyondPlan)
    /// (`draft_tokens`); what `choose` [says](SessionError::Search). Then nothing has changed.
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
        tap: &mut T,
    ) -> Result<Verified, SessionError> {
        let StepRow { row, token } = row;
        let slot = self.check_row(row)?;
        self.feed_drafts(&[DraftRow { row, token, draft }], None, tap)?;
        // Until it is known what stays, nothing does.
        self.pasts()?.shrink(slot, 1 + draft.len());
        let vocabulary = self.model.config().target_vocab;
        let logits = &mut self.buffer.floats_mut()[self.plan.logits.clone()];
        let verified = walk(draft, |i| choose(i, &mut logits[i * vocabulary..][..vocabulary]))?;
        self.pasts()?.grow(slot, 1 + verified.accepted);
        Ok(verified)
    }

    /// As [`Session::verify`] where the largest logit is chosen among the tokens for which `banned(i, token)`
    /// is false, `i` the tokens of the draft that come before, and the lowest of several: what
    /// [`Session::step_argmax`] would say, at its price. An end token is a token like any other: a draft should
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
    /// // Two tokens by steps, and back.
    /// let first = session.step_argmax(&[StepRow { row, token: start }], &banned)?[0];
    /// let second = session.step_argmax(&[StepRow { row, token: first }], &banned)?[0];
    /// session.rewind(row, 0)?;
    /// // A draft with one that is wrong: the pass says so, and which is right.
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
        let verified = walk(draft, |i| Ok::<_, SearchError>(chosen(i)))?;
        self.pasts()?.shrink(slot, draft.len() - verified.accepted);
        Ok(verified)
    }

    /// `[rows and all tokens of drafts, vocabulary]`, row-major: feeds each of `rows` its token and its draft,
    /// and returns the logits after each of these, those of a row one after the other. They are those of
    /// as many [steps](Session::step), bit for bit, and the caller's to work in until the next call.
    ///
    /// This is [`Session::verify`] of many hypotheses, in two halves: afterwards they have been fed their
    /// whole drafts, and [`Session::rewind`] takes back what proves wrong.
    ///
    /// ```
    /// use simdformer::{DraftRow, Limits, Model, SourceId, Session, StepRow};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open("models/fr-en")?;
    /// // Three guesses a step, of both hypotheses together.
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
    /// // The second row goes back before its draft, and on by a step: the same logits.
    /// session.rewind(rows[1], 1)?;
    /// let step = session.step(&[StepRow { row: rows[1], token: 14 }])?;
    /// assert_eq!(step, &logits[4 * vocabulary..]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::step`]; more tokens in all drafts than were [planned](SessionError::BeyondPlan)
    /// (`draft_tokens`). Then nothing has changed.
    pub fn step_drafts(&mut self, rows: &[DraftRow<'_>]) -> Result<&mut [f32], SessionError> {
        Ok(self.feed_drafts(rows, None, &mut NoObserver)?.logits)
    }

    /// `[rows and all tokens of drafts]`: as [`Session::step_drafts`] for the best token after each of them,
    /// in place of logits: the one that [`Session::step_argmax`] would say where `banned(i, token)`, `i` an
    /// index into what is returned.
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
        Ok(decide(stepped, vocabulary, banned))
    }

    fn feed_drafts<T: LayerObserver>(
        &mut self,
        rows: &[DraftRow<'_>],
        banned: Option<Banned<'_>>,
        tap: &mut T,
    ) -> Result<StepOutput<'_>, SessionError> {
        self.plan.check_decodes()?;
        beyond("sentences * beams", self.plan.rows, rows.len())?;
        let (vocabulary, pasts) = (self.model.config().target_vocab, self.read_pasts());
        let mut drafted = 0_usize;
        for (index, &DraftRow { row, token, draft }) in rows.iter().enumerate() {
            let len = pasts.len(self.check_row(row)?).saturating_add(draft.len());
            drafted = drafted.saturating_add(draft.len());
            beyond("draft_tokens", self.plan.limits.draft_tokens, drafted)?;
            beyond("target_tokens", self.plan.limits.target_tokens, len.saturating_add(1))?;
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
        self.feed(rows.len() + drafted, fed, banned, tap)
    }
}

/// Goes along a draft as far as it is right.
fn walk<E>(
    draft: &[u32],
    mut choose: impl FnMut(usize) -> Result<Option<u32>, E>,
) -> Result<Verified, E> {
    for (accepted, &guess) in draft.iter().enumerate() {
        let next = choose(accepted)?;
        if next != Some(guess) {
            return Ok(Verified { accepted, next });
        }
    }
    Ok(Verified { accepted: draft.len(), next: choose(draft.len())? })
}
