//! Who computes for a session.

use crate::counted_threads::counted;
use core::fmt;
use simdformer_kernels::{Executor, Parallelism};
use std::sync::Arc;

/// Who computes. The results are the same bits.
///
/// Which to take is said at [`Parallelism`]: in short, [`Threads::Serial`] when a service has a session
/// for each of its threads, `Threads::Rayon` when one request should be answered sooner, and an
/// executor when the threads are not rayon's.
///
/// ```
/// use simdformer::kernels::Executor;
/// use simdformer::{Limits, Model, Session, Threads};
///
/// /// Threads that are started for each kernel: a pool would keep them.
/// struct Scoped(usize);
///
/// impl Executor for Scoped {
///     fn threads(&self) -> usize {
///         self.0
///     }
///
///     fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
///         std::thread::scope(|scope| {
///             for first in 0..self.0 {
///                 scope.spawn(move || (first..tasks).step_by(self.0).for_each(task));
///             }
///         });
///     }
/// }
///
/// # if !std::path::Path::new("models/fr-en").exists() { return Ok(()) } // not in the published package
/// let model = Model::open("models/fr-en")?;
/// let executor = Scoped(2);
/// let mut session = Session::new(&model, Limits::new(1, 16, 16))?;
/// let alone = session.encoder_output(&[&[5, 6, 7, 0]])?.to_vec();
/// session.set_threads(Threads::Executor(&executor));
/// assert_eq!(session.encoder_output(&[&[5, 6, 7, 0]])?, alone);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Threads<'a> {
    /// The calling thread.
    #[default]
    Serial,
    /// The rayon pool that the calling thread belongs to (the global pool if to none), entered once
    /// per call. Inside `ThreadPool::install` no call allocates; nothing spins between calls, nor while
    /// a callback takes its time.
    ///
    /// Probes and callbacks may enter rayon themselves, install work into another pool, and panic;
    /// what they may not do is said at [`Team`](crate::kernels::Team). A panic reaches the caller
    /// once, and the pool goes on, as does the session when it has been
    /// [cleared](crate::Session::clear).
    ///
    /// A thread of a new pool allocates when it starts and looks for work for the first time, which is
    /// some time after `ThreadPoolBuilder::build` has returned, and may be in the middle of somebody's
    /// first call. That is between rayon and the allocator, and no call here can prevent it;
    /// `pool.broadcast(|_| ())` waits until every thread has.
    #[cfg(feature = "rayon")]
    Rayon,
    /// Threads of the caller's, called from the one that calls the session, and asked once per call how many
    /// they are.
    Executor(&'a dyn Executor),
    /// As [`Threads::Executor`], owned with others: for a session that owns what it works with. Sessions on
    /// several threads that share one call it at the same time; what it has to do then is said at
    /// [`Executor`].
    Shared(Arc<dyn Executor + Send>),
}

impl Threads<'_> {
    /// Runs `work` with this parallelism; an executor is asked once for its threads.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce(Parallelism<'_>) -> R + Send) -> R {
        match self {
            Self::Serial => work(Parallelism::Serial),
            #[cfg(feature = "rayon")]
            Self::Rayon => simdformer_kernels::Team::run(|team| work(Parallelism::Team(team))),
            Self::Executor(executor) => counted(Parallelism::Executor(*executor), work),
            Self::Shared(executor) => counted(Parallelism::Executor(&**executor), work),
        }
    }
}

impl fmt::Debug for Threads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serial => f.write_str("Serial"),
            #[cfg(feature = "rayon")]
            Self::Rayon => f.write_str("Rayon"),
            Self::Executor(executor) => Parallelism::Executor(*executor).fmt(f),
            Self::Shared(executor) => Parallelism::Executor(&**executor).fmt(f),
        }
    }
}
