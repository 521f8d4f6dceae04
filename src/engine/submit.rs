//! [`Engine::submit`] and [`Engine::run`]: requests from any threads, decoded in one batch that they join and leave between
//! two steps.

use super::engine::{Engine, not_finite};
use super::request::{Generation, Request};
use super::submissions::{RequestHandle, Shared, Submitted, lock};
use crate::cancel::Cancel;
use crate::error::Error;
use crate::generate::{DecodeStats, Event, RequestQueue, Source, Stop};
use crate::search::{Finish, Hooks, SearchOptions};
use crate::session::{Limits, Session};
use core::ops::ControlFlow;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

impl Engine {
    /// Puts a request into the queue of [`run`](Self::run), and returns the handle of its result, from any thread. Waits while
    /// [`queue`](super::EngineBuilder::queue) requests wait. The result is that of [`generate`](Self::generate) with this
    /// request alone. The [flag](Self::set_cancel) of this engine, if it is not that of the
    /// one that runs, ends the request as [`RequestHandle::cancel`] does. Those who submit with flags of their own take turns:
    /// the few requests of one do not wait for all of another who has many.
    ///
    /// # Errors
    /// An invalid option or source, as [`generate`](Self::generate) finds it; the engine is [closed](Error::Closed).
    /// That there is no memory is an error of the result.
    ///
    /// ```
    /// use simdformer::{Engine, Request};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let engine = Engine::open("models/fr-en")?;
    /// let decoding = std::thread::spawn({
    ///     let engine = engine.clone();
    ///     move || engine.run()
    /// });
    /// let one = engine.submit(Request::new([6, 11, 0]))?;
    /// let mut other = engine.submit(Request::new([9, 14, 32, 0]))?;
    /// while let Some(token) = other.next_token() {
    ///     println!("token {}", token.id);
    /// }
    /// assert_eq!(other.wait()?, engine.generate(&[9, 14, 32, 0])?);
    /// assert_eq!(one.wait()?, engine.generate(&[6, 11, 0])?);
    /// engine.close();
    /// decoding.join().expect("no panic")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit(&self, mut request: Request) -> Result<RequestHandle, Error> {
        let options = request.options.take().unwrap_or_else(|| self.search_options());
        let source = request.source();
        let (fitted, work) = self.fit(&options, 1 + source.prefix.len());
        let options = Arc::new(fitted.into_owned());
        self.model().config().check_search(&options)?;
        let work = work.with_sources(1, self.longest(&[source]));
        let checked = self.plan_for(&work)?.check(&source, &options);
        checked.map_err(|error| self.of_model(error))?;
        let shared = Arc::new(Shared::new(request, options, work, self.cancel().clone()));
        let handle = RequestHandle::new(Arc::clone(&shared));
        self.submissions.push(Submitted::new(shared))?;
        Ok(handle)
    }

    /// Decodes what is [submitted](Self::submit), on this thread and the [threads](super::EngineBuilder::threads) of the
    /// engine, until [`close`](Self::close). Requests join the batch before a step when a slot is free, with options of
    /// their own, and leave it when they are done. Waits while there are none; then other calls can have the session.
    /// Several threads may call it: each decodes in a session of its own.
    ///
    /// The session has all [slots](super::EngineBuilder::slots). A request that needs a longer one, or more beams, waits until
    /// the others are done; then the session is planned again. With fixed limits, requests that come and go allocate nothing: a
    /// result is written to memory of its handle.
    ///
    /// # Errors
    /// As [`Session::serve`]: a [cancelled](Self::set_cancel) engine. The handles of the requests that were decoded or wait
    /// have the error, too; if another thread runs the engine, it goes on with those that wait. A request for which no
    /// session [can be planned](Self::with_session) has the error alone.
    ///
    /// # Panics
    /// Not by itself. If a panic ends it, handles have [`Error::Closed`].
    pub fn run(&self) -> Result<DecodeStats, Error> {
        let mut engine = self.clone();
        engine.set_sessions(1);
        let mut runner = Runner::new(&engine);
        let mut stats = DecodeStats::default();
        while runner.wait_for_work() {
            // Planned for all that wait, or else for the first.
            let served = match runner.serve(usize::MAX) {
                Err(_) => runner.serve(1),
                served => served,
            };
            match served {
                Ok(Ok(one)) => {
                    stats.steps += one.steps;
                    stats.rows += one.rows;
                    stats.cancelled += one.cancelled;
                }
                Ok(Err(error)) => {
                    runner.fail(&error);
                    return Err(error);
                }
                Err(error) => {
                    if let Some(first) = runner.waiting.pop_front() {
                        first.end(Err(error));
                    }
                }
            }
        }
        Ok(stats)
    }

    /// Ends [`run`](Self::run), of all clones, before its next step. The requests that wait or are decoded end with
    /// [`Error::Closed`], as does each later [`submit`](Self::submit). Other calls are not affected.
    pub fn close(&self) {
        let mut state = lock(&self.submissions.state);
        state.closed = true;
        state.waiting.clear();
        drop(state);
        self.submissions.changed.notify_all();
    }
}

/// Whether a request that waits stays, because it is not cancelled. One that is gets its result.
fn stays(one: &Submitted, running: &Cancel) -> bool {
    let cancelled = one.is_cancelled(running);
    if cancelled {
        one.end(Ok(Generation { finish: Finish::Stopped, hypotheses: Vec::new() }));
    }
    !cancelled
}

/// The requests of a call of [`Engine::run`].
struct Runner<'e> {
    engine: &'e Engine,
    waiting: VecDeque<Submitted>,
    /// The request in each slot.
    slots: Vec<Option<Submitted>>,
    /// Of the session.
    limits: Option<Limits>,
    closed: bool,
}

impl<'e> Runner<'e> {
    fn new(engine: &'e Engine) -> Self {
        lock(&engine.submissions.state).runners += 1;
        let slots = engine.slots_of_session();
        Self {
            engine,
            waiting: VecDeque::with_capacity(slots),
            slots: (0..slots).map(|_| None).collect(),
            limits: None,
            closed: false,
        }
    }

    /// Waits for requests; false if the engine is closed.
    fn wait_for_work(&mut self) -> bool {
        loop {
            self.receive(0);
            if self.closed || !self.waiting.is_empty() {
                return !self.closed;
            }
            let submissions = &self.engine.submissions;
            let mut state = lock(&submissions.state);
            while state.waiting.is_empty() && !state.closed {
                state = submissions.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Takes as many requests as there are free slots, and ends those that are cancelled.
    fn receive(&mut self, active: usize) {
        let submissions = &self.engine.submissions;
        let mut state = lock(&submissions.state);
        self.closed = state.closed;
        // Those that wait for a slot, too: who cancels a request does not wait for those before it.
        let before = state.waiting.len();
        let running = self.engine.cancel();
        state.waiting.retain(|one| stays(one, running));
        let free = self.slots.len().saturating_sub(active + self.waiting.len());
        self.waiting.extend(state.take(free));
        let shorter = state.waiting.len() < before;
        drop(state);
        if shorter {
            submissions.changed.notify_all();
        }
        self.waiting.retain(|one| stays(one, running));
    }

    /// Decodes in a session that is planned for the first `count` requests that wait.
    fn serve(&mut self, count: usize) -> Result<Result<DecodeStats, Error>, Error> {
        let engine = self.engine;
        let Some(first) = self.waiting.front() else { return Ok(Ok(DecodeStats::default())) };
        let work = self.waiting.iter().take(count).fold(first.work, |all, one| all.or(one.work));
        // Every request has its own options.
        let options = Arc::clone(&first.options);
        engine.with_session(&work.for_sources(self.slots.len()), |session| {
            let limits = session.plan().limits();
            self.limits = Some(limits);
            self.slots.resize_with(limits.sentences.max(self.slots.len()), || None);
            session.serve(self, &options, &mut Hooks::default())
        })
    }

    /// Whether the session fits a request.
    fn fits(&self, one: &Submitted) -> bool {
        self.limits.is_some_and(|limits| self.engine.covers(limits, &one.work))
    }

    /// Ends all requests with an error, those that other calls of `run` might take excepted.
    fn fail(&mut self, error: &Error) {
        let mut state = lock(&self.engine.submissions.state);
        if state.runners == 1 {
            self.waiting.append(&mut state.waiting);
        }
        drop(state);
        let slots = self.slots.iter_mut().filter_map(Option::take);
        self.waiting.drain(..).chain(slots).for_each(|one| one.end(Err(error.clone())));
        self.engine.submissions.changed.notify_all();
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail(&Error::Closed);
        }
        lock(&self.engine.submissions.state).runners -= 1;
    }
}

impl RequestQueue for Runner<'_> {
    fn before_step(
        &mut self,
        _: &mut Session<'_>,
        active: usize,
        _: &DecodeStats,
    ) -> ControlFlow<()> {
        self.receive(active);
        // Without requests the session is free for other calls, and one that does not fit needs another session.
        let goes_on = active > 0 || self.waiting.front().is_some_and(|one| self.fits(one));
        if goes_on && !self.closed { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn waiting<'q>(&'q self, waiting: &mut [Source<'q>]) -> usize {
        let fitting = self.waiting.iter().take_while(|one| self.fits(one));
        let fill = waiting.iter_mut().zip(fitting);
        fill.map(|(source, one)| *source = one.request.source()).count()
    }

    fn options(&self, index: usize) -> Option<Arc<SearchOptions>> {
        self.waiting.get(index).map(|one| Arc::clone(&one.options))
    }

    fn admitted(&mut self, slots: &[u32]) {
        for (&slot, one) in slots.iter().zip(self.waiting.drain(..slots.len())) {
            self.slots[slot as usize] = Some(one);
        }
    }

    fn refused(&mut self, error: Error) {
        if let Some(one) = self.waiting.pop_front() {
            // The request is the only source of its call.
            one.end(Err(match error.index() {
                Some(_) => error.with_index(0),
                None => error,
            }));
        }
    }

    fn is_cancelled(&self, slot: u32) -> bool {
        self.slots[slot as usize].as_ref().is_some_and(|one| one.is_cancelled(self.engine.cancel()))
    }

    fn on_event(&mut self, event: Event<'_>) -> ControlFlow<Stop> {
        match event {
            Event::Token { source, token } => {
                if let Some(one) = &self.slots[source] {
                    lock(&one.progress).tokens.push(token);
                    one.changed.notify_all();
                }
            }
            Event::Done(done) => {
                let Some(one) = self.slots[done.source].take() else {
                    return ControlFlow::Continue(());
                };
                let stopped =
                    done.finish == Finish::Stopped && !one.is_cancelled(self.engine.cancel());
                one.end(match not_finite(&done, one.request.prefix.len()) {
                    Some(error) => Err(error.with_index(0)),
                    None if stopped => Err(Error::Closed),
                    None => {
                        let mut progress = lock(&one.progress);
                        let mut hypotheses = core::mem::take(&mut progress.hypotheses);
                        hypotheses.truncate(done.hypotheses().len());
                        for ((tokens, score), found) in hypotheses.iter_mut().zip(done.hypotheses())
                        {
                            tokens.extend_from_slice(found.tokens);
                            *score = found.score;
                        }
                        Ok(Generation { finish: done.finish, hypotheses })
                    }
                });
            }
            _ => (),
        }
        ControlFlow::Continue(())
    }
}
