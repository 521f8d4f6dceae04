//! The decoding loop. A [`Search`] states which tokens to feed, and the session computes their logits. New sentences
//! are encoded when slots become free.

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

/// One source of a request.
///
/// ```
/// use simdformer::Source;
///
/// let plain = Source::new(&[6, 11, 0]);
/// // Its target must begin with these tokens, and its samples use random stream 7.
/// let special = Source { prefix: &[554, 9], stream: 7, ..plain };
/// assert_eq!(special.tokens, plain.tokens);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'s> {
    /// Token ids of the source, including the end token: at least 1, at most
    /// [`Limits::source_tokens`](crate::Limits::source_tokens). Empty if there are features.
    pub tokens: &'s [u32],
    /// Token ids of the target that must follow the decoder start. They are not part of hypotheses or scores.
    pub prefix: &'s [u32],
    /// The stream of random numbers for sampling, see [`Request::stream`].
    pub stream: u64,
    /// Overrides [`SearchOptions::forced_bos`]: for example the target language of this sentence.
    pub forced_bos: Option<u32>,
    /// The input of an encoder that reads features instead of ids.
    pub features: Option<Features<'s>>,
}

impl<'s> Source<'s> {
    /// A source of token ids; all other fields have their defaults.
    pub const fn new(tokens: &'s [u32]) -> Self {
        Self { tokens, prefix: &[], stream: 0, forced_bos: None, features: None }
    }

    /// A source of features; all other fields have their defaults.
    pub const fn of_features(features: Features<'s>) -> Self {
        Self { features: Some(features), ..Self::new(&[]) }
    }

    /// Number of encoder positions.
    const fn positions(&self) -> usize {
        match &self.features {
            Some(features) => features.positions(),
            None => self.tokens.len(),
        }
    }

    /// The request to the search for this source.
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
    /// Translates `sources` under `options` and the caller's `hooks`, and calls `on_event` with each event. If there
    /// are more sources than slots, each free slot is filled before the next step. The result for a sentence does not
    /// depend on the other sentences.
    ///
    /// `on_event` returns `()` or a `ControlFlow<Stop>`, which ends one source or the whole call.
    ///
    /// Releases all sentences and hypotheses that the session held. Does not allocate.
    ///
    /// # Errors
    /// Options [beyond the plan](SessionError::OptionBeyondPlan) or [invalid options](SessionError::Search); a
    /// [source](SessionError::Source) that [`Session::check`] rejects, with its index. All of this is checked first,
    /// and such an error changes nothing. During decoding, a rule that allows no token or an error of a processor is a
    /// [source](SessionError::Source) error too; sources that were finished before have been reported. Scores that are
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
    ) -> Result<DecodeStats, SessionError> {
        let mut on_event = |event: Event<'_>| on_event(event).answer();
        self.generate_with(
            sources,
            options,
            hooks,
            &mut on_event,
            DecodeHooks { observer: &mut NoObserver, needs_logits: false, drafter: None },
        )
    }

    pub(super) fn generate_with<T: LayerObserver>(
        &mut self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
        decode_hooks: DecodeHooks<'_, T>,
    ) -> Result<DecodeStats, SessionError> {
        self.plan.check_decodes()?;
        // The loop borrows the search buffer and the session at the same time, so the buffer is moved out of the
        // session.
        let search_buffer = core::mem::replace(&mut self.search, Buffer::empty());
        let mut guard = BufferGuard { session: self, search_buffer, started: false };
        let buffers = cut_search_buffer(&guard.session.plan, &mut guard.search_buffer)?;
        let mut decode_loop = DecodeLoop::new(guard.session, options, buffers)?;
        for (index, source) in sources.iter().enumerate() {
            decode_loop.session.plan.check_source(index, source, options)?;
        }
        guard.started = true;
        decode_loop.session.clear();
        decode_loop.run(sources, hooks, on_event, decode_hooks)
    }
}

/// The observer and the drafter of a decoding loop.
pub(super) struct DecodeHooks<'t, T> {
    pub(super) observer: &'t mut T,
    /// The observer receives logits: all of them are computed, even if the best token is known without them.
    pub(super) needs_logits: bool,
    pub(super) drafter: Option<&'t mut dyn Drafter>,
}

/// The search buffer, moved out of its session. `drop` moves it back, also if a callback panics.
struct BufferGuard<'l, 's> {
    session: &'l mut Session<'s>,
    search_buffer: Buffer<'s>,
    /// The session holds sentences of the search.
    started: bool,
}

impl Drop for BufferGuard<'_, '_> {
    fn drop(&mut self) {
        core::mem::swap(&mut self.session.search, &mut self.search_buffer);
        if self.started {
            self.session.clear();
        }
    }
}

fn cut_search_buffer<'m>(
    plan: &Plan,
    search_buffer: &'m mut Buffer<'_>,
) -> Result<LoopBuffers<'m>, SessionError> {
    let [
        search,
        now,
        before,
        children,
        source_of,
        sentence_of,
        first_row,
        draft,
        lens,
        draft_length_states,
    ] = cut(
        search_buffer,
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
            &plan.draft_length_states,
        ],
    )?;
    Ok(LoopBuffers {
        search: words_mut(search),
        now: words_mut(now),
        before: words_mut(before),
        children: words_mut(children),
        source_of: words_mut(source_of),
        sentence_of: words_mut(sentence_of),
        first_row: words_mut(first_row),
        draft: words_mut(draft),
        draft_lens: words_mut(lens),
        draft_length_states: words_mut(draft_length_states),
    })
}

/// Marks a slot of the search without a source.
const NONE: u32 = u32::MAX;

/// The state of the loop, in planned memory.
struct LoopBuffers<'m> {
    search: &'m mut [u32],
    /// Row slots of the search's rows, in this step and in the last step.
    now: &'m mut [u32],
    before: &'m mut [u32],
    /// For each row of the last step: the number of its children.
    children: &'m mut [u32],
    /// For each slot of the search: the index of its source, and the slots of the session for it.
    source_of: &'m mut [u32],
    sentence_of: &'m mut [u32],
    first_row: &'m mut [u32],
    /// The tokens of new drafts; for each slot of the search, the length of its draft in this step and its
    /// [`DraftLength`].
    draft: &'m mut [u32],
    draft_lens: &'m mut [u32],
    draft_length_states: &'m mut [u32],
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
    pub(super) draft_length_states: &'m mut [u32],
}

impl<'d, 's, 'm> DecodeLoop<'d, 's, 'm> {
    fn new(
        session: &'d mut Session<'s>,
        options: &'m SearchOptions,
        buffers: LoopBuffers<'m>,
    ) -> Result<Self, SessionError> {
        let LoopBuffers {
            search,
            now,
            before,
            children,
            source_of,
            sentence_of,
            first_row,
            draft,
            draft_lens,
            draft_length_states,
        } = buffers;
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
            draft_length_states,
        })
    }

    fn run<T: LayerObserver>(
        &mut self,
        sources: &[Source<'_>],
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
        DecodeHooks { observer, needs_logits, mut drafter }: DecodeHooks<'_, T>,
    ) -> Result<DecodeStats, SessionError> {
        let mut counts = DecodeStats::default();
        let mut next = 0;
        let mut cancelled = false;
        while !cancelled {
            if on_event(Event::Step(counts)) == ControlFlow::Break(Stop::All) {
                break;
            }
            while next < sources.len() {
                let admitted = self.admit(sources, next, observer)?;
                if admitted == 0 {
                    break;
                }
                next += admitted;
            }
            let rows = self.search.rows().len();
            if rows == 0 {
                return Ok(counts);
            }
            self.assign_row_slots()?;
            let drafted = match &mut drafter {
                Some(drafter) => self.draft(sources, &mut **drafter)?,
                None => 0,
            };
            cancelled = self.step((rows, drafted), hooks, on_event, observer, needs_logits)?;
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

    /// Runs one step of the decoder and of the search. Returns whether the caller ends the whole call.
    fn step<T: LayerObserver>(
        &mut self,
        (rows, drafted): (usize, usize),
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
        observer: &mut T,
        needs_logits: bool,
    ) -> Result<bool, SessionError> {
        let needs_argmax_only = self.search.needs_argmax_only(hooks) && !needs_logits;
        let mut scratch = if needs_argmax_only { None } else { self.search.lend_scratch(hooks) };
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
        let advanced = if needs_argmax_only {
            let bans = self.search.bans();
            let banned = |row, token| bans.banned(row, token);
            let StepOutput { best, logits } = match drafted {
                0 => self.session.step_slots_argmax(rows, row, &banned)?,
                _ => self.session.feed(rows + drafted, fed, Some(&banned), observer)?,
            };
            self.search.advance_with(logits, Some(best), hooks, Some(on_token), &muted)
        } else {
            // The threads of the pass also prepare each row for the search.
            let prepare = |threads: Parallelism<'_>, logits: &mut [f32]| {
                if let Some(scratch) = &mut scratch {
                    search.prepare(threads, logits, scratch);
                }
            };
            if drafted == 0 {
                self.session.check_step(rows, &row)?;
            }
            let logits =
                self.session.feed_then(rows + drafted, fed, None, observer, prepare)?.logits;
            if let Some(scratch) = scratch {
                self.search.take_back(scratch);
            }
            self.search.advance_with(logits, None, hooks, Some(on_token), &muted)
        };
        match advanced {
            Ok(_) => Ok(cancelled.get()),
            Err(error) => Err(self.source_error(error)),
        }
    }

    /// Maps an error of the search about one of its slots to the source in that slot.
    fn source_error(&self, error: SearchError) -> SessionError {
        match self.search.failed() {
            Some(slot) => SessionError::Source {
                index: self.source_of[slot as usize] as usize,
                error: SourceError::of(error),
            },
            None => error.into(),
        }
    }

    /// Encodes sources from index `next` as far as free slots and `batch_tokens` allow. Returns their number.
    fn admit<T: LayerObserver>(
        &mut self,
        sources: &[Source<'_>],
        next: usize,
        observer: &mut T,
    ) -> Result<usize, SessionError> {
        let limits = self.session.plan.limits;
        let mut tokens_of: [&[u32]; SOURCES_PER_CALL] = [&[]; SOURCES_PER_CALL];
        let mut features_of = [Features::default(); SOURCES_PER_CALL];
        let mut slots = [SourceId::default(); SOURCES_PER_CALL];
        let (mut count, mut tokens) = (0, 0);
        let free_slots = self.session.free_sentences().min(SOURCES_PER_CALL);
        for source in sources[next..].iter().take(free_slots) {
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
        self.session.encode_with(inputs, &mut slots[..count], observer)?;
        for (i, &sentence) in slots[..count].iter().enumerate() {
            let slot = self.search.admit(&sources[next + i].request())?;
            let row = self.session.start_slot(sentence.slot())?;
            if let [prompt @ .., _] = self.search.prompt(slot)
                && !prompt.is_empty()
            {
                self.session.prefill_slot(row as usize, prompt, None, observer)?;
                self.search.skip_prompt(slot)?;
            }
            self.source_of[slot as usize] = (next + i) as u32;
            self.sentence_of[slot as usize] = sentence.slot();
            self.first_row[slot as usize] = row;
            if let Some(length_state) =
                self.draft_length_states.as_chunks_mut().0.get_mut(slot as usize)
            {
                *length_state = DraftLength::begin().words();
            }
        }
        Ok(count)
    }

    /// Assigns a row slot to each row of the search. The first child of a row takes the slot of its parent; each other
    /// child forks the parent.
    fn assign_row_slots(&mut self) -> Result<(), SessionError> {
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

    /// Releases the rows without children.
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

    /// Reports and releases the finished sentences. Returns whether the caller ends the whole call.
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

    /// Stops the active sources, and reports them and the sources `waiting` that were not encoded.
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
        // The return value is ignored: the call ends in any case.
        self.report(on_event)?;
        for source in waiting {
            let (finish, search) = (Finish::Stopped, &self.search);
            let _ = on_event(Event::Done(Generated { source, finish, search, slot: NONE }));
        }
        Ok(())
    }
}
