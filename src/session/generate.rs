//! The decoding loop: a [`Search`] says what to feed, the session computes,
//! sentences come in as slots become free.

use super::draft_length::DraftLength;
use super::drafter::Drafter;
use super::encode::{Inputs, SOURCES_PER_CALL};
use super::error::{SessionError, SourceError};
use super::event::{DecodeStats, Event, Generated, OnEvent, Stop};
use super::handles::SourceId;
use super::plan::Plan;
use super::pruning_policy::StepOutput;
use super::session::Session;
use crate::features::Features;
use crate::memory::{Buffer, cut, words_mut};
use crate::model::IntoControlFlow;
use crate::model::layer_observer::{LayerObserver, NoObserver};
use crate::search::{Finish, Hooks, OnToken, Request, Search, SearchError, SearchOptions, Token};
use core::cell::Cell;
use core::ops::ControlFlow;
use simdformer_kernels::Parallelism;

/// One sentence to translate.
///
/// ```
/// use simdformer::Source;
///
/// let plain = Source::new(&[6, 11, 0]);
/// // It must go on from these words, and draws its samples from a stream of its own.
/// let special = Source { prefix: &[554, 9], stream: 7, ..plain };
/// assert_eq!(special.tokens, plain.tokens);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'s> {
    /// Ids of the source, end token included: at least 1, at most
    /// [`Limits::source_tokens`](crate::Limits::source_tokens). Empty where there are features.
    pub tokens: &'s [u32],
    /// Ids of the target that must follow the decoder start. Not part of hypotheses or scores.
    pub prefix: &'s [u32],
    /// Which random numbers sampling uses, see [`Request::stream`].
    pub stream: u64,
    /// Overrides [`SearchOptions::forced_bos`]: the target language of one sentence.
    pub forced_bos: Option<u32>,
    /// What the encoder reads in place of ids, where it does.
    pub features: Option<Features<'s>>,
}

impl<'s> Source<'s> {
    /// A sentence without special wishes.
    pub const fn new(tokens: &'s [u32]) -> Self {
        Self { tokens, prefix: &[], stream: 0, forced_bos: None, features: None }
    }

    /// Features without special wishes.
    pub const fn of_features(features: Features<'s>) -> Self {
        Self { features: Some(features), ..Self::new(&[]) }
    }

    /// Positions of the encoder.
    const fn positions(&self) -> usize {
        match &self.features {
            Some(features) => features.positions(),
            None => self.tokens.len(),
        }
    }

    /// What a search is to know of it.
    pub const fn request(&self) -> Request<'s> {
        Request {
            prefix: self.prefix,
            source: self.tokens,
            stream: self.stream,
            forced_bos: self.forced_bos,
        }
    }
}

impl Session<'_> {
    /// Translates `sources` under `options` and the caller's own rules, calling `on_event` with what
    /// happens. More sources than the session has slots wait their turn: a slot that becomes free is
    /// filled before the next step, and what a sentence becomes does not depend on its neighbors.
    ///
    /// `on_event` returns nothing, or a `ControlFlow<Stop>`: to end one source, or the whole call.
    ///
    /// Forgets all sentences and hypotheses that the session held. Allocates nothing.
    ///
    /// # Errors
    /// Options [beyond the plan](SessionError::OptionBeyondPlan) or [wrong](SessionError::Search), or a
    /// [source](SessionError::Source) that [`Session::check`] refuses, with its number: all are checked
    /// first, and then nothing has been done. A rule that allows no token, an error of a processor: a
    /// [source](SessionError::Source) again; then sentences that were done before have been reported.
    /// Scores that are NaN or `+inf` are no error: their source alone is done, with [`Finish::NotFinite`].
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
    /// // Streams all of them, ends the second at its third token, and everything at a deadline.
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
    ) -> Result<DecodeStats, SessionError> {
        let mut on_event = |event: Event<'_>| on_event(event).answer();
        self.generate_with(
            sources,
            options,
            hooks,
            &mut on_event,
            DecodeHooks { tap: &mut NoObserver, wants_logits: false, drafter: None },
        )
    }

    pub(super) fn generate_with<T: LayerObserver>(
        &mut self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
        looks: DecodeHooks<'_, T>,
    ) -> Result<DecodeStats, SessionError> {
        self.plan.check_decodes()?;
        // The search's memory leaves the session while both are at work.
        let lent = core::mem::replace(&mut self.search, Buffer::nothing());
        let mut loan = BufferGuard { session: self, lent, begun: false };
        let memory = cut_search_memory(&loan.session.plan, &mut loan.lent)?;
        let mut drive = DecodeLoop::new(loan.session, options, memory)?;
        for (index, source) in sources.iter().enumerate() {
            drive.session.plan.check_source(index, source, options)?;
        }
        loan.begun = true;
        drive.session.clear();
        drive.run(sources, hooks, on_event, looks)
    }
}

/// Who looks on, and who looks ahead.
pub(super) struct DecodeHooks<'t, T> {
    pub(super) tap: &'t mut T,
    /// Logits are shown: all of them are computed, also where the best token could be told without.
    pub(super) wants_logits: bool,
    pub(super) drafter: Option<&'t mut dyn Drafter>,
}

/// The search's memory outside its session. It goes back in the end, also when a callback panics.
struct BufferGuard<'l, 's> {
    session: &'l mut Session<'s>,
    lent: Buffer<'s>,
    /// The session holds sentences of the search.
    begun: bool,
}

impl Drop for BufferGuard<'_, '_> {
    fn drop(&mut self) {
        core::mem::swap(&mut self.session.search, &mut self.lent);
        if self.begun {
            self.session.clear();
        }
    }
}

fn cut_search_memory<'m>(
    plan: &Plan,
    lent: &'m mut Buffer<'_>,
) -> Result<Memory<'m>, SessionError> {
    let [search, now, before, children, source_of, sentence_of, first_row, draft, lens, paces] =
        cut(
            lent,
            [
                &plan.search_words,
                &plan.search_now,
                &plan.search_before,
                &plan.search_children,
                &plan.search_source,
                &plan.search_sentence,
                &plan.search_first_row,
                &plan.draft,
                &plan.draft_lens,
                &plan.paces,
            ],
        )?;
    Ok(Memory {
        search: words_mut(search),
        now: words_mut(now),
        before: words_mut(before),
        children: words_mut(children),
        source_of: words_mut(source_of),
        sentence_of: words_mut(sentence_of),
        first_row: words_mut(first_row),
        draft: words_mut(draft),
        draft_lens: words_mut(lens),
        paces: words_mut(paces),
    })
}

/// No source.
const NONE: u32 = u32::MAX;

/// What the loop remembers, in planned memory.
struct Memory<'m> {
    search: &'m mut [u32],
    /// Row slots of the search's rows, in this step and the one before.
    now: &'m mut [u32],
    before: &'m mut [u32],
    /// How often each row of the step before is continued.
    children: &'m mut [u32],
    /// For each slot of the search: which source is in it, and the session's slots for it.
    source_of: &'m mut [u32],
    sentence_of: &'m mut [u32],
    first_row: &'m mut [u32],
    /// A draft in the making; for each slot of the search, how long that of this step is, and its [`DraftLength`].
    draft: &'m mut [u32],
    draft_lens: &'m mut [u32],
    paces: &'m mut [u32],
}

pub(super) struct DecodeLoop<'d, 's, 'm> {
    pub(super) session: &'d mut Session<'s>,
    pub(super) search: Search<'m>,
    now: &'m mut [u32],
    before: &'m mut [u32],
    children: &'m mut [u32],
    pub(super) source_of: &'m mut [u32],
    sentence_of: &'m mut [u32],
    pub(super) first_row: &'m mut [u32],
    pub(super) draft: &'m mut [u32],
    pub(super) draft_lens: &'m mut [u32],
    pub(super) paces: &'m mut [u32],
}

impl<'d, 's, 'm> DecodeLoop<'d, 's, 'm> {
    fn new(
        session: &'d mut Session<'s>,
        options: &'m SearchOptions,
        memory: Memory<'m>,
    ) -> Result<Self, SessionError> {
        let Memory {
            search,
            now,
            before,
            children,
            source_of,
            sentence_of,
            first_row,
            draft,
            draft_lens,
            paces,
        } = memory;
        let search = Search::new(options, &session.plan.search, search)
            .map_err(|error| session.plan.option_error(error))?;
        source_of.fill(NONE);
        draft_lens.fill(0);
        Ok(Self {
            session,
            search,
            now,
            before,
            children,
            source_of,
            sentence_of,
            first_row,
            draft,
            draft_lens,
            paces,
        })
    }

    fn run<T: LayerObserver>(
        &mut self,
        sources: &[Source<'_>],
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
        DecodeHooks { tap, wants_logits, mut drafter }: DecodeHooks<'_, T>,
    ) -> Result<DecodeStats, SessionError> {
        let mut counts = DecodeStats::default();
        let mut next = 0;
        let mut cancelled = false;
        while !cancelled {
            if on_event(Event::Step(counts)) == ControlFlow::Break(Stop::All) {
                break;
            }
            while next < sources.len() {
                let admitted = self.admit(sources, next, tap)?;
                if admitted == 0 {
                    break;
                }
                next += admitted;
            }
            let rows = self.search.rows().len();
            if rows == 0 {
                return Ok(counts);
            }
            self.place_rows()?;
            let drafted = match &mut drafter {
                Some(drafter) => self.draft(sources, &mut **drafter)?,
                None => 0,
            };
            cancelled = self.step((rows, drafted), hooks, on_event, tap, wants_logits)?;
            counts.steps += 1;
            counts.rows += rows;
            if drafted > 0 {
                counts.drafted += drafted;
                counts.accepted += self.settle_drafts()?;
            }
            self.drop_rows(rows)?;
            cancelled |= self.report(on_event)?;
        }
        self.cancel(next..sources.len(), on_event, &mut counts)?;
        Ok(counts)
    }

    /// One step of the decoder and of the search; whether everything is to end.
    fn step<T: LayerObserver>(
        &mut self,
        (rows, drafted): (usize, usize),
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
        tap: &mut T,
        wants_logits: bool,
    ) -> Result<bool, SessionError> {
        let needs_argmax_only = self.search.needs_argmax_only(hooks) && !wants_logits;
        let mut room = if needs_argmax_only { None } else { self.search.lend_room(hooks) };
        let (now, tokens) = (&self.now[..rows], self.search.rows().tokens);
        let row = |i| (now[i], tokens[i]);
        let sentences = self.search.rows().sentences;
        let search = &self.search;
        let fed = (0..rows).flat_map(|i| {
            let draft = search.drafted(sentences[i]).iter().copied();
            core::iter::once(tokens[i]).chain(draft).map(move |token| (now[i], token))
        });
        let cancelled = Cell::new(false);
        let source_of = &*self.source_of;
        let mut on_token = |slot: u32, token: Token| {
            let source = source_of[slot as usize] as usize;
            // The others of this step take their token in silence: they are stopped together.
            if !cancelled.get() {
                match on_event(Event::Token { source, token }) {
                    ControlFlow::Break(Stop::Source) => return ControlFlow::Break(()),
                    ControlFlow::Break(Stop::All) => cancelled.set(true),
                    ControlFlow::Continue(()) => (),
                }
            }
            ControlFlow::Continue(())
        };
        let hushed = || cancelled.get();
        let on_token: OnToken<'_> = &mut on_token;
        let advanced = if needs_argmax_only {
            let bans = self.search.bans();
            let banned = |row, token| bans.banned(row, token);
            let StepOutput { best, logits } = match drafted {
                0 => self.session.step_slots_best(rows, row, &banned)?,
                _ => self.session.feed(rows + drafted, fed, Some(&banned), tap)?,
            };
            self.search.advance_with(logits, Some(best), hooks, Some(on_token), &hushed)
        } else {
            // What each row comes to by itself is found out while the threads are there.
            let prepare = |threads: Parallelism<'_>, logits: &mut [f32]| {
                if let Some(room) = &mut room {
                    search.prepare(threads, logits, room);
                }
            };
            if drafted == 0 {
                self.session.check_step(rows, &row)?;
            }
            let logits = self.session.feed_then(rows + drafted, fed, None, tap, prepare)?.logits;
            if let Some(room) = room {
                self.search.take_back(room);
            }
            self.search.advance_with(logits, None, hooks, Some(on_token), &hushed)
        };
        match advanced {
            Ok(_) => Ok(cancelled.get()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// What the search says of one of its sentences, said of the source.
    fn failed(&self, error: SearchError) -> SessionError {
        match self.search.failed() {
            Some(slot) => SessionError::Source {
                index: self.source_of[slot as usize] as usize,
                error: SourceError::of(error),
            },
            None => error.into(),
        }
    }

    /// Encodes as many sources from `next` on as there is room for; returns how many.
    fn admit<T: LayerObserver>(
        &mut self,
        sources: &[Source<'_>],
        next: usize,
        tap: &mut T,
    ) -> Result<usize, SessionError> {
        let limits = self.session.plan.limits;
        let mut tokens_of: [&[u32]; SOURCES_PER_CALL] = [&[]; SOURCES_PER_CALL];
        let mut features_of = [Features::default(); SOURCES_PER_CALL];
        let mut slots = [SourceId::default(); SOURCES_PER_CALL];
        let (mut count, mut tokens) = (0, 0);
        let room = self.session.free_sentences().min(SOURCES_PER_CALL);
        for source in sources[next..].iter().take(room) {
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
        self.session.encode_with(inputs, &mut slots[..count], tap)?;
        for (i, &sentence) in slots[..count].iter().enumerate() {
            let slot = self.search.admit(&sources[next + i].request())?;
            let row = self.session.start_slot(sentence.slot())?;
            if let [prompt @ .., _] = self.search.prompt(slot)
                && !prompt.is_empty()
            {
                self.session.prefill_slot(row as usize, prompt, None, tap)?;
                self.search.skip_prompt(slot)?;
            }
            self.source_of[slot as usize] = (next + i) as u32;
            self.sentence_of[slot as usize] = sentence.slot();
            self.first_row[slot as usize] = row;
            if let Some(pace) = self.paces.as_chunks_mut().0.get_mut(slot as usize) {
                *pace = DraftLength::begin().words();
            }
        }
        Ok(count)
    }

    /// Gives every row of the search a row slot: the first child of a row keeps its slot, the others
    /// fork it.
    fn place_rows(&mut self) -> Result<(), SessionError> {
        const TAKEN: u32 = u32::MAX;
        let rows = self.search.rows();
        for i in 0..rows.len() {
            let parent = rows.parents[i];
            self.now[i] = if parent == u32::MAX {
                self.first_row[rows.sentences[i] as usize]
            } else {
                let row = self.before[parent as usize];
                let children = &mut self.children[parent as usize];
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

    /// Releases the rows that nobody continues.
    fn drop_rows(&mut self, stepped: usize) -> Result<(), SessionError> {
        core::mem::swap(&mut self.now, &mut self.before);
        self.children[..stepped].fill(0);
        for &parent in self.search.rows().parents {
            if parent != u32::MAX {
                self.children[parent as usize] += 1;
            }
        }
        for i in 0..stepped {
            if self.children[i] == 0 {
                self.session.release_slot(self.before[i])?;
            }
        }
        Ok(())
    }

    /// Reports and forgets the sentences that are done; whether everything is to end.
    fn report(&mut self, on_event: OnEvent<'_>) -> Result<bool, SessionError> {
        let mut cancelled = false;
        for slot in 0..self.source_of.len() {
            let source = self.source_of[slot];
            let Some(finish) = self.search.finish(slot as u32).filter(|_| source != NONE) else {
                continue;
            };
            let (source, search) = (source as usize, &self.search);
            let done = Generated { source, finish, search, slot: slot as u32 };
            cancelled |= on_event(Event::Done(done)) == ControlFlow::Break(Stop::All);
            self.search.release(slot as u32)?;
            self.session.release_sentence_slot(self.sentence_of[slot])?;
            self.source_of[slot] = NONE;
        }
        Ok(cancelled)
    }

    /// Ends what has begun, and reports it and what has not, the sources `waiting`.
    fn cancel(
        &mut self,
        waiting: core::ops::Range<usize>,
        on_event: OnEvent<'_>,
        counts: &mut DecodeStats,
    ) -> Result<(), SessionError> {
        counts.cancelled = waiting.len();
        for slot in 0..self.source_of.len() {
            if self.source_of[slot] != NONE {
                self.search.stop(slot as u32)?;
                counts.cancelled += 1;
            }
        }
        // What is answered now changes nothing.
        self.report(on_event)?;
        for source in waiting {
            let (finish, search) = (Finish::Stopped, &self.search);
            let _ = on_event(Event::Done(Generated { source, finish, search, slot: NONE }));
        }
        Ok(())
    }
}
