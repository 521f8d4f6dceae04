//! [`EngineBuilder`]: how an engine plans its sessions.

use super::engine::Engine;
use super::idle_sessions::IdleSessions;
use super::plan_rule::PlanRule;
use super::submissions::Submissions;
use crate::cancel::Cancel;
use crate::error::Error;
use crate::generate::SessionPool;
use crate::model::Model;
use crate::session::{Limits, Threads};
use core::fmt;
use simdformer_kernels::Dtype;
use std::sync::Arc;

/// How an [`Engine`] plans; [`Engine::builder`].
pub struct EngineBuilder {
    model: Arc<Model>,
    rule: PlanRule,
    limits: Option<Limits>,
    threads: Threads<'static>,
    submissions: Submissions,
}

impl EngineBuilder {
    /// The threads that compute; without this call the calling thread.
    #[must_use]
    pub fn threads(self, threads: Threads<'static>) -> Self {
        Self { threads, ..self }
    }

    /// The most sources that a session decodes at the same time, at least 1 (32).
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Self {
        self.rule.slots = slots.max(1);
        self
    }

    /// The most sessions of a call, each on one thread, at least 1; without this call as many as there are threads. One
    /// session on all threads takes the least memory, and more time for a list.
    #[must_use]
    pub fn sessions(mut self, sessions: usize) -> Self {
        self.rule.sessions = Some(sessions.max(1));
        self
    }

    /// The dtype of the KV cache, see [`Limits::cache`].
    #[must_use]
    pub fn cache(mut self, cache: Option<Dtype>) -> Self {
        self.rule.cache = cache;
        self
    }

    /// The most bytes of all sessions. Fewer sources are decoded at the same time if their sessions would have more.
    #[must_use]
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.rule.bytes = Some(bytes);
        self
    }

    /// Plans [`sessions`](Self::sessions) sessions of these limits at once, and never again. What does not fit them is an
    /// error. Slots, the dtype of the cache and the limit of bytes have no effect.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits: Some(limits), ..self }
    }

    /// The most requests that wait for [`Engine::run`], at least 1 (1024): [`Engine::submit`] waits when there are more.
    #[must_use]
    pub fn queue(mut self, requests: usize) -> Self {
        self.submissions.capacity = requests.max(1);
        self
    }

    /// The engine. Without fixed limits it plans nothing yet.
    ///
    /// # Errors
    /// With fixed limits, as [`Session::new`](crate::Session::new).
    pub fn build(self) -> Result<Engine, Error> {
        let sessions = match self.limits {
            None => IdleSessions::default(),
            Some(limits) => {
                let count = self.rule.sessions.unwrap_or(self.threads.count());
                IdleSessions::fixed(SessionPool::new(&self.model, limits, count)?)
            }
        };
        Ok(self.engine(sessions))
    }

    fn engine(self, sessions: IdleSessions) -> Engine {
        let Self { model, rule, limits, threads, submissions } = self;
        let (sessions, submissions) = (Arc::new(sessions), Arc::new(submissions));
        Engine { model, sessions, rule, limits, threads, cancel: Cancel::new(), submissions }
    }
}

impl Engine {
    /// An engine of a model, or of an `Arc` of it, with settings of your own. [`Model::open_with`] chooses the instruction
    /// set and the dtypes of the weights.
    ///
    /// ```
    /// use simdformer::kernels::ThreadPool;
    /// use simdformer::{Engine, Model, Quantization, Threads, WeightDtypes};
    /// use std::sync::Arc;
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let model = Model::open_with("models/fr-en", WeightDtypes::all(Quantization::W8A8))?;
    /// let threads = Threads::Shared(Arc::new(ThreadPool::new(2)?));
    /// let engine = Engine::builder(model).threads(threads).bytes(64 << 20).build()?;
    /// let found = engine.generate(&[vec![6, 11, 0], vec![], vec![9, 14, 32, 0]])?;
    /// assert!(found[0].is_ok() && found[2].is_ok());
    /// assert_eq!(found[1].as_ref().unwrap_err().to_string(), "source 1: expected at least one token, found none");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(model: impl Into<Arc<Model>>) -> EngineBuilder {
        let rule = PlanRule { slots: 32, sessions: None, cache: None, bytes: None };
        let (model, submissions) = (model.into(), Submissions::default());
        EngineBuilder { model, rule, limits: None, threads: Threads::Serial, submissions }
    }
}

impl Engine {
    /// An engine of the same model with the same settings, but with `sessions` sessions, which are its own, as its limit of
    /// bytes and its requests are.
    ///
    /// # Errors
    /// As [`EngineBuilder::build`].
    pub fn with_own_sessions(&self, sessions: usize) -> Result<Self, Error> {
        let Self { model, rule, limits, threads, submissions, .. } = self;
        let submissions = Submissions { capacity: submissions.capacity, ..Submissions::default() };
        let (model, rule, limits) = (Arc::clone(model), rule.clone(), *limits);
        let rule = PlanRule { sessions: Some(sessions.max(1)), ..rule };
        let builder = EngineBuilder { model, rule, limits, threads: threads.clone(), submissions };
        Ok(Self { cancel: self.cancel.clone(), ..builder.build()? })
    }
}

impl From<Arc<Model>> for Engine {
    /// An engine with the settings of [`Engine::builder`].
    fn from(model: Arc<Model>) -> Self {
        Self::builder(model).engine(IdleSessions::default())
    }
}

impl From<&Arc<Model>> for Engine {
    fn from(model: &Arc<Model>) -> Self {
        Self::from(Arc::clone(model))
    }
}

impl From<Model> for Engine {
    fn from(model: Model) -> Self {
        Self::from(Arc::new(model))
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("rule", &self.rule)
            .field("limits", &self.limits)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
