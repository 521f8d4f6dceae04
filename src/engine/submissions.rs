//! The requests that wait for [`Engine::run`](crate::Engine::run), and the handles of their results.

use super::plan_rule::Workload;
use super::request::{Generation, Request};
use crate::cancel::Cancel;
use crate::error::Error;
use crate::search::{SearchOptions, Token};
use core::fmt;
use core::ops::Deref;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The most requests that wait for [`Engine::run`](crate::Engine::run).
const CAPACITY: usize = 1024;

/// The requests that wait for [`Engine::run`](crate::Engine::run), of all clones of an engine.
pub(super) struct Submissions {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    pub(super) capacity: usize,
}

#[derive(Default)]
pub(super) struct State {
    /// In the order of their turns.
    pub(super) waiting: VecDeque<Submitted>,
    /// The turn of those that were taken last.
    turn: u64,
    pub(super) closed: bool,
    /// Calls of `run`.
    pub(super) runners: usize,
}

impl Default for Submissions {
    fn default() -> Self {
        let (state, changed) = Default::default();
        Self { state, changed, capacity: CAPACITY }
    }
}

impl Submissions {
    /// Waits for a place, and puts a request behind those that have a turn before it: those of one
    /// [flag](crate::Engine::set_cancel) have one turn after the other, and the first of them has the next one, so that who
    /// comes later does not pass them again and again.
    pub(super) fn push(&self, mut submitted: Submitted) -> Result<(), Error> {
        let mut state = lock(&self.state);
        while !state.closed && state.waiting.len() >= self.capacity {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return Err(Error::Closed);
        }
        let mut before = state.waiting.iter().rev();
        let last = before.find(|one| one.engine.is_same(&submitted.engine));
        submitted.turn = last.map_or(state.turn, |one| one.turn) + 1;
        let place = state.waiting.partition_point(|one| one.turn <= submitted.turn);
        state.waiting.insert(place, submitted);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }
}

impl State {
    /// Takes the first `count` requests, or all.
    pub(super) fn take(&mut self, count: usize) -> impl Iterator<Item = Submitted> {
        let count = count.min(self.waiting.len());
        if let Some(last) = count.checked_sub(1) {
            self.turn = self.waiting[last].turn;
        }
        self.waiting.drain(..count)
    }
}

/// A request, which its handle and the thread that decodes it share.
pub(super) struct Shared {
    /// Without options.
    pub(super) request: Request,
    pub(super) options: Arc<SearchOptions>,
    /// What it needs alone.
    pub(super) work: Workload,
    cancelled: AtomicBool,
    /// The flag of the engine that submitted it.
    engine: Cancel,
    pub(super) progress: Mutex<Progress>,
    pub(super) changed: Condvar,
}

pub(super) struct Progress {
    /// The tokens so far. It has space for all of them.
    pub(super) tokens: Vec<Token>,
    /// The space for the result.
    pub(super) hypotheses: Vec<(Vec<u32>, f32)>,
    result: Option<Result<Generation, Error>>,
}

/// The result of [`Engine::submit`](crate::Engine::submit), which may still be computed. Dropping it cancels the request.
pub struct RequestHandle {
    shared: Arc<Shared>,
    /// Tokens that the caller has read.
    read: usize,
}

impl RequestHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, read: 0 }
    }

    /// Waits for the next token of the target; `None` after the last one. Tokens are final: greedy search and sampling report
    /// them as they are chosen, beam search at the end. Those of several samples alternate.
    pub fn next_token(&mut self) -> Option<Token> {
        let Shared { progress, changed, .. } = &*self.shared;
        let mut progress = lock(progress);
        while progress.tokens.len() <= self.read && progress.result.is_none() {
            progress = changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        let token = progress.tokens.get(self.read).copied();
        self.read += usize::from(token.is_some());
        token
    }

    /// Waits for the result. That of a request that was [cancelled](Self::cancel) has [`Finish::Stopped`](crate::search::Finish::Stopped) and its tokens so
    /// far, or no hypothesis if it had not begun.
    ///
    /// # Errors
    /// As [`Engine::generate`](crate::Engine::generate) with this request alone; [`Engine::run`](crate::Engine::run) ended with an error, or the engine was
    /// [closed](Error::Closed), before it was done.
    pub fn wait(self) -> Result<Generation, Error> {
        let Shared { progress, changed, .. } = &*self.shared;
        let mut progress = lock(progress);
        loop {
            if let Some(result) = progress.result.take() {
                return result;
            }
            progress = changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the result is there: [`wait`](Self::wait) returns at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        lock(&self.shared.progress).result.is_some()
    }

    /// Ends the request before the next step.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for RequestHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHandle").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

/// A request that waits or is decoded.
pub(super) struct Submitted {
    shared: Arc<Shared>,
    /// Of those that wait, the one with the lowest is taken first.
    turn: u64,
}

impl Submitted {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, turn: 0 }
    }
}

impl Deref for Submitted {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Shared {
    /// Of a request that was checked, without options, and the options that fit the engine.
    pub(super) fn new(
        request: Request,
        options: Arc<SearchOptions>,
        work: Workload,
        engine: Cancel,
    ) -> Self {
        let (most, longest) = (options.num_return_sequences, work.target_tokens() + 1);
        let progress = Progress {
            tokens: Vec::with_capacity(most.saturating_mul(longest)),
            hypotheses: (0..most).map(|_| (Vec::with_capacity(longest), f32::NAN)).collect(),
            result: None,
        };
        let (cancelled, changed) = Default::default();
        let progress = Mutex::new(progress);
        Self { request, options, work, cancelled, engine, progress, changed }
    }

    /// Whether it is cancelled alone: not by the flag of the engine that runs, which ends the whole run.
    pub(super) fn is_cancelled(&self, running: &Cancel) -> bool {
        self.cancelled.load(Ordering::Relaxed)
            || (self.engine.is_cancelled() && !self.engine.is_same(running))
    }

    /// Sets the result, if there is none yet.
    pub(super) fn end(&self, result: Result<Generation, Error>) {
        lock(&self.progress).result.get_or_insert(result);
        self.changed.notify_all();
    }
}

impl Drop for Submitted {
    /// Has an effect only without a result: the engine was closed, or a panic ended [`Engine::run`](crate::Engine::run).
    fn drop(&mut self) {
        self.end(Err(Error::Closed));
    }
}

/// The value of a mutex. After a panic of a callback, which reaches the caller, nothing reads the value.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
