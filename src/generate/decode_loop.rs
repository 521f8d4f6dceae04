//! The decoding loop. A [`Search`] states which tokens to feed, and the session computes their logits. New sentences
//! are encoded when slots become free.

use super::request::{DecodeStats, Event, Generated, OnEvent, Source, Stop};
use super::source_queue::SourceQueue;
use super::speculative::draft_length::DraftLength;
use super::speculative::drafter::Drafter;
use crate::error::Error;
use crate::input_features::Features;
use crate::kv::SourceId;
use crate::memory::Buffer;
use crate::model::IntoControlFlow;
use crate::ref_or_arc::RefOrArc;
use crate::search::{Finish, Hooks, OnToken, Search, SearchOptions, SlotOptions, Token};
use crate::session::{Inputs, Keys, LoopBuffers, Output, SOURCES_PER_CALL, Session, StepOutput};
use core::cell::Cell;
use core::ops::ControlFlow;
use simdformer_kernels::Parallelism;

impl Session<'_> {
    /// Translates `sources` under `options`, or their [own](Source::options), and the caller's `hooks`, and calls `on_event` with each event. If there
    /// are more sources than slots, each free slot is filled before the next step. The result for a sentence does not
    /// depend on the other sentences.
    ///
    /// `on_event` returns `()` or a `ControlFlow<Stop>`, which ends one source or the whole call. A source that
    /// [`Session::check`] rejects makes the whole call an error, unless `on_event` answers its
    /// [`Event::Refused`] with [`Stop::Source`]: then only this source has no result.
    ///
    /// Releases all sentences and hypotheses that the session held. Does not allocate.
    ///
    /// # Errors
    /// Options [beyond the plan](Error::BeyondLimit) or [invalid options](Error::InvalidOption); a
    /// source that [`Session::check`] rejects and the caller does not skip, with its [index](Error::index). All of
    /// this is checked first, and such an error changes nothing. During decoding, a rule that allows no token or an error of a processor has
    /// the index of its source, too; sources that were finished before have been reported. Scores that are
    /// NaN or `+inf` are no error: only their source ends, with [`Finish::NotFinite`].
    ///
    /// ```
    /// use core::ops::ControlFlow;
    /// use simdformer::search::{Finish, Hooks};
    /// use simdformer::{Event, Limits, Model, Session, Source, Stop};
    /// use std::time::{Duration, Instant};
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(2, 32, 48))?;
    /// let options = session.search_options();
    /// let sources = [Source::new(&[6, 11, 0]), Source::new(&[9, 14, 32, 0]), Source::new(&[8, 0])];
    ///
    /// // Streams all sources, ends the second one at its third token, and ends the call at a deadline.
    /// let deadline = Instant::now() + Duration::from_secs(60);
    /// let mut streams = vec![Vec::new(); sources.len()];
    /// let mut finishes = vec![None; sources.len()];
    /// let counts = session.generate(&sources, &options, &mut Hooks::default(), &mut |event| {
    ///     match event {
    ///         Event::Step(_) if Instant::now() > deadline => return ControlFlow::Break(Stop::All),
    ///         Event::Token { source, token } => {
    ///             streams[source].push(token.id);
    ///             if source == 1 && token.index == 2 {
    ///                 return ControlFlow::Break(Stop::Source);
    ///             }
    ///         }
    ///         Event::Done(done) => {
    ///             let best = done.hypotheses().next().map(|hypothesis| hypothesis.tokens);
    ///             assert_eq!(best, Some(&streams[done.source][..]));
    ///             finishes[done.source] = Some(done.finish);
    ///         }
    ///         _ => (),
    ///     }
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(finishes, [Finish::End, Finish::Stopped, Finish::End].map(Some));
    /// assert_eq!((streams[1].len(), counts.cancelled), (3, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn generate<A: IntoControlFlow<Stop>>(
        &mut self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        hooks: &mut Hooks<'_>,
        on_event: &mut dyn FnMut(Event<'_>) -> A,
    ) -> Result<DecodeStats, Error> {
        let mut on_event = |event: Event<'_>| on_event(event).answer();
        self.generate_with(sources, options, hooks, &mut on_event, None)
    }

    /// [`Session::generate`], with drafts if there is a drafter.
    pub(super) fn generate_with(
        &mut self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
        drafter: Option<&mut dyn Drafter>,
    ) -> Result<DecodeStats, Error> {
        self.plan.check_options(options)?;
        let mut queue = SourceQueue::new(sources, &[], 1);
        queue.check(&self.plan, options, on_event)?;
        self.generate_from(&queue, options, hooks, on_event, drafter)
    }

    /// [`Session::generate_with`], with sources that were checked and that other sessions may take from at the same time.
    pub(super) fn generate_from(
        &mut self,
        queue: &SourceQueue<'_>,
        options: &SearchOptions,
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
        drafter: Option<&mut dyn Drafter>,
    ) -> Result<DecodeStats, Error> {
        let mut guard = BufferGuard::new(self);
        let mut decode_loop = guard.decode_loop(options)?;
        let result = decode_loop.decode_sources(queue, hooks, on_event, drafter);
        let slots = decode_loop.search.into_slots();
        *guard.session.slots.vec_mut() = slots;
        result
    }
}

/// The buffer of the decoding loop, moved out of its session. `drop` moves it back, also if a callback panics.
pub(super) struct BufferGuard<'l, 's> {
    pub(super) session: &'l mut Session<'s>,
    pub(super) buffer: Buffer<'s>,
    /// The session holds sentences of the search.
    pub(super) started: bool,
}

impl<'l, 's> BufferGuard<'l, 's> {
    /// The loop borrows its buffer and the session at the same time, so the buffer is moved out of the session.
    pub(super) fn new(session: &'l mut Session<'s>) -> Self {
        let buffer = core::mem::replace(&mut session.decode_loop, Buffer::empty());
        Self { session, buffer, started: false }
    }

    /// A loop without sources, under valid options, which hold for sources without their own.
    pub(super) fn decode_loop<'g>(
        &'g mut self,
        options: &'g SearchOptions,
    ) -> Result<DecodeLoop<'g, 's, 'g>, Error> {
        let mut buffers = self.session.plan.decode_loop.split(self.buffer.floats_mut())?;
        let memory = core::mem::take(&mut buffers.search);
        let slots = core::mem::take(self.session.slots.vec_mut());
        let search = Search::with_slots(options, &self.session.plan.search, memory, slots)?;
        self.started = true;
        self.session.clear();
        buffers.source_of.fill(NONE);
        buffers.draft_lens.fill(0);
        Ok(DecodeLoop { session: &mut *self.session, search, options, buffers })
    }
}

impl Drop for BufferGuard<'_, '_> {
    fn drop(&mut self) {
        core::mem::swap(&mut self.session.decode_loop, &mut self.buffer);
        if self.started {
            self.session.clear();
        }
    }
}

/// Marks a slot of the search without a source.
pub(super) const NONE: u32 = u32::MAX;

/// The state of a decoding loop, in planned memory.
pub(super) struct DecodeLoop<'d, 's, 'm> {
    pub(super) session: &'d mut Session<'s>,
    pub(super) search: Search<'m>,
    /// The options of the call.
    pub(super) options: &'m SearchOptions,
    /// Without the memory of the search.
    pub(super) buffers: LoopBuffers<'m>,
}

impl<'m> DecodeLoop<'_, '_, 'm> {
    fn decode_sources(
        &mut self,
        queue: &SourceQueue<'m>,
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
        mut drafter: Option<&mut dyn Drafter>,
    ) -> Result<DecodeStats, Error> {
        let mut counts = DecodeStats::default();
        let mut cancelled = false;
        while !cancelled {
            if on_event(Event::Step(counts)) == ControlFlow::Break(Stop::All) {
                break;
            }
            while self.admit(queue)? > 0 {}
            if self.search.rows().is_empty() {
                return Ok(counts);
            }
            let mut on_event = |event: Event<'_>| {
                if let Event::Done(_) = event {
                    queue.finish();
                }
                on_event(event)
            };
            let drafts = drafter.as_deref_mut().map(|drafter| (queue.sources(), drafter));
            cancelled = self.step(hooks, &mut on_event, drafts, &mut counts)?;
        }
        self.cancel(on_event, &mut counts)?;
        // The sources that no session has taken.
        while let Some(source) = queue.take(|_| true) {
            counts.cancelled += 1;
            let (finish, search) = (Finish::Stopped, &self.search);
            let _ = on_event(Event::Done(Generated { source, finish, search, slot: NONE }));
        }
        Ok(counts)
    }

    /// One step of all requests that are decoded, with drafts for sources of these numbers if there is a drafter. Reports
    /// tokens and finished requests. Returns whether the caller ends the whole call.
    pub(super) fn step(
        &mut self,
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
        drafts: Option<(&[Source<'_>], &mut (dyn Drafter + '_))>,
        stats: &mut DecodeStats,
    ) -> Result<bool, Error> {
        let rows = self.search.rows().len();
        self.assign_slots(hooks)?;
        let drafted = match drafts {
            Some((sources, drafter)) => self.draft(sources, drafter)?,
            None => 0,
        };
        let ended = self.advance(rows, hooks, on_event)?;
        stats.steps += 1;
        stats.rows += rows;
        if drafted > 0 {
            stats.drafted += drafted;
            stats.accepted += self.settle_drafts()?;
        }
        self.drop_rows(rows)?;
        Ok(self.report(on_event)? | ended)
    }

    /// Runs one pass of the decoder and of the search. Returns whether the caller ends the whole call.
    fn advance(
        &mut self,
        rows: usize,
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<bool, Error> {
        let scored = self.search.lines_with_logits(hooks);
        let mut scratch = if scored == 0 { None } else { self.search.lend_scratch(hooks) };
        let (search, now) = (&self.search, &self.buffers.now[..rows]);
        let (tokens, sentences) = (search.rows().tokens, search.rows().sentences);
        let fed = (0..rows).flat_map(|i| {
            let draft = search.drafted(sentences[i]).iter().copied();
            core::iter::once(tokens[i]).chain(draft).map(move |token| (now[i], token))
        });
        let cancelled = Cell::new(false);
        let source_of = &*self.buffers.source_of;
        let mut on_token = |slot: u32, token: Token| {
            let source = source_of[slot as usize] as usize;
            // After `Stop::All` the other rows of this step get no event: they are stopped together.
            if !cancelled.get() {
                match on_event(Event::Token { source, token }) {
                    ControlFlow::Break(Stop::Source) => return ControlFlow::Break(()),
                    ControlFlow::Break(Stop::All) => cancelled.set(true),
                    ControlFlow::Continue(()) => (),
                }
            }
            ControlFlow::Continue(())
        };
        let muted = || cancelled.get();
        let on_token: OnToken<'_> = &mut on_token;
        // The threads of the pass also prepare each row of logits for the search.
        let mut prepare = |threads: Parallelism<'_>, logits: &mut [f32]| {
            if let Some(scratch) = &mut scratch {
                search.prepare(threads, logits, scratch);
            }
        };
        let banned = |row, token| search.banned(row, token);
        let output = match scored {
            0 => Output::Argmax(&banned),
            all if all == search.lines() => Output::Logits(Some(&mut prepare)),
            logits => Output::Split { logits, then: &mut prepare, banned: &banned },
        };
        let StepOutput { best, logits } = self.session.forward(fed, Keys::PerToken, output)?;
        if let Some(scratch) = scratch {
            self.search.take_back(scratch);
        }
        let advanced = self.search.advance_with(logits, Some(best), hooks, Some(on_token), &muted);
        match advanced {
            Ok(_) => Ok(cancelled.get()),
            Err(error) => Err(self.source_error(error)),
        }
    }

    /// Maps an error of the search about one of its slots to the source in that slot.
    fn source_error(&self, error: Error) -> Error {
        match self.search.failed() {
            Some(slot) => error.with_index(self.buffers.source_of[slot as usize] as usize),
            None => error,
        }
    }

    /// Encodes the next sources of the queue as far as free slots, `batch_tokens` and the other sessions allow. Returns
    /// their number.
    fn admit(&mut self, queue: &SourceQueue<'m>) -> Result<usize, Error> {
        let limits = self.session.plan.limits;
        let mut indices = [NONE; SOURCES_PER_CALL];
        let mut sources = [Source::default(); SOURCES_PER_CALL];
        let (mut count, mut tokens) = (0, 0);
        let free = self.session.free_sentences();
        let most = queue.capacity(limits.sentences - free, free).min(SOURCES_PER_CALL);
        while count < most {
            let fits = |source: &Source<'_>| tokens + source.positions() <= limits.batch_tokens;
            let Some(index) = queue.take(fits) else { break };
            indices[count] = index as u32;
            sources[count] = queue.sources()[index];
            tokens += sources[count].positions();
            count += 1;
        }
        let sources = &sources[..count];
        let options = |i: usize| RefOrArc::Borrowed(sources[i].options.unwrap_or(self.options));
        self.admit_sources(sources, &mut { options }, &mut |i, _| indices[i])
    }

    /// Encodes the first of `sources`, as far as free slots and `batch_tokens` allow. Returns their number. `options` of
    /// the index of a source are its valid options; `number` of the index and of its slot is its number in events.
    pub(super) fn admit_sources(
        &mut self,
        sources: &[Source<'_>],
        options: &mut dyn FnMut(usize) -> SlotOptions<'m>,
        number: &mut dyn FnMut(usize, u32) -> u32,
    ) -> Result<usize, Error> {
        let limits = self.session.plan.limits;
        let mut tokens_of: [&[u32]; SOURCES_PER_CALL] = [&[]; SOURCES_PER_CALL];
        let mut features_of = [Features::default(); SOURCES_PER_CALL];
        let mut slots = [SourceId::default(); SOURCES_PER_CALL];
        let (mut count, mut tokens) = (0, 0);
        let free_slots = self.session.free_sentences().min(SOURCES_PER_CALL);
        for source in sources.iter().take(free_slots) {
            let len = source.positions();
            if tokens + len > limits.batch_tokens {
                break;
            }
            tokens_of[count] = source.tokens;
            features_of[count] = source.features.unwrap_or_default();
            tokens += len;
            count += 1;
        }
        let inputs = match self.session.plan.bins {
            None => Inputs::Tokens(&tokens_of[..count]),
            Some(_) => Inputs::Features(&features_of[..count]),
        };
        self.session.encode_inputs(inputs, &mut slots[..count])?;
        for (i, &sentence) in slots[..count].iter().enumerate() {
            let row = self.session.start_slot(sentence.slot())?;
            let slot = self.admit_started(&sources[i], row, options(i))?;
            self.buffers.source_of[slot as usize] = number(i, slot);
            self.buffers.sentence_of[slot as usize] = sentence.slot();
        }
        Ok(count)
    }

    /// Starts the search of a source with the hypothesis in `row`, which has been fed tokens of its prompt, and feeds the
    /// others. Returns the slot of the search. The source stays encoded after it.
    pub(super) fn admit_started(
        &mut self,
        source: &Source<'_>,
        row: u32,
        options: SlotOptions<'m>,
    ) -> Result<u32, Error> {
        let slot = self.search.admit_valid(&source.request(), options)?;
        // The first step feeds the last token.
        let Some((_, prompt)) = self.search.prompt(slot).split_last() else { return Ok(slot) };
        let fed = self.session.kv_slots().len(row as usize).min(prompt.len());
        self.session.rewind_slot(row, fed)?;
        if !prompt.is_empty() {
            self.session.prefill_slot(row as usize, &prompt[fed..], None)?;
            self.search.skip_prompt(slot)?;
        }
        self.buffers.source_of[slot as usize] = slot;
        self.buffers.sentence_of[slot as usize] = NONE;
        self.buffers.first_row[slot as usize] = row;
        if let Some(length_state) =
            self.buffers.draft_length_states.as_chunks_mut().0.get_mut(slot as usize)
        {
            *length_state = DraftLength::begin().words();
        }
        Ok(slot)
    }

    /// Orders the rows of the search and assigns a hypothesis slot to each. The first child of a row takes the slot of its parent; each
    /// other child forks the parent.
    pub(super) fn assign_slots(&mut self, hooks: &Hooks<'_>) -> Result<(), Error> {
        const TAKEN: u32 = u32::MAX;
        self.search.group_rows(hooks);
        let rows = self.search.rows();
        for i in 0..rows.len() {
            let parent = rows.parents[i];
            self.buffers.now[i] = if parent == u32::MAX {
                self.buffers.first_row[rows.sentences[i] as usize]
            } else {
                let row = self.buffers.before[parent as usize];
                let children = &mut self.buffers.children[parent as usize];
                if *children == TAKEN {
                    self.session.fork_slot(row)?
                } else {
                    *children = TAKEN;
                    row
                }
            };
        }
        Ok(())
    }

    /// Releases the rows without children.
    pub(super) fn drop_rows(&mut self, stepped: usize) -> Result<(), Error> {
        let LoopBuffers { now, before, .. } = &mut self.buffers;
        core::mem::swap(now, before);
        self.buffers.children[..stepped].fill(0);
        for &parent in self.search.rows().parents {
            if parent != u32::MAX {
                self.buffers.children[parent as usize] += 1;
            }
        }
        for i in 0..stepped {
            if self.buffers.children[i] == 0 {
                self.session.release_slot(self.buffers.before[i])?;
            }
        }
        Ok(())
    }

    /// Reports and releases the finished sentences. Returns whether the caller ends the whole call.
    pub(super) fn report(&mut self, on_event: OnEvent<'_>) -> Result<bool, Error> {
        let mut cancelled = false;
        for slot in 0..self.buffers.source_of.len() {
            let source = self.buffers.source_of[slot];
            let Some(finish) = self.search.finish(slot as u32).filter(|_| source != NONE) else {
                continue;
            };
            let (source, search) = (source as usize, &self.search);
            let done = Generated { source, finish, search, slot: slot as u32 };
            cancelled |= on_event(Event::Done(done)) == ControlFlow::Break(Stop::All);
            self.search.release(slot as u32)?;
            match self.buffers.sentence_of[slot] {
                NONE => (), // the queue has encoded it, and releases it
                sentence => self.session.release_sentence_slot(sentence)?,
            }
            self.buffers.source_of[slot] = NONE;
        }
        Ok(cancelled)
    }

    /// Stops the active sources, and reports them.
    pub(super) fn cancel(
        &mut self,
        on_event: OnEvent<'_>,
        counts: &mut DecodeStats,
    ) -> Result<(), Error> {
        for slot in 0..self.buffers.source_of.len() {
            if self.buffers.source_of[slot] != NONE {
                self.search.stop(slot as u32)?;
                counts.cancelled += 1;
            }
        }
        // The return value is ignored: the call ends in any case.
        self.report(on_event)?;
        Ok(())
    }
}
