//! Continuous batching: the decoding loop over requests that arrive and leave while others are decoded.

use super::decode_loop::{BufferGuard, DecodeLoop, NONE};
use super::request::{DecodeStats, Event, Source, Stop};
use crate::error::Error;
use crate::kv::HypothesisId;
use crate::ref_or_arc::RefOrArc;
use crate::search::{Hooks, SearchOptions};
use crate::session::{SOURCES_PER_CALL, Session};
use core::ops::ControlFlow;
use std::sync::Arc;

/// The requests of [`Session::serve`]: which wait, which are decoded, and where their events go.
///
/// A request is decoded in a *slot* of the session, from 0 to [`Limits::sentences`](crate::Limits::sentences). In the
/// events of `serve`, `source` is the slot. A slot belongs to one request from [`admitted`](Self::admitted) until its
/// [`Event::Done`]. The [example](Session::serve) has a queue of two requests.
pub trait RequestQueue {
    /// Called before each step; `active` requests are being decoded. If there are none, and none wait, this may block
    /// until one arrives: the loop would only call it again. `Break` ends the call of `serve`.
    ///
    /// In `session`, that of the call, the queue may encode sources and feed hypotheses, for requests that are
    /// [started](Self::started). What it did not encode or start itself is not its own.
    fn before_step(
        &mut self,
        session: &mut Session<'_>,
        active: usize,
        stats: &DecodeStats,
    ) -> ControlFlow<()>;

    /// Writes the requests that wait to the start of `waiting`, in the order in which they are to be admitted, and
    /// returns their number. They keep waiting until [`admitted`](Self::admitted) or [`refused`](Self::refused).
    fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize;

    /// The options of the request at `index` of those that [`waiting`](Self::waiting) just wrote, which the session
    /// shares until its [`Event::Done`]; `None`, the default, for those of the call. [`Source::options`] of a request
    /// that waits are `None`: options that the queue lends would end when it changes, and such a request is refused.
    fn options(&self, index: usize) -> Option<Arc<SearchOptions>> {
        let _ = index;
        None
    }

    /// The hypothesis with which the request at `index` of those that [`waiting`](Self::waiting) just wrote begins, if the
    /// queue has encoded its source; `None`, the default, if the session is to encode it. It was fed the first tokens of
    /// the request's decoder start and prefix, any number of them: the loop feeds the others. [`Source::tokens`] are then
    /// only for rules that read the source, and may be empty. From its admission on it
    /// belongs to the loop, and the handle is no longer valid. Of the source's other hypothesis slots the search takes as
    /// many as it has sequences. The source stays encoded after the request's
    /// [`Event::Done`], for example for another attempt with other options, until the queue
    /// [releases](Session::release_sentence) it. A request with an [unknown](Error::InvalidHandle) hypothesis
    /// is refused.
    ///
    /// A service can encode a source once for several requests, ask the model about it first
    /// ([`Session::detect_language`]), or [fork](Session::fork) a hypothesis that has read a long prompt.
    fn started(&self, index: usize) -> Option<HypothesisId> {
        let _ = index;
        None
    }

    /// The first `slots.len()` requests that wait are decoded from now on, each in its slot.
    fn admitted(&mut self, slots: &[u32]);

    /// The first request that waits does not pass [`Plan::check`](crate::Plan::check), or has features or tokens that
    /// the plan does not fit. It no longer waits; the others go on. The index of the
    /// [error](Error::index) is the number of the request: how many were admitted or refused before it in this
    /// call of [`serve`](Session::serve).
    fn refused(&mut self, error: Error);

    /// Whether the request in this slot is no longer wanted. It ends at the next step with
    /// [`Finish::Stopped`](crate::search::Finish::Stopped). Called before each step for each request that is decoded.
    fn is_cancelled(&self, slot: u32) -> bool;

    /// Called with [`Event::Token`] and [`Event::Done`]; `source` is the slot. [`Stop::Source`] ends the request of a
    /// token, [`Stop::All`] ends the call of `serve`.
    fn on_event(&mut self, event: Event<'_>) -> ControlFlow<Stop>;
}

impl Session<'_> {
    /// Decodes the requests of `queue` until [`RequestQueue::before_step`] ends the call: requests are admitted to free
    /// slots before each step and leave when they are done. The result of a request does not depend on the others: it
    /// is that of [`Session::generate`] with this source alone.
    ///
    /// At the end of the call, every request that is still decoded is reported with its tokens so far and
    /// [`Finish::Stopped`](crate::search::Finish::Stopped).
    ///
    /// `hooks` hold for all requests of the call, and `options` for those without
    /// [their own](RequestQueue::options).
    ///
    /// Releases all sentences and hypotheses that the session held. Does not allocate.
    ///
    /// # Errors
    /// Options [beyond the plan](Error::BeyondLimit) or [invalid options](Error::InvalidOption), checked
    /// first. An error of a processor is a [source](Error::index) error whose index is the number of the request,
    /// as in [`refused`](RequestQueue::refused), and ends the call: requests that are being decoded get no further event.
    /// A request that does not fit is no error of the call, but [refused](RequestQueue::refused).
    ///
    /// ```
    /// use core::ops::ControlFlow;
    /// use simdformer::search::Hooks;
    /// use simdformer::{DecodeStats, Error, Event, Limits, Model, RequestQueue, Session, Source, Stop};
    ///
    /// /// Requests in the order of their arrival; the results are printed by the name of the request.
    /// #[derive(Default)]
    /// struct Queue {
    ///     waiting: Vec<(&'static str, Vec<u32>)>,
    ///     /// The name of the request in each slot.
    ///     active: [Option<&'static str>; 4],
    ///     done: Vec<(&'static str, Vec<u32>)>,
    ///     refused: usize,
    /// }
    ///
    /// impl RequestQueue for Queue {
    ///     fn before_step(&mut self, _: &mut Session<'_>, active: usize, _: &DecodeStats) -> ControlFlow<()> {
    ///         // A service waits here for a request if `active` is 0.
    ///         if active == 0 && self.waiting.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    ///     }
    ///     fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
    ///         let fill = waiting.iter_mut().zip(&self.waiting);
    ///         fill.map(|(source, (_, ids))| *source = Source::new(ids)).count()
    ///     }
    ///     fn admitted(&mut self, slots: &[u32]) {
    ///         for (&slot, (name, _)) in slots.iter().zip(self.waiting.drain(..slots.len())) {
    ///             self.active[slot as usize] = Some(name);
    ///         }
    ///     }
    ///     fn refused(&mut self, _: Error) {
    ///         self.waiting.remove(0);
    ///         self.refused += 1;
    ///     }
    ///     fn is_cancelled(&self, _: u32) -> bool {
    ///         false
    ///     }
    ///     fn on_event(&mut self, event: Event<'_>) -> ControlFlow<Stop> {
    ///         if let Event::Done(done) = event {
    ///             let best = done.hypotheses().next().map(|best| best.tokens.to_vec());
    ///             self.done.extend(self.active[done.source].take().zip(best));
    ///         }
    ///         ControlFlow::Continue(())
    ///     }
    /// }
    ///
    /// let model = Model::open("models/fr-en")?;
    /// let mut session = Session::new(&model, Limits::new(4, 16, 40))?;
    /// let options = session.search_options();
    /// let waiting = vec![("a", vec![6, 11, 0]), ("no tokens", vec![]), ("b", vec![9, 14, 32, 0])];
    /// let mut queue = Queue { waiting, ..Queue::default() };
    /// session.serve(&mut queue, &options, &mut Hooks::default())?;
    /// queue.done.sort();
    /// let names: Vec<_> = queue.done.iter().map(|(name, _)| *name).collect();
    /// assert_eq!((names, queue.refused), (vec!["a", "b"], 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve(
        &mut self,
        queue: &mut dyn RequestQueue,
        options: &SearchOptions,
        hooks: &mut Hooks<'_>,
    ) -> Result<DecodeStats, Error> {
        self.plan.check_options(options)?;
        let mut guard = BufferGuard::new(self);
        let mut decode_loop = guard.decode_loop(options)?;
        let result = decode_loop.serve(queue, hooks);
        let slots = decode_loop.search.into_slots();
        *guard.session.slots.vec_mut() = slots;
        result
    }
}

impl DecodeLoop<'_, '_, '_> {
    fn serve(
        &mut self,
        queue: &mut dyn RequestQueue,
        hooks: &mut Hooks<'_>,
    ) -> Result<DecodeStats, Error> {
        let mut stats = DecodeStats::default();
        // Requests that were admitted or refused.
        let mut taken = 0;
        let mut ended = false;
        while !ended {
            let active = self.buffers.source_of.iter().filter(|&&slot| slot != NONE).count();
            if queue.before_step(self.session, active, &stats).is_break() {
                break;
            }
            let rows = self.search.rows().len();
            let mut cancelled = 0;
            for slot in 0..self.buffers.source_of.len() {
                if self.buffers.source_of[slot] != NONE && queue.is_cancelled(slot as u32) {
                    cancelled += 1;
                    if cancelled == active {
                        // No step assigns slots to the rows of the last ones.
                        self.assign_slots(hooks)?;
                    }
                    self.search.stop(slot as u32)?;
                }
            }
            stats.cancelled += cancelled;
            // The rows of stopped requests are fed once more, unless there are no others.
            if active > 0 && self.search.rows().is_empty() {
                self.drop_rows(rows)?;
                ended = self.report(&mut |event| queue.on_event(event))?;
                continue;
            }
            while self.admit_waiting(queue, &mut taken)? {}
            if self.search.rows().is_empty() {
                continue;
            }
            ended = self
                .step(hooks, &mut |event| queue.on_event(event), None, &mut stats)
                .map_err(|error| self.request_error(error, taken))?;
        }
        let mut last = DecodeStats::default();
        self.cancel(&mut |event| queue.on_event(event), &mut last)?;
        stats.cancelled += last.cancelled;
        Ok(stats)
    }

    /// Replaces the slot in an error by the number of its request, of `taken` so far.
    fn request_error(&self, error: Error, taken: usize) -> Error {
        let Some(slot) = error.index() else { return error };
        // A request is decoded for fewer steps than 2^32 others need, so the lower half of its number determines it.
        let back = (taken as u32).wrapping_sub(self.buffers.request_of[slot]);
        error.with_index(taken - back as usize)
    }

    /// Admits or refuses requests that wait, and counts them in `taken`. Returns whether to call it again.
    fn admit_waiting(
        &mut self,
        queue: &mut dyn RequestQueue,
        taken: &mut usize,
    ) -> Result<bool, Error> {
        let free = self.buffers.source_of.iter().filter(|&&slot| slot == NONE).count();
        let free = free.min(SOURCES_PER_CALL);
        if free == 0 {
            return Ok(false);
        }
        let mut slots = [NONE; SOURCES_PER_CALL];
        let mut sources = [Source::default(); SOURCES_PER_CALL];
        let count = queue.waiting(&mut sources[..free]).min(free);
        // The queue changes while a request is decoded, so its options are shared, not borrowed.
        let mut shared: [Option<Arc<SearchOptions>>; SOURCES_PER_CALL] = [const { None }; _];
        let mut refused = None;
        let mut passed = 0;
        let mut started = None;
        for (i, &source) in sources[..count].iter().enumerate() {
            let hypothesis = queue.started(i);
            // Those that are started are admitted one by one.
            if started.is_some() || i > 0 && hypothesis.is_some() {
                break;
            }
            shared[i] = queue.options(i);
            let own = Source { options: shared[i].as_deref(), ..source };
            let plan = &self.session.plan;
            let checked = match (source.options, hypothesis) {
                (Some(_), _) => {
                    let expected = "a request without options, which the queue shares";
                    Err(Error::invalid_input("", expected, "lent options").with_index(*taken))
                }
                (None, None) => plan.check_source(*taken, &own, self.options),
                (None, Some(hypothesis)) => {
                    plan.check_target(*taken, &own, self.options).and_then(|()| {
                        started = Some(self.session.check_hypothesis(hypothesis)? as u32);
                        Ok(())
                    })
                }
            };
            match checked {
                Ok(()) => passed += 1,
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if passed == 0 {
            let again = refused.is_some();
            if let Some(error) = refused {
                *taken += 1;
                queue.refused(error);
            }
            return Ok(again);
        }
        let call = self.options;
        let mut options =
            |i: usize| shared[i].take().map_or(RefOrArc::Borrowed(call), RefOrArc::Shared);
        let admitted = match started {
            Some(row) => {
                self.session.new_handle(row)?;
                slots[0] = self.admit_started(&sources[0], row, options(0))?;
                1
            }
            None => self.admit_sources(&sources[..passed], &mut options, &mut |i, slot| {
                slots[i] = slot;
                slot
            })?,
        };
        for (number, &slot) in slots[..admitted].iter().enumerate() {
            self.buffers.request_of[slot as usize] = (*taken + number) as u32;
        }
        *taken += admitted;
        queue.admitted(&slots[..admitted]);
        Ok(admitted > 0)
    }
}
