//! The sessions of an engine between its calls.

use super::plan_rule::{BYTES, PlanRule, Sessions};
use crate::error::Error;
use crate::generate::SessionPool;
use crate::model::Model;
use crate::session::Plan;
use core::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// The sessions that no call uses, and what was planned. Calls from several threads take sessions of their own, unless the
/// limits are fixed or the bytes do not suffice: then a call waits for another one.
#[derive(Debug, Default)]
pub(super) struct IdleSessions {
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<SessionPool<'static>>,
    /// The threads of the calls that have sessions.
    users: Vec<ThreadId>,
    report: EngineReport,
    /// Whether the sessions are planned once.
    fixed: bool,
}

/// What an [`Engine`](super::Engine) has planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineReport {
    /// How often sessions were planned: more than once if the plan grew, or if calls ran at the same time.
    pub plans: u64,
    /// Bytes of all planned sessions.
    pub bytes: usize,
}

/// What a call asks for.
pub(super) struct Wanted<'w> {
    pub(super) model: &'w Arc<Model>,
    pub(super) rule: &'w PlanRule,
    pub(super) sessions: Sessions,
}

impl IdleSessions {
    /// Sessions that are never planned again.
    pub(super) fn fixed(pool: SessionPool<'static>) -> Self {
        let bytes = bytes(&pool);
        let state = State {
            idle: vec![pool],
            users: Vec::with_capacity(1),
            report: EngineReport { plans: 1, bytes },
            fixed: true,
        };
        Self { state: Mutex::new(state), returned: Condvar::new() }
    }

    /// No state is left half changed by a panic, so a poisoned lock is as good as another.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn report(&self) -> EngineReport {
        self.state().report
    }

    /// The plan of the sessions that were used last and are not in use.
    pub(super) fn plan(&self) -> Option<Plan> {
        self.state().idle.last().map(|pool| pool.plan().clone())
    }

    /// Sessions that do the work, planned again if those that are idle do not.
    ///
    /// # Errors
    /// As [`SessionPool::new`]; the work has [more bytes](Error::BeyondLimit) than the limit of the engine;
    /// the calling thread [has the sessions](Error::InvalidInput) for which it would wait.
    pub(super) fn take(&self, wanted: &Wanted<'_>) -> Result<Taken<'_>, Error> {
        let mut state = self.state();
        loop {
            match self.try_take(state, wanted) {
                Ok(taken) => return taken,
                Err(waits) => state = waits,
            }
            if state.users.contains(&std::thread::current().id()) {
                let expected =
                    "a call outside of the callbacks of another call, whose sessions it needs";
                return Err(Error::invalid_input("", expected, "one inside"));
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the lock if the call must wait until another one ends.
    fn try_take<'e>(
        &'e self,
        mut state: MutexGuard<'e, State>,
        wanted: &Wanted<'_>,
    ) -> Result<Result<Taken<'e>, Error>, MutexGuard<'e, State>> {
        let Wanted { model, rule, .. } = *wanted;
        if state.fixed {
            let Some(pool) = state.idle.pop() else { return Err(state) };
            return Ok(Ok(self.hand_out(&mut state, pool)));
        }
        let mut sessions = wanted.sessions;
        if let Some(most) = rule.bytes {
            // What other calls use cannot be freed.
            let used = state.report.bytes - state.idle.iter().map(bytes).sum::<usize>();
            match rule.within(most.saturating_sub(used), sessions, model) {
                Ok(fewer) => sessions = fewer,
                Err(Error::BeyondLimit { operand: BYTES, .. }) if used > 0 => return Err(state),
                Err(error) => return Ok(Err(error)),
            }
        }
        let covers = |pool: &SessionPool<'_>| shape(pool).cover(&sessions);
        if let Some(at) = state.idle.iter().rposition(covers) {
            let pool = state.idle.remove(at);
            return Ok(Ok(self.hand_out(&mut state, pool)));
        }
        // The idle sessions that were used last grow. Their memory is freed first.
        if let Some(had) = state.idle.pop() {
            let grown = rule.grown(&shape(&had), &sessions);
            state.report.bytes -= bytes(&had);
            drop(had);
            let fits = |grown: &Sessions| {
                let most = rule.bytes.unwrap_or(usize::MAX);
                grown
                    .bytes(model)
                    .is_ok_and(|bytes| state.report.bytes.saturating_add(bytes) <= most)
            };
            if fits(&grown) {
                sessions = grown;
            }
        }
        if let Some(most) = rule.bytes {
            let all = sessions.bytes(model).unwrap_or(usize::MAX);
            while state.report.bytes.saturating_add(all) > most {
                let Some(had) = state.idle.pop() else { break };
                state.report.bytes -= bytes(&had);
            }
        }
        let needed = match sessions.bytes(model) {
            Ok(needed) => needed,
            Err(error) => return Ok(Err(error)),
        };
        state.report.bytes += needed;
        state.report.plans += 1;
        state.users.push(std::thread::current().id());
        drop(state);
        // Counted before it is made, so that calls at the same time do not exceed the limit together.
        let made = SessionPool::new(model, sessions.limits, sessions.count);
        Ok(made.map(|pool| Taken { pool: Some(pool), engine: self }).inspect_err(|_| {
            let mut state = self.state();
            state.report.bytes -= needed;
            self.end(state);
        }))
    }

    /// Ends a call of this thread.
    fn end(&self, mut state: MutexGuard<'_, State>) {
        let here = std::thread::current().id();
        if let Some(at) = state.users.iter().position(|&user| user == here) {
            state.users.swap_remove(at);
        }
        drop(state);
        self.returned.notify_all();
    }

    fn hand_out(&self, state: &mut State, pool: SessionPool<'static>) -> Taken<'_> {
        state.users.push(std::thread::current().id());
        Taken { pool: Some(pool), engine: self }
    }
}

fn shape(pool: &SessionPool<'_>) -> Sessions {
    Sessions { count: pool.sessions(), limits: pool.plan().limits() }
}

fn bytes(pool: &SessionPool<'_>) -> usize {
    pool.sessions() * pool.plan().bytes()
}

/// Sessions of a call, which are idle again when it ends, also by a panic.
pub(super) struct Taken<'e> {
    /// `None` only while it is dropped.
    pool: Option<SessionPool<'static>>,
    engine: &'e IdleSessions,
}

impl Deref for Taken<'_> {
    type Target = SessionPool<'static>;

    fn deref(&self) -> &Self::Target {
        self.pool.as_ref().expect("sessions until they are dropped")
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.pool.as_mut().expect("sessions until they are dropped")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.engine.state();
        state.idle.extend(self.pool.take());
        self.engine.end(state);
    }
}
