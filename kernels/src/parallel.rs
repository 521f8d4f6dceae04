//! Who does the work: the calling thread, or the caller's threads with it.
//!
//! A kernel cuts its work into numbered tasks that write disjoint output, and the numbering never
//! depends on how many threads there are; who runs a task therefore cannot change a bit of the
//! result. No thread is started here and no pool is configured.

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
#[derive(Clone, Copy, Debug, Default)]
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
    /// Never made; gives the lifetime a use in builds without rayon.
    #[doc(hidden)]
    #[cfg(not(feature = "rayon"))]
    Never(core::convert::Infallible, core::marker::PhantomData<&'a ()>),
}

impl Parallelism<'_> {
    /// Threads that may take part, the calling one included.
    pub fn threads(self) -> usize {
        match self {
            Self::Serial => 1,
            #[cfg(feature = "rayon")]
            Self::Rayon => rayon::current_num_threads(),
            #[cfg(feature = "rayon")]
            Self::Team(team) => team.threads(),
            #[cfg(not(feature = "rayon"))]
            Self::Never(never, _) => match never {},
        }
    }

    /// Runs `task(0)` to `task(tasks - 1)`, each once, in any order, and returns when all are done.
    pub(crate) fn for_each(self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        match self {
            #[cfg(feature = "rayon")]
            Self::Rayon if tasks > 1 && rayon::current_num_threads() > 1 => {
                halves(0, tasks, task);
            }
            #[cfg(feature = "rayon")]
            Self::Team(team) if tasks > 1 => team.for_each(tasks, task),
            _ => {
                for index in 0..tasks {
                    task(index);
                }
            }
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

#[cfg(feature = "rayon")]
pub use team::Team;

#[cfg(feature = "rayon")]
mod batch;
#[cfg(feature = "rayon")]
mod sync;
#[cfg(feature = "rayon")]
mod team;

#[cfg(all(test, feature = "rayon"))]
mod tests;
