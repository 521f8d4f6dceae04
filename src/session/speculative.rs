//! The decoding loop with guesses: before a step a drafter is asked, after it what was wrong is taken back.

use super::draft_length::{DraftLength, MOST_ROWS};
use super::drafter::{DraftContext, DraftRequest, Drafter};
use super::error::SessionError;
use super::event::{DecodeStats, Event, Stop};
use super::generate::{DecodeHooks, DecodeLoop, Source};
use super::session::{Session, beyond};
use crate::model::IntoControlFlow;
use crate::model::layer_observer::NoObserver;
use crate::search::{Hooks, SearchOptions};

impl Session<'_> {
    /// As [`Session::generate`], with guesses at what comes next: where `drafter` is right, a step chooses
    /// several tokens. What comes out is the same, whatever is guessed: every token, probability and score,
    /// and what the rules in `hooks` see. A target that is known in advance takes a fraction of the time; guesses
    /// that are always wrong soon become rare.
    ///
    /// A draft is at most [`Limits::draft_tokens`](crate::Limits::draft_tokens) long, of all sentences that
    /// live, of which there must be few: for many at a time the arithmetic is what takes time, and it is not
    /// saved. Beam search and several samples of a sentence take no drafts.
    ///
    /// # Errors
    /// As [`Session::generate`]; the session was [planned](SessionError::BeyondPlan) without drafts.
    ///
    /// ```
    /// use simdformer::search::Hooks;
    /// use simdformer::{Event, ReferenceDrafter, Limits, Model, PromptLookup, Session, Source};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open("models/fr-en")?;
    /// let limits = Limits { draft_tokens: 16, ..Limits::new(1, 32, 48) };
    /// let mut session = Session::new(&model, limits)?;
    /// let options = session.search_options();
    /// let source = Source::new(&[6, 11, 0]);
    /// let mut translate = |expected: &[u32]| {
    ///     let given = [expected];
    ///     let mut drafter = (ReferenceDrafter(&given), PromptLookup::default());
    ///     let mut tokens = Vec::new();
    ///     let mut on_event = |event: Event<'_>| {
    ///         if let Event::Token { token, .. } = event {
    ///             tokens.push(token.id);
    ///         }
    ///     };
    ///     let hooks = &mut Hooks::default();
    ///     let counts =
    ///         session.generate_drafted(&[source], &options, hooks, &mut drafter, &mut on_event)?;
    ///     Ok::<_, simdformer::SessionError>((tokens, counts.steps))
    /// };
    /// let (first, steps) = translate(&[])?;
    /// let (again, fewer) = translate(&first)?;
    /// assert_eq!(first, again);
    /// assert!(fewer < steps);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn generate_drafted<A: IntoControlFlow<Stop>>(
        &mut self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        hooks: &mut Hooks<'_>,
        drafter: &mut dyn Drafter,
        on_event: &mut dyn FnMut(Event<'_>) -> A,
    ) -> Result<DecodeStats, SessionError> {
        self.plan.check_decodes()?;
        beyond("draft_tokens", self.plan.limits.draft_tokens, 1)?;
        let mut on_event = |event: Event<'_>| on_event(event).answer();
        self.generate_with(
            sources,
            options,
            hooks,
            &mut on_event,
            DecodeHooks { tap: &mut NoObserver, wants_logits: false, drafter: Some(drafter) },
        )
    }
}

/// Where the draft of a sentence lies.
#[derive(Clone, Copy, Default)]
struct DraftPlace {
    /// The slot of the search.
    slot: u32,
    /// The source in its request.
    index: usize,
    /// First word in the planned memory of drafts.
    start: usize,
    /// The length of the slice that the drafter is given.
    most: usize,
}

impl DecodeLoop<'_, '_, '_> {
    /// Asks for drafts where there are few rows; returns how many tokens there are to feed with them.
    pub(super) fn draft(
        &mut self,
        sources: &[Source<'_>],
        drafter: &mut dyn Drafter,
    ) -> Result<usize, SessionError> {
        let rows = self.search.rows().len();
        let share = if rows > MOST_ROWS { 0 } else { self.draft.len() / rows };
        if share == 0 {
            return Ok(0);
        }
        let config = self.session.model().config();
        let (shared, vocabulary) = (config.ties.source_target, config.target_vocab);
        let mut asked: [DraftRequest<'_>; MOST_ROWS] =
            core::array::from_fn(|_| DraftRequest::default());
        let (mut count, mut places) = (0, [DraftPlace::default(); MOST_ROWS]);
        let rooms = self.draft.chunks_exact_mut(share).enumerate();
        for (&slot, (place, room)) in self.search.rows().sentences.iter().zip(rooms) {
            let pace = &mut self.paces.as_chunks_mut().0[slot as usize];
            let mut now = DraftLength::of_words(*pace);
            let most = self.search.draft_room(slot).min(share);
            let most = if most > 0 { now.next().min(most) } else { 0 };
            *pace = now.words();
            if most == 0 {
                continue;
            }
            let index = self.source_of[slot as usize] as usize;
            let context = DraftContext {
                index,
                source: sources[index].tokens,
                shared,
                target: self.search.target(slot),
                prompt_len: self.search.prompt(slot).len(),
                living: rows,
            };
            asked[count] = DraftRequest { context, draft: &mut room[..most], found: 0 };
            places[count] = DraftPlace { slot, index, start: place * share, most };
            count += 1;
        }
        let asked = &mut asked[..count];
        match asked {
            [] => return Ok(0),
            [one] => one.found = drafter.draft(&one.context, one.draft),
            _ => drafter.draft_all(asked),
        }
        // They may be in any order: each is known by its source. A drafter may also have put another slice in place
        // of its own, so the tokens are read from the planned memory, and `most` bounds how many.
        let found = places.map(|DraftPlace { index, most, .. }| {
            let asked = asked.iter().find(|asked| asked.context.index == index);
            asked.map_or(0, |asked| asked.found.min(most))
        });
        let mut drafted = 0;
        for (&DraftPlace { slot, start, .. }, found) in places[..count].iter().zip(found) {
            let draft = &self.draft[start..][..found];
            let inside = draft.iter().take_while(|&&id| (id as usize) < vocabulary).count();
            let taken = self.search.draft(slot, &draft[..inside])?;
            self.draft_lens[slot as usize] = taken as u32;
            drafted += taken;
        }
        Ok(drafted)
    }

    /// Takes back what was wrong in the drafts of the last step, and learns from it; returns how many of
    /// their tokens were right.
    pub(super) fn settle_drafts(&mut self) -> Result<usize, SessionError> {
        let mut right = 0;
        for slot in 0..self.draft_lens.len() {
            let drafted = core::mem::take(&mut self.draft_lens[slot]) as usize;
            if drafted == 0 {
                continue;
            }
            // One sequence: it never leaves its first row.
            let row = self.first_row[slot];
            let fed = self.session.read_pasts().len(row as usize);
            // The last token is chosen and not fed.
            let stays = self.search.target(slot as u32).len() - 1;
            let accepted = (stays + drafted).saturating_sub(fed);
            self.session.rewind_slot(row, stays.min(fed))?;
            let pace = &mut self.paces.as_chunks_mut().0[slot];
            let mut now = DraftLength::of_words(*pace);
            now.record(accepted, drafted);
            *pace = now.words();
            right += accepted;
        }
        Ok(right)
    }
}
