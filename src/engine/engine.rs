//! [`Engine`]: a model, its threads, and sessions that are planned for what calls need.

use super::idle_sessions::{EngineReport, IdleSessions, Taken};
use super::plan_rule::{
    PlanRule, Sessions, Workload, fit_options, fits, search_workload, target_tokens,
};
use super::request::{Generation, Input};
use super::submissions::{Submissions, lock};
use crate::cancel::Cancel;
use crate::config::Side;
use crate::error::{Error, ErrorValue};
use crate::generate::{DecodeStats, Event, Generated, Source, Stop};
use crate::model::{IntoControlFlow, Model};
use crate::search::{Finish, SearchOptions, Strategy};
use crate::session::{Limits, Plan, Session, Threads};
use core::cmp::Reverse;
use core::fmt;
use core::ops::ControlFlow;
use simdformer_kernels::Dtype;
use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A model, its threads, and the sessions in which it runs. The engine chooses their limits: it plans sessions for the first
/// call, and again when a call needs more. The results do not depend on what was planned before.
///
/// ```
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
/// let engine = simdformer::Engine::open("models/fr-en")?;
/// let found = engine.generate(&[6, 11, 0])?;
/// println!("{:?}, score {}", found.tokens(), found.score());
/// # assert!(!found.tokens().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # One source or many
///
/// [`generate`](Self::generate) and [`encode`](Self::encode) take one source or a list; a source that cannot be run is an
/// error in its place, and the others have their results. [`stream`](Self::stream) reports each token while the model
/// decodes. A list runs in one session on each thread, one source in one session on all threads.
///
/// # Memory
///
/// Sessions grow between calls, never within one: [`report`](Self::report) counts how often. They have as many
/// [slots](super::EngineBuilder::slots) as the longest list needed, and the lengths of the longest source and target.
/// [`EngineBuilder::bytes`](super::EngineBuilder::bytes) limits their memory; then fewer sources are decoded at the same time.
/// [`EngineBuilder::limits`](super::EngineBuilder::limits) plans them once, after which [`stream`](Self::stream) and [`with_session`](Self::with_session)
/// do not allocate.
///
/// # Threads of the caller
///
/// All methods take `&self`. A service [submits](Self::submit) requests from any threads, and one thread
/// [runs](Self::run) them in one batch. Calls at the same time have sessions of their own; with fixed limits, or if the limit of bytes
/// does not suffice, a call waits until another one has ended. A clone shares the model and the sessions, and can have a
/// [`Cancel`] of its own.
#[derive(Clone)]
pub struct Engine {
    pub(super) model: Arc<Model>,
    pub(super) sessions: Arc<IdleSessions>,
    pub(super) rule: PlanRule,
    /// Fixed limits.
    pub(super) limits: Option<Limits>,
    pub(super) threads: Threads<'static>,
    pub(super) cancel: Cancel,
    /// Of [`submit`](Self::submit).
    pub(super) submissions: Arc<Submissions>,
}

impl Engine {
    /// The engine of a checkpoint directory, on the calling thread.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::from(Model::open(directory)?))
    }

    /// Uses `threads` for later calls of this engine, not of its clones. The results stay the same.
    pub fn set_threads(&mut self, threads: Threads<'static>) {
        self.threads = threads;
    }

    /// As [`EngineBuilder::sessions`](super::EngineBuilder::sessions), for later calls of this engine, not of its clones. No effect with fixed limits.
    pub fn set_sessions(&mut self, sessions: usize) {
        self.rule.sessions = Some(sessions.max(1));
    }

    /// As [`EngineBuilder::slots`](super::EngineBuilder::slots), for later calls of this engine, not of its clones. No effect with fixed limits.
    pub fn set_slots(&mut self, slots: usize) {
        self.rule.slots = slots.max(1);
    }

    /// As [`EngineBuilder::cache`](super::EngineBuilder::cache), for later calls of this engine, not of its clones. No effect with fixed limits.
    pub fn set_cache(&mut self, cache: Option<Dtype>) {
        self.rule.cache = cache;
    }

    /// Ends later calls of this engine, not of its clones, with [`Error::Cancelled`] when `cancel` is set, as
    /// [`Session::set_cancel`](crate::Session::set_cancel).
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.cancel = cancel;
    }

    /// The flag that ends the calls of this engine.
    #[must_use]
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The most sources that are decoded at the same time.
    #[must_use]
    pub fn slots(&self) -> usize {
        let threads = self.threads.count();
        let sessions = self.rule.sessions.unwrap_or(threads).min(threads);
        self.slots_of_session().saturating_mul(sessions)
    }

    /// The most sources that a session decodes at the same time.
    pub(super) fn slots_of_session(&self) -> usize {
        self.limits.map_or(self.rule.slots, |limits| limits.sentences)
    }

    /// What was planned, of all clones.
    #[must_use]
    pub fn report(&self) -> EngineReport {
        self.sessions.report()
    }

    /// The plan of each session of the last call; `None` before the first call, and during one.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        self.sessions.plan()
    }

    /// The plan that one new session for `work` would have.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan_for(&self, work: &Workload) -> Result<Plan, Error> {
        let limits = self.limits;
        Plan::new(
            &self.model,
            limits.unwrap_or_else(|| self.rule.sessions(&self.model, work, 1).limits),
        )
    }

    /// The search options of the checkpoint, [`Config::search_options`](crate::config::Config::search_options). With fixed
    /// limits, a maximum length beyond them is omitted, as [`Session::search_options`] does.
    #[must_use]
    pub fn search_options(&self) -> SearchOptions {
        let mut options = self.model.config().search_options();
        if let Some(limits) = self.limits {
            options.fit_length(limits.target_tokens + 1);
        }
        options
    }

    /// `options` as a call searches with them, and what one source needs. `prompt` is the number of tokens that a target
    /// begins with, the decoder start included.
    ///
    /// A maximum length that the positions of the model do not allow is replaced by the longest target that they allow,
    /// without a forced end token. A target has at most 256 tokens if neither the options nor the model set a maximum. With
    /// fixed limits the options are those of the caller.
    #[must_use]
    pub fn fit<'o>(
        &self,
        options: &'o SearchOptions,
        prompt: usize,
    ) -> (Cow<'o, SearchOptions>, Workload) {
        let target_tokens = self.target_tokens(options, prompt);
        let fitted = match self.limits.is_some() || fits(options, target_tokens) {
            true => Cow::Borrowed(options),
            false => Cow::Owned(fit_options(options, target_tokens)),
        };
        let work = search_workload(options, target_tokens);
        (fitted, work)
    }

    fn target_tokens(&self, options: &SearchOptions, prompt: usize) -> usize {
        match self.limits {
            Some(limits) => limits.target_tokens,
            None => target_tokens(self.model.config(), options, prompt),
        }
    }

    /// Whether a call accepts `options` for targets that begin with `prompt` tokens, whatever its sources are.
    ///
    /// # Errors
    /// The model has [no decoder](Error::Unsupported); the options are [invalid](Error::InvalidOption), or [beyond the
    /// plan](Error::BeyondLimit) of fixed limits.
    pub fn check_options(&self, options: &SearchOptions, prompt: usize) -> Result<(), Error> {
        let (fitted, work) = self.fit(options, prompt);
        self.model.config().check_search(&fitted)?;
        self.plan_for(&work)?.check_options(&fitted)
    }

    /// The targets of one source or of many under the options of the checkpoint, or their own. [`Input`] lists what can
    /// be asked for.
    ///
    /// # Errors
    /// For one source, all that can be wrong with it. For many, only what concerns all of them: invalid options, no
    /// memory, a [cancelled](Self::set_cancel) call. What concerns one source is an error in its place,
    /// with its [index](Error::index); scores that are NaN or `+inf` are one, too.
    ///
    /// ```
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let engine = simdformer::Engine::open("models/fr-en")?;
    /// let one = engine.generate(&[6, 11, 0])?;
    /// let many = engine.generate(&[vec![6, 11, 0], vec![9, 14, 32, 0]])?;
    /// assert_eq!(many[0].as_ref(), Ok(&one));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn generate<I: Input + ?Sized>(&self, input: &I) -> Result<I::Output<Generation>, Error> {
        self.generate_with(input, &self.search_options())
    }

    /// As [`generate`](Self::generate), with `options` for what has none of its own.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_with<I: Input + ?Sized>(
        &self,
        input: &I,
        options: &SearchOptions,
    ) -> Result<I::Output<Generation>, Error> {
        let sources = input.sources();
        let results: Vec<Option<Result<Generation, Error>>> = vec![None; sources.len()];
        let results = Mutex::new(results);
        // The longest first, so that no slot is left over with a long source at the end.
        let mut indices: Vec<usize> = (0..sources.len()).collect();
        indices.sort_by_key(|&index| Reverse(sources[index].positions()));
        while !indices.is_empty() {
            let left: Vec<Source<'_>> = indices.iter().map(|&index| sources[index]).collect();
            match self.generate_left(&left, &indices, options, &results) {
                Ok(()) => break,
                // The others are run again without it.
                Err(error) => {
                    let Some(index) = error.index().map(|index| indices[index]) else {
                        return Err(error);
                    };
                    let mut results = lock(&results);
                    results[index] = Some(Err(error.with_index(index)));
                    indices.retain(|&index| results[index].is_none());
                }
            }
        }
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let result =
            |one: Option<_>| one.unwrap_or_else(|| unreachable!("every source has a result"));
        I::output(results.into_iter().map(result).collect())
    }

    /// Runs `sources`, which have these `indices` in `results`.
    fn generate_left(
        &self,
        sources: &[Source<'_>],
        indices: &[usize],
        options: &SearchOptions,
        results: &Mutex<Vec<Option<Result<Generation, Error>>>>,
    ) -> Result<(), Error> {
        let failed = |source: usize, error: Error| {
            let index = indices[source];
            lock(results)[index] = Some(Err(error.with_index(index)));
        };
        let on_event = |event: Event<'_>| {
            match event {
                Event::Refused { source, error } => {
                    failed(source, self.of_model(error.clone()));
                    return ControlFlow::Break(Stop::Source);
                }
                Event::Done(done) => match not_finite(&done, sources[done.source].prefix.len()) {
                    Some(error) => failed(done.source, error),
                    None => {
                        let found = Generation::new(done.finish, done.hypotheses());
                        lock(results)[indices[done.source]] = Some(Ok(found));
                    }
                },
                _ => (),
            }
            ControlFlow::Continue(())
        };
        self.stream(sources, options, &on_event).map(drop)
    }

    /// The error of a source that is longer than the model reads names the positions of the model, not of the plan.
    pub(super) fn of_model(&self, mut error: Error) -> Error {
        if let Error::BeyondLimit { operand: "source_tokens", limit: None, expected, .. } =
            &mut error
            && self.limits.is_none()
        {
            let positions = self.positions(Side::Encoder);
            *expected = ErrorValue::at_most_of_model(positions);
        }
        error
    }

    fn positions(&self, side: Side) -> usize {
        self.model.config().max_positions(side).unwrap_or(usize::MAX)
    }

    /// Decodes `sources` under `options` and calls `on_event` with each [`Event`], from all threads. It answers as in
    /// [`Session::generate`]; [`SessionPool::generate`](crate::SessionPool::generate) says how sessions share the sources.
    ///
    /// Does not allocate with fixed limits, except that several sessions keep four bytes for each source of the longest
    /// list.
    ///
    /// # Errors
    /// As [`Session::generate`]; the sessions [cannot be planned](Self::with_session).
    ///
    /// # Panics
    /// If `on_event` panics, when all sessions have ended. The engine can be used again.
    ///
    /// ```
    /// use simdformer::{Engine, Event, Source};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let engine = Engine::open("models/fr-en")?;
    /// let sources = [Source::new(&[6, 11, 0]), Source::new(&[9, 14, 32, 0])];
    /// engine.stream(&sources, &engine.search_options(), &|event: Event<'_>| {
    ///     if let Event::Token { source, token } = event {
    ///         println!("source {source}: token {}", token.id);
    ///     }
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stream<A: IntoControlFlow<Stop>>(
        &self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        on_event: &(dyn Fn(Event<'_>) -> A + Sync),
    ) -> Result<DecodeStats, Error> {
        self.with_fitted(sources, options, |sources, options, work| {
            self.take(work)?.generate(sources, options, on_event)
        })
    }

    /// Calls `run` with `sources` and `options` as they fit the model, and what they need. Each source has the options that it
    /// has alone.
    fn with_fitted<R>(
        &self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        run: impl FnOnce(&[Source<'_>], &SearchOptions, &Workload) -> R,
    ) -> R {
        let target = |source: &Source<'_>| {
            self.target_tokens(source.options.unwrap_or(options), 1 + source.prefix.len())
        };
        // The options of the call are checked also if every source has its own, but need no memory then.
        let unused = !sources.is_empty() && sources.iter().all(|source| source.options.is_some());
        let mut work = match unused {
            true => Workload::targets(1, 1, 1).with_end_tokens(options),
            false => search_workload(options, self.target_tokens(options, 1)),
        };
        for source in sources {
            work = work.or(search_workload(source.options.unwrap_or(options), target(source)));
        }
        let work = work.with_sources(sources.len(), self.longest(sources));
        let fits = |source: &Source<'_>| fits(source.options.unwrap_or(options), target(source));
        if self.limits.is_some() || !unused && sources.iter().all(fits) {
            return run(sources, options, &work);
        }
        // Options that are the same value, with the same end, are fitted once.
        let mut fitted: Vec<(*const SearchOptions, usize, SearchOptions)> = Vec::new();
        let places: Vec<Option<usize>> = sources
            .iter()
            .map(|source| {
                let (own, target) = (source.options.unwrap_or(options), target(source));
                let same = |known: &(*const SearchOptions, usize, _)| {
                    core::ptr::eq(known.0, own) && known.1 == target
                };
                (!fits(source)).then(|| {
                    fitted.iter().position(same).unwrap_or_else(|| {
                        fitted.push((own, target, fit_options(own, target)));
                        fitted.len() - 1
                    })
                })
            })
            .collect();
        let sources: Vec<Source<'_>> = sources
            .iter()
            .zip(&places)
            .map(|(source, place)| match place {
                Some(place) => source.with_options(&fitted[*place].2),
                None => *source,
            })
            .collect();
        let mut call = fit_options(options, work.target_tokens());
        if unused {
            (call.strategy, call.num_return_sequences) = (Strategy::Greedy, 1);
        }
        run(&sources, &call, &work)
    }

    /// The positions of the longest source. One that the model cannot read is refused: nothing is planned for it.
    pub(super) fn longest(&self, sources: &[Source<'_>]) -> usize {
        let most = self.positions(Side::Encoder);
        let lengths = sources.iter().map(Source::positions).filter(|&length| length <= most);
        lengths.max().unwrap_or(1)
    }

    /// Calls `run` with a session that is planned for `work`, on all threads: for hooks, drafts, given targets, a queue of
    /// requests, or a loop of the caller. The session has the content of its last call.
    ///
    /// # Errors
    /// As [`Plan::new`]; the system [cannot allocate](Error::OutOfMemory) the session; one slot has [more
    /// bytes](Error::BeyondLimit) than the engine may plan; the call is [made inside](Error::InvalidInput) of
    /// another one for which it would wait.
    ///
    /// ```
    /// use simdformer::{Engine, SourceId, StepRow, Workload};
    ///
    /// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
    /// let engine = Engine::open("models/fr-en")?;
    /// // One source of 3 tokens, and up to 2 tokens of its target.
    /// let logits = engine.with_session(&Workload::targets(1, 3, 2), |session| {
    ///     let mut source = [SourceId::default()];
    ///     session.clear();
    ///     session.encode(&[&[6, 11, 0]], &mut source)?;
    ///     let hypothesis = session.start(source[0])?;
    ///     let token = session.model().config().tokens.decoder_start.unwrap_or(0);
    ///     Ok::<_, simdformer::Error>(session.step(&[StepRow::new(hypothesis, token)])?.to_vec())
    /// })??;
    /// assert!(logits.iter().any(|logit| logit.is_finite()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_session<R>(
        &self,
        work: &Workload,
        run: impl FnOnce(&mut Session<'static>) -> R,
    ) -> Result<R, Error> {
        Ok(run(self.take(work)?.session()))
    }

    /// As [`with_session`](Self::with_session), planned for `sources` under `options`; `run` gets both as they fit the model.
    ///
    /// # Errors
    /// As [`with_session`](Self::with_session).
    pub fn with_session_for<R>(
        &self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        run: impl FnOnce(&mut Session<'static>, &[Source<'_>], &SearchOptions) -> R,
    ) -> Result<R, Error> {
        self.with_fitted(sources, options, |sources, options, work| {
            self.with_session(work, |session| run(session, sources, options))
        })
    }

    /// Whether a session of these limits does `work`. With fixed limits there is no other one.
    pub(super) fn covers(&self, limits: Limits, work: &Workload) -> bool {
        let had = Sessions { count: 1, limits };
        self.limits.is_some() || had.cover(&self.rule.sessions(&self.model, work, 1))
    }

    /// Sessions that do `work`.
    pub(super) fn take(&self, work: &Workload) -> Result<Taken<'_>, Error> {
        let (model, rule) = (&self.model, &self.rule);
        let wanted = rule.sessions(model, work, self.threads.count());
        let mut taken = self.sessions.take(model, rule, wanted)?;
        taken.set_threads(self.threads.clone());
        taken.set_cancel(self.cancel.clone());
        Ok(taken)
    }
}

/// The error of a source that ended with scores that are not finite.
pub(super) fn not_finite(done: &Generated<'_>, prefix: usize) -> Option<Error> {
    let chosen = done.hypotheses().next().map_or(0, |best| best.tokens.len());
    let error = Error::not_finite_scores(1 + prefix + chosen);
    (done.finish == Finish::NotFinite).then_some(error)
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("slots", &self.slots())
            .field("threads", &self.threads)
            .field("limits", &self.limits)
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}
