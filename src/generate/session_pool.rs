//! [`SessionPool`]: several sessions of one model over one list of sources, one on each thread.

use super::request::{DecodeStats, Event, Source, Stop};
use super::source_queue::SourceQueue;
use crate::cancel::Cancel;
use crate::error::{Error, ErrorValue};
use crate::model::{IntoControlFlow, Model};
use crate::ref_or_arc::RefOrArc;
use crate::search::{Hooks, SearchOptions};
use crate::session::{Limits, Plan, Session, Threads};
use core::cmp::Reverse;
use core::fmt;
use core::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, Ordering};

/// Sessions of one model that share a list of sources: each session runs on one thread and takes the next source when it
/// has a free slot. The results have the bits of one session.
///
/// A session on several threads hands over some fifty small kernels per step and waits for the slowest thread in each. The
/// threads of a pool meet only at the end of the list, so many sources take less time: CTranslate2 calls the same thing
/// `inter_threads`. Weights are shared; each session has its own planned memory, [`Plan::bytes`].
///
/// The sources are started longest first, so that all sessions end at about the same time. With fewer sources than threads
/// there are as many sessions as sources; a single source runs on all threads in one session.
///
/// ```
/// use simdformer::kernels::ThreadPool;
/// use simdformer::{Event, Limits, Model, SessionPool, Source, Threads};
/// use std::sync::{Arc, Mutex};
///
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
/// let model = Model::open("models/fr-en")?;
/// // Two sessions of at most 16 sentences each, on two threads.
/// let mut pool = SessionPool::new(&model, Limits::new(16, 32, 32), 2)?;
/// pool.set_threads(Threads::Shared(Arc::new(ThreadPool::new(2)?)));
/// let options = pool.session().search_options();
/// let sources = [Source::new(&[6, 11, 0]), Source::new(&[9, 14, 32, 0]), Source::new(&[8, 0])];
/// // Called by both threads; each source has one event of this kind.
/// let best = Mutex::new(vec![Vec::new(); sources.len()]);
/// pool.generate(&sources, &options, &|event: Event<'_>| {
///     if let Event::Done(done) = event {
///         let tokens = done.hypotheses().next().map(|best| best.tokens.to_vec());
///         best.lock().expect("no panic")[done.source] = tokens.unwrap_or_default();
///     }
/// })?;
/// let best = best.into_inner()?;
/// # let mut alone = Vec::new();
/// # for source in sources {
/// #     pool.session().generate(&[source], &options, &mut Default::default(), &mut |event| {
/// #         if let Event::Done(done) = event {
/// #             alone.extend(done.hypotheses().map(|one| one.tokens.to_vec()));
/// #         }
/// #     })?;
/// # }
/// # assert_eq!(best, alone);
/// assert!(best.iter().all(|tokens| !tokens.is_empty()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SessionPool<'a> {
    workers: Vec<Worker<'a>>,
    threads: Threads<'a>,
    /// The order of the sources of a call. It grows with the number of sources.
    order: Vec<u32>,
}

struct Worker<'a> {
    session: Session<'a>,
    /// Of the last call.
    result: Result<DecodeStats, Error>,
}

/// How a call goes on. A larger number wins.
const RUNNING: u8 = 0;
/// The caller ended it: unfinished sources are reported as they are.
const STOPPED: u8 = 1;
/// An error or a panic ended it: nothing is reported any more.
const FAILED: u8 = 2;

impl<'a> SessionPool<'a> {
    /// Plans `sessions` sessions of `limits`, each with its own buffer. `model` is `&model` or an `Arc` of it. All work is
    /// on the calling thread, in the first session, until [`set_threads`](Self::set_threads) changes that.
    ///
    /// # Errors
    /// As [`Session::new`]; [no sessions](Error::BeyondLimit); more than [fit](Error::OutOfMemory) the address
    /// space.
    pub fn new(
        model: impl Into<RefOrArc<'a, Model>>,
        limits: Limits,
        sessions: usize,
    ) -> Result<Self, Error> {
        let model = model.into();
        if sessions == 0 {
            let least = ErrorValue::at_least(1);
            return Err(Error::beyond_limit("sessions", least, 0));
        }
        let bytes = Plan::new(&model, limits)?.bytes().checked_mul(sessions);
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(Error::PLAN_TOO_LARGE);
        }
        let worker = |_| {
            let session = Session::new(model.clone(), limits)?;
            Ok(Worker { session, result: Ok(DecodeStats::default()) })
        };
        let workers = (0..sessions).map(worker).collect::<Result<_, Error>>()?;
        Ok(Self { workers, threads: Threads::Serial, order: Vec::new() })
    }

    /// Uses `threads` for all later calls: as many sessions run as there are threads, and no more than the pool has.
    pub fn set_threads(&mut self, threads: Threads<'a>) {
        self.threads = threads;
    }

    /// Ends later calls, in all sessions, when `cancel` is set: [`Session::set_cancel`].
    pub fn set_cancel(&mut self, cancel: Cancel) {
        for worker in &mut self.workers {
            worker.session.set_cancel(cancel.clone());
        }
    }

    /// The number of sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.workers.len()
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        self.workers[0].session.model()
    }

    /// The plan of each session. The pool takes [`sessions`](Self::sessions) times its bytes.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.workers[0].session.plan()
    }

    /// The first session, on all threads, to be used alone.
    pub fn session(&mut self) -> &mut Session<'a> {
        let session = &mut self.workers[0].session;
        session.set_threads(self.threads.clone());
        session
    }

    /// Calls `work` once for each of at most `most` sessions, on as many threads at the same time: for work that a caller
    /// divides itself, for example by an atomic number of the next batch for [`Session::encoder_output`]. With one thread
    /// or `most` 1, the first session has all threads; otherwise each has its own. Does not allocate.
    ///
    /// # Panics
    /// If `work` panics, when it has returned for all other sessions.
    pub fn for_each_session(&mut self, most: usize, work: &(dyn Fn(&mut Session<'a>) + Sync)) {
        let active = self.active(most);
        self.for_each_worker(active, &|worker| work(&mut worker.session));
    }

    /// Translates `sources` under `options`, as [`Session::generate`] does, and calls `on_event` with each event, from all
    /// threads, without a lock. [`Event::Step`] has the statistics of one session. The events of a source come in their
    /// order, from one thread.
    ///
    /// After [`Stop::All`] in any session, the other sessions end before their next step: they report no more tokens, and
    /// every unfinished source as [`Finish::Stopped`](crate::search::Finish::Stopped). The statistics of all sessions are
    /// added up.
    ///
    /// Allocates four bytes for each source if there are more than in all earlier calls, and nothing else.
    ///
    /// # Errors
    /// As [`Session::generate`]. An error in one session ends the others, without further events.
    ///
    /// # Panics
    /// If `on_event` panics, when all sessions have ended. The pool can be used again.
    pub fn generate<A: IntoControlFlow<Stop>>(
        &mut self,
        sources: &[Source<'_>],
        options: &SearchOptions,
        on_event: &(dyn Fn(Event<'_>) -> A + Sync),
    ) -> Result<DecodeStats, Error> {
        let active = self.active(sources.len());
        let mut answer = |event: Event<'_>| on_event(event).answer();
        if active == 1 {
            let hooks = &mut Hooks::default();
            return self.session().generate(sources, options, hooks, &mut answer);
        }
        self.plan().check_options(options)?;
        let mut order = core::mem::take(&mut self.order);
        order.clear();
        order.extend((0..sources.len()).map(|index| index as u32));
        order.sort_unstable_by_key(|&index| (Reverse(sources[index as usize].positions()), index));
        let mut queue = SourceQueue::new(sources, &order, active);
        let checked = queue.check(self.plan(), options, &mut answer);
        let result = checked.and_then(|()| self.generate_from(&queue, options, active, on_event));
        self.order = order;
        result
    }

    fn generate_from<A: IntoControlFlow<Stop>>(
        &mut self,
        queue: &SourceQueue<'_>,
        options: &SearchOptions,
        active: usize,
        on_event: &(dyn Fn(Event<'_>) -> A + Sync),
    ) -> Result<DecodeStats, Error> {
        let state = AtomicU8::new(RUNNING);
        self.for_each_worker(active, &|Worker { session, result }| {
            // Also if a callback panics.
            let mut guard = FailOnDrop { state: &state, ended: false };
            let mut forward = |event: Event<'_>| {
                let reported = match &event {
                    Event::Done(_) => STOPPED,
                    _ => RUNNING,
                };
                if state.load(Ordering::Relaxed) > reported {
                    return ControlFlow::Break(Stop::All);
                }
                let answer = on_event(event).answer();
                if answer == ControlFlow::Break(Stop::All) {
                    state.fetch_max(STOPPED, Ordering::Relaxed);
                }
                answer
            };
            let hooks = &mut Hooks::default();
            *result = session.generate_from(queue, options, hooks, &mut forward, None);
            guard.ended = result.is_ok();
        });
        let mut stats = DecodeStats::default();
        for worker in &self.workers[..active] {
            let one = worker.result.clone()?;
            stats.steps += one.steps;
            stats.rows += one.rows;
            stats.cancelled += one.cancelled;
        }
        Ok(stats)
    }

    /// The number of sessions for `tasks` tasks.
    fn active(&self, tasks: usize) -> usize {
        self.workers.len().min(tasks).min(self.threads.count()).max(1)
    }

    /// Calls `work` with the first `active` workers.
    fn for_each_worker(&mut self, active: usize, work: &(dyn Fn(&mut Worker<'a>) + Sync)) {
        if active == 1 {
            self.session();
            work(&mut self.workers[0]);
            return;
        }
        let workers = &mut self.workers[..active];
        for worker in &mut *workers {
            worker.session.set_threads(Threads::Serial);
        }
        self.threads
            .with_parallelism(|threads| threads.for_each_mut(workers, &|_, worker| work(worker)));
    }
}

/// Ends the other sessions if the work of one does not end well.
struct FailOnDrop<'s> {
    state: &'s AtomicU8,
    ended: bool,
}

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.state.store(FAILED, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for SessionPool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPool")
            .field("sessions", &self.sessions())
            .field("limits", &self.plan().limits())
            .field("bytes", &(self.sessions() * self.plan().bytes()))
            .finish_non_exhaustive()
    }
}
