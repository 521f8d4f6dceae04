//! The decoding loop with speculative decoding: drafts before a step, removal of rejected tokens after it.

use super::draft_length::{DraftLength, MOST_ROWS};
use super::drafter::{DraftContext, DraftRequest, Drafter};
use crate::error::Error;
use crate::generate::decode_loop::DecodeLoop;
use crate::generate::request::{DecodeStats, Event, Source, Stop};
use crate::model::IntoControlFlow;
use crate::search::{Hooks, SearchOptions};
use crate::session::{Session, check_limit};

impl Session<'_> {
    /// As [`Session::generate`], with speculative decoding: a step chooses several tokens if a draft of `drafter` is
    /// right. The output does not depend on the drafts: every token, probability and score is the same, and so is the
    /// input of the rules in `hooks`. A target that is known in advance takes a fraction of the time. After repeated
    /// misses, drafts become rare.
    ///
    /// The drafts of one step, of all active sentences, have at most
    /// [`Limits::draft_tokens`](crate::Limits::draft_tokens) tokens. Drafts are made only while few sentences are
    /// active: with many sentences, arithmetic limits the speed, and drafts do not reduce it. Beam search and several
    /// samples per sentence use no drafts.
    ///
    /// # Errors
    /// As [`Session::generate`]; the session was [planned](Error::BeyondLimit) without draft tokens.
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
    ///     Ok::<_, simdformer::Error>((tokens, counts.steps))
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
    ) -> Result<DecodeStats, Error> {
        self.plan.check_decodes()?;
        check_limit("draft_tokens", self.plan.limits.draft_tokens, 1)?;
        let mut on_event = |event: Event<'_>| on_event(event).answer();
        self.generate_with(sources, options, hooks, &mut on_event, Some(drafter))
    }
}

/// The draft of one sentence.
#[derive(Clone, Copy, Default)]
struct DraftEntry {
    /// The slot of the search.
    slot: u32,
    /// The index of the source in its request.
    index: usize,
    /// Index of its first word in the planned buffer of drafts.
    start: usize,
    /// The length of the slice that the drafter gets.
    most: usize,
}

impl DecodeLoop<'_, '_, '_> {
    /// Requests drafts if there are few rows. Returns the total number of draft tokens to feed.
    pub(crate) fn draft(
        &mut self,
        sources: &[Source<'_>],
        drafter: &mut dyn Drafter,
    ) -> Result<usize, Error> {
        let rows = self.search.rows().len();
        let share = if rows > MOST_ROWS { 0 } else { self.buffers.draft.len() / rows };
        if share == 0 {
            return Ok(0);
        }
        let config = self.session.model().config();
        let (shared, vocabulary) = (config.ties.source_target, config.target_vocab);
        let mut requests: [DraftRequest<'_>; MOST_ROWS] =
            core::array::from_fn(|_| DraftRequest::default());
        let (mut count, mut entries) = (0, [DraftEntry::default(); MOST_ROWS]);
        let buffers = self.buffers.draft.chunks_exact_mut(share).enumerate();
        for (&slot, (place, buffer)) in self.search.rows().sentences.iter().zip(buffers) {
            let state = &mut self.buffers.draft_length_states.as_chunks_mut().0[slot as usize];
            let mut length = DraftLength::of_words(*state);
            let most = self.search.draft_capacity(slot).min(share);
            let most = if most > 0 { length.next().min(most) } else { 0 };
            *state = length.words();
            if most == 0 {
                continue;
            }
            let index = self.buffers.source_of[slot as usize] as usize;
            let context = DraftContext {
                index,
                source: sources[index].tokens,
                shared,
                target: self.search.target(slot),
                prompt_len: self.search.prompt(slot).len(),
                active: rows,
            };
            requests[count] = DraftRequest { context, draft: &mut buffer[..most], found: 0 };
            entries[count] = DraftEntry { slot, index, start: place * share, most };
            count += 1;
        }
        let requests = &mut requests[..count];
        match requests {
            [] => return Ok(0),
            [request] => request.found = drafter.draft(&request.context, request.draft),
            _ => drafter.draft_all(requests),
        }
        // A drafter may reorder the requests, so each is found by the index of its source. A drafter may also replace
        // the slice of a request, so the tokens are read from the planned buffer, and `most` limits their number.
        let found = entries.map(|DraftEntry { index, most, .. }| {
            let request = requests.iter().find(|request| request.context.index == index);
            request.map_or(0, |request| request.found.min(most))
        });
        let mut drafted = 0;
        for (&DraftEntry { slot, start, .. }, found) in entries[..count].iter().zip(found) {
            let draft = &self.buffers.draft[start..][..found];
            let inside = draft.iter().take_while(|&&id| (id as usize) < vocabulary).count();
            let taken = self.search.draft(slot, &draft[..inside])?;
            self.buffers.draft_lens[slot as usize] = taken as u32;
            drafted += taken;
        }
        Ok(drafted)
    }

    /// Removes the rejected draft tokens of the last step and updates the draft lengths. Returns the number of accepted
    /// tokens.
    pub(crate) fn settle_drafts(&mut self) -> Result<usize, Error> {
        let mut accepted_total = 0;
        for slot in 0..self.buffers.draft_lens.len() {
            let drafted = core::mem::take(&mut self.buffers.draft_lens[slot]) as usize;
            if drafted == 0 {
                continue;
            }
            // A sentence with drafts has one sequence, which stays in its first row.
            let row = self.buffers.first_row[slot];
            let fed = self.session.kv_slots().len(row as usize);
            // The last token of the target is chosen but not fed.
            let kept_len = self.search.target(slot as u32).len() - 1;
            let accepted = (kept_len + drafted).saturating_sub(fed);
            self.session.rewind_slot(row, kept_len.min(fed))?;
            let state = &mut self.buffers.draft_length_states.as_chunks_mut().0[slot];
            let mut length = DraftLength::of_words(*state);
            length.record(accepted, drafted);
            *state = length.words();
            accepted_total += accepted;
        }
        Ok(accepted_total)
    }
}
