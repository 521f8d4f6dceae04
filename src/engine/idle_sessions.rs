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

/// What a call gets.
enum Choice {
    Idle(SessionPool<'static>),
    /// Sessions to plan, and their bytes, which are counted before they are planned, so that calls at the same time do not
    /// exceed the limit together.
    Plan(Sessions, usize),
}

impl State {
    /// What a call for `wanted` gets; `None` if it must wait until another one ends.
    fn choose(
        &mut self,
        model: &Model,
        rule: &PlanRule,
        wanted: Sessions,
    ) -> Result<Option<Choice>, Error> {
        if self.fixed {
            return Ok(self.idle.pop().map(Choice::Idle));
        }
        let mut sessions = wanted;
        if let Some(most) = rule.bytes {
            // What other calls use cannot be freed.
            let used = self.report.bytes - self.idle.iter().map(bytes).sum::<usize>();
            match rule.within(most.saturating_sub(used), sessions, model) {
                Ok(fewer) => sessions = fewer,
                Err(Error::BeyondLimit { operand: BYTES, .. }) if used > 0 => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        // The smallest that do the work, so that larger ones stay for calls that need them; of equal ones those used last.
        let idle = self.idle.iter().enumerate().rev();
        let covering = idle.filter(|(_, pool)| shape(pool).cover(&sessions));
        if let Some((at, _)) = covering.min_by_key(|(_, pool)| bytes(pool)) {
            return Ok(Some(Choice::Idle(self.idle.remove(at))));
        }
        let most = rule.bytes.unwrap_or(usize::MAX);
        // The idle sessions that were used last grow. Their memory is freed first.
        if let Some(had) = self.idle.pop() {
            let grown = rule.grown(&shape(&had), &sessions);
            self.report.bytes -= bytes(&had);
            drop(had);
            let whole = |bytes| self.report.bytes.saturating_add(bytes);
            if grown.bytes(model).is_ok_and(|bytes| whole(bytes) <= most) {
                sessions = grown;
            }
        }
        let needed = sessions.bytes(model);
        let all = *needed.as_ref().unwrap_or(&usize::MAX);
        while self.report.bytes.saturating_add(all) > most {
            let Some(had) = self.idle.pop() else { break };
            self.report.bytes -= bytes(&had);
        }
        let needed = needed?;
        self.report.bytes += needed;
        self.report.plans += 1;
        Ok(Some(Choice::Plan(sessions, needed)))
    }
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

    /// Sessions that do the work of `wanted`, planned again if those that are idle do not.
    ///
    /// # Errors
    /// As [`SessionPool::new`]; the work has [more bytes](Error::BeyondLimit) than the limit of the engine;
    /// the calling thread [has the sessions](Error::InvalidInput) for which it would wait.
    pub(super) fn take(
        &self,
        model: &Arc<Model>,
        rule: &PlanRule,
        wanted: Sessions,
    ) -> Result<Taken<'_>, Error> {
        let here = std::thread::current().id();
        let mut state = self.state();
        let choice = loop {
            if let Some(choice) = state.choose(model, rule, wanted)? {
                break choice;
            }
            if state.users.contains(&here) {
                let expected =
                    "a call outside of the callbacks of another call, whose sessions it needs";
                return Err(Error::invalid_input("", expected, "one inside"));
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.users.push(here);
        drop(state);
        let made = match choice {
            Choice::Idle(pool) => Ok(pool),
            Choice::Plan(Sessions { count, limits }, bytes) => {
                SessionPool::new(model, limits, count).inspect_err(|_| {
                    let mut state = self.state();
                    state.report.bytes -= bytes;
                    self.end(state);
                })
            }
        };
        made.map(|pool| Taken { pool: Some(pool), engine: self })
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
