//! Who does the work: the calling thread, or the caller's threads with it.
//!
//! A kernel cuts its work into numbered tasks that write disjoint output, and the numbering never
//! depends on how many threads there are; who runs a task therefore cannot change a bit of the
//! result. No thread is started here and no pool is configured.

use crate::shared::SharedMut;
use core::fmt;

/// How a kernel may spread its work.
///
/// A panic in a task (of a callback of the caller's: kernels have none of their own) reaches the
/// caller of the kernel once, when no task runs any more. `Team` says what else callbacks may do on a
/// pool.
///
/// ```
/// use simdformer_kernels::Parallelism;
///
/// assert_eq!(Parallelism::Serial.threads(), 1);
/// ```
///
/// # When `Rayon`, when a `Team`, when an executor
///
/// All give the same bits; they differ in what it costs to hand work over and in whose threads it is.
///
/// * [`Parallelism::Serial`]: when requests are many and each thread serves its own, or a call is
///   small. Nothing is handed over.
/// * `Parallelism::Rayon`: when the program has a rayon pool and calls a kernel now and then, or large
///   ones: encoders, prompts, training, one product in another engine's operation. A hand-over
///   costs some microseconds, as workers that find nothing to do go to sleep.
/// * `Parallelism::Team`: when the program has a rayon pool and calls one small kernel after another: a
///   decoding step is some fifty of a few microseconds each. The team is asked for once, and takes
///   turns in well under a microsecond. Its threads are awake as long as kernels follow each other
///   closely, for about a millisecond beyond that, and not between the requests of a service.
/// * [`Parallelism::Executor`]: when threads are not rayon's, or of another version of rayon: an
///   engine's pool, a runtime of another language, a build without std. As fast as its hand-over;
///   one that wakes a sleeping thread each time gains nothing on small calls.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub enum Parallelism<'a> {
    /// Everything on the calling thread.
    #[default]
    Serial,
    /// The rayon pool that the calling thread belongs to, or rayon's global pool when it belongs
    /// to none. Enter your pool once with `ThreadPool::install`, then call any number of kernels:
    /// from inside a pool no kernel allocates. A kernel is a tree of `rayon::join`s, in which a
    /// thread that waits may run other jobs of the pool: hold no lock that these take.
    #[cfg(feature = "rayon")]
    Rayon,
    /// A team formed by [`Team::run`]: the same pool, entered once for many kernels, with
    /// hand-over between kernels in well under a microsecond.
    #[cfg(feature = "rayon")]
    Team(&'a Team<'a>),
    /// The caller's own threads.
    Executor(&'a dyn Executor),
}

impl<'a> Parallelism<'a> {
    /// Threads that may take part, the calling one included: at least 1.
    pub fn threads(self) -> usize {
        match self {
            Self::Serial => 1,
            #[cfg(feature = "rayon")]
            Self::Rayon => rayon::current_num_threads(),
            #[cfg(feature = "rayon")]
            Self::Team(team) => team.threads(),
            Self::Executor(executor) => executor.threads().clamp(1, executor::MOST_THREADS),
        }
    }

    /// Calls `task` once with each of `items` and its index, in any order, and returns when all are done: for
    /// the caller's own work between kernels, cut into parts that share nothing that is written. Each
    /// should take some microseconds at least.
    ///
    /// # Panics
    /// As `task` does.
    ///
    /// ```
    /// use simdformer_kernels::Parallelism;
    ///
    /// let mut rows = [[1.0f32, 2.0], [3.0, 4.0]];
    /// Parallelism::Serial.for_each_mut(&mut rows, &|index, row| row[index] = 0.0);
    /// assert_eq!(rows, [[0.0, 2.0], [3.0, 0.0]]);
    /// ```
    pub fn for_each_mut<T: Send>(self, items: &mut [T], task: &(dyn Fn(usize, &mut T) + Sync)) {
        let count = items.len();
        let items = SharedMut::new(items);
        self.workers().for_each(count, &|index| {
            // SAFETY: `index` is below `count`, and each comes once.
            if let [item] = unsafe { items.part(index, 1) } {
                task(index, item);
            }
        });
    }

    /// Counts the threads, once for a whole call.
    pub(crate) fn workers(self) -> Workers<'a> {
        Workers::new(self)
    }
}

impl fmt::Debug for Parallelism<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serial => f.write_str("Serial"),
            #[cfg(feature = "rayon")]
            Self::Rayon => f.write_str("Rayon"),
            #[cfg(feature = "rayon")]
            Self::Team(team) => team.fmt(f),
            Self::Executor(_) => write!(f, "Executor({} threads)", self.threads()),
        }
    }
}

/// Who runs the tasks of one kernel call: a [`Parallelism`] whose threads have been counted.
///
/// A kernel makes one at its entry and passes it down. Code below the entry has no [`Parallelism`], so it
/// cannot count again: an [`Executor`] may answer otherwise the next time, and a scratch that
/// is laid out for one thread is a data race when two threads use it.
#[derive(Clone, Copy)]
pub(crate) struct Workers<'a> {
    parallelism: Parallelism<'a>,
    threads: usize,
}

impl<'a> Workers<'a> {
    /// The calling thread alone.
    pub(crate) const SERIAL: Self = Self { parallelism: Parallelism::Serial, threads: 1 };

    /// Counts the threads of `parallelism`.
    fn new(parallelism: Parallelism<'a>) -> Self {
        Self { parallelism, threads: parallelism.threads() }
    }

    /// Threads that may take part, the calling one included: at least 1, and the same number every time.
    pub(crate) const fn threads(self) -> usize {
        self.threads
    }

    /// Runs `task(0)` to `task(tasks - 1)`, each once, in any order, and returns when all are done. With one
    /// thread they run one after the other on the calling thread.
    pub(crate) fn for_each(self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if tasks > 1 && self.threads > 1 {
            match self.parallelism {
                Parallelism::Serial => {}
                #[cfg(feature = "rayon")]
                Parallelism::Rayon => return halves(0, tasks, task),
                #[cfg(feature = "rayon")]
                Parallelism::Team(team) => return team.for_each(tasks, task),
                Parallelism::Executor(executor) => return executor::run(executor, tasks, task),
            }
        }
        for index in 0..tasks {
            task(index);
        }
    }
}

/// Recursive halving on `rayon::join`, which does not allocate inside a pool; the depth is the
/// logarithm of the task count.
#[cfg(feature = "rayon")]
fn halves(start: usize, end: usize, task: &(dyn Fn(usize) + Sync)) {
    if end - start == 1 {
        task(start);
    } else {
        let middle = start + (end - start) / 2;
        rayon::join(|| halves(start, middle, task), || halves(middle, end, task));
    }
}

pub use executor::Executor;
pub(crate) use share::share;
#[cfg(feature = "rayon")]
pub use team::Team;
pub(crate) use threshold::work_to_share;

mod executor;
mod share;
mod threshold;

#[cfg(feature = "rayon")]
mod batch;
#[cfg(feature = "rayon")]
mod sync;
#[cfg(feature = "rayon")]
mod team;

#[cfg(all(test, feature = "rayon"))]
mod tests;
