//! The threads of a session.

use crate::fixed_thread_count::counted;
use core::fmt;
use simdformer_kernels::{Executor, Parallelism};
use std::sync::Arc;

/// The threads that compute. The results are the same bits in all cases.
///
/// [`Parallelism`] explains the choice. In short: [`Threads::Serial`] if a service has one session per thread,
/// `Threads::Rayon` to reduce the latency of one request, and an executor if the threads are not rayon's.
///
/// ```
/// use simdformer::kernels::Executor;
/// use simdformer::{Limits, Model, Session, Threads};
///
/// /// Starts threads for each kernel; a real pool would reuse them.
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
    /// The rayon pool of the calling thread (the global pool if it has none), entered once per call. Inside
    /// `ThreadPool::install` no call allocates. No thread spins between calls or while a callback runs for long.
    ///
    /// Probes and callbacks may enter rayon, install work into another pool, and panic; [`Team`](crate::kernels::Team)
    /// states the restrictions. A panic reaches the caller once. The pool stays usable, and so does the session after a
    /// [`clear`](crate::Session::clear).
    ///
    /// A thread of a new pool allocates when it starts and first searches for work. This can happen after
    /// `ThreadPoolBuilder::build` returns, during the first call of a session. This crate cannot prevent it.
    /// `pool.broadcast(|_| ())` waits until every thread has started.
    #[cfg(feature = "rayon")]
    Rayon,
    /// The caller's threads. The executor is called on the thread that calls the session; its number of threads is read
    /// once per call.
    Executor(&'a dyn Executor),
    /// As [`Threads::Executor`], in an `Arc`, for a session that borrows nothing. Sessions on several threads that
    /// share one executor call it at the same time; [`Executor`] states the requirements.
    Shared(Arc<dyn Executor + Send>),
}

impl Threads<'_> {
    /// The number of threads that compute, at least 1. For `Threads::Rayon` that of the calling thread's pool.
    ///
    /// ```
    /// use simdformer::Threads;
    /// use simdformer::kernels::ThreadPool;
    ///
    /// let pool = ThreadPool::new(3)?;
    /// assert_eq!((Threads::Serial.count(), Threads::Executor(&pool).count()), (1, 3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn count(&self) -> usize {
        self.parallelism().threads()
    }

    fn parallelism(&self) -> Parallelism<'_> {
        match self {
            Self::Serial => Parallelism::Serial,
            #[cfg(feature = "rayon")]
            Self::Rayon => Parallelism::Rayon,
            Self::Executor(executor) => Parallelism::Executor(*executor),
            Self::Shared(executor) => Parallelism::Executor(&**executor),
        }
    }

    /// Runs `work` with this parallelism. The number of threads of an executor is read once.
    pub(crate) fn with_parallelism<R: Send>(
        &self,
        work: impl FnOnce(Parallelism<'_>) -> R + Send,
    ) -> R {
        #[cfg(feature = "rayon")]
        if let Self::Rayon = self {
            return simdformer_kernels::Team::form(|team| work(Parallelism::Team(team)));
        }
        counted(self.parallelism(), work)
    }
}

impl fmt::Debug for Threads<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parallelism().fmt(f)
    }
}
