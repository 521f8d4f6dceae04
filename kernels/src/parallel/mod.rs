//! How kernels use threads: the calling thread alone, or the caller's thread pool with it.
//!
//! A kernel splits its work into numbered tasks that write disjoint output. The numbering does not depend on the
//! number of threads, so the thread that runs a task cannot change a bit of the result. Only `ThreadPool::new` starts
//! threads.

use crate::isa::Isa;
use crate::sync_ptr::SharedMut;
use core::fmt;
use core::ops::Range;

/// How a kernel may distribute its work over threads.
///
/// A task can panic only through the caller's callbacks: kernels do not panic. Such a panic reaches the caller of the
/// kernel once, when no task runs any more. `Team` documents what callbacks may do on a pool.
///
/// ```
/// use simdformer_kernels::Parallelism;
///
/// assert_eq!(Parallelism::Serial.threads(), 1);
/// ```
///
/// # Choosing between `Rayon`, `Team` and an executor
///
/// All of them return the same bits. They differ in the cost of handing over work and in the threads that they use.
///
/// * [`Parallelism::Serial`]: for many parallel requests, each served by its own thread, or for small calls. No work
///   is handed over.
/// * `Parallelism::Rayon`: for a program that has a rayon pool and calls kernels rarely, or calls large ones:
///   encoders, prompts, training, one product in another engine's operation. A hand-over costs some microseconds,
///   because idle workers go to sleep.
/// * `Parallelism::Team`: for a program that has a rayon pool and calls many small kernels in sequence: a decoding
///   step is about fifty kernels of a few microseconds each. The program forms the team once; a hand-over then takes
///   well under a microsecond. The team's threads stay awake while kernels follow each other closely and about a
///   millisecond longer, so they do not stay awake between the requests of a service.
/// * [`Parallelism::Executor`]: for threads that are not rayon's, or that belong to another version of rayon: an
///   engine's pool, a runtime of another language, a build without std. For a program that has none of these,
///   `ThreadPool` is an executor of `std` threads. The speed depends on the hand-over; an executor that wakes a
///   sleeping thread each time gains nothing on small calls.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub enum Parallelism<'a> {
    /// All work on the calling thread.
    #[default]
    Serial,
    /// The rayon pool of the calling thread, or rayon's global pool if the thread belongs to none. Enter your pool
    /// once with `ThreadPool::install`, then call any number of kernels: inside a pool no kernel allocates. A kernel
    /// is a tree of `rayon::join`s, in which a waiting thread may run other jobs of the pool. The caller must not hold
    /// a lock that such jobs take.
    #[cfg(feature = "rayon")]
    Rayon,
    /// A team formed by [`Team::form`]: the same pool, entered once for many kernels. A hand-over between kernels takes
    /// well under a microsecond.
    #[cfg(feature = "rayon")]
    Team(&'a Team<'a>),
    /// The caller's own threads.
    Executor(&'a dyn Executor),
}

impl<'a> Parallelism<'a> {
    /// The number of threads that may take part, including the calling one: at least 1.
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

    /// Calls `task` once with each of `items` and its index, in any order, and returns when all calls are done. It is
    /// for the caller's own work between kernels, split into parts that write disjoint memory. Each part should take
    /// at least some microseconds.
    ///
    /// # Panics
    /// If `task` panics.
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
            // SAFETY: `index` is below `count`, and `for_each` passes each index once.
            if let [item] = unsafe { items.part(index, 1) } {
                task(index, item);
            }
        });
    }

    /// Reads the number of threads, once for a whole call.
    pub(crate) fn workers(self) -> Workers<'a> {
        Workers { parallelism: self, threads: self.threads() }
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

/// The instruction set and the threads of a call: the first argument of each kernel that needs both.
///
/// A kernel on an operand that was prepared for an instruction set needs only the threads: `gemm`, `gemm_int8`,
/// `attention_cached`, `attention_decode` and `pruned_argmax::argmax` have a [`Parallelism`] as their last argument. What
/// runs on the calling thread needs only an [`Isa`]: sizes of buffers, packing, views of packed memory.
///
/// ```
/// use simdformer_kernels::{Exec, Input, Isa, MatrixMut, SoftmaxOptions, softmax::softmax};
///
/// let (exec, mut scores) = (Exec::serial(Isa::best()), [0.0; 4]);
/// softmax(exec, Input::Output, SoftmaxOptions::default(), MatrixMut::new(&mut scores, 2, 2)?)?;
/// assert_eq!(scores, [0.5; 4]);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Exec<'a> {
    /// The instruction set. The bits of results do not depend on it.
    pub isa: Isa,
    /// The threads. The bits of results do not depend on them.
    pub threads: Parallelism<'a>,
}

impl<'a> Exec<'a> {
    /// `isa` on `threads`.
    pub const fn new(isa: Isa, threads: Parallelism<'a>) -> Self {
        Self { isa, threads }
    }

    /// `isa` on the calling thread alone.
    pub const fn serial(isa: Isa) -> Self {
        Self { isa, threads: Parallelism::Serial }
    }
}

/// The threads of one kernel call: a [`Parallelism`] and its number of threads.
///
/// A kernel makes one at its entry and passes it down. Code below the entry has no [`Parallelism`], so it cannot read
/// the number again: an [`Executor`] may return another number the next time, and if two threads use a scratch that is
/// laid out for one thread, that is a data race.
#[derive(Clone, Copy)]
pub(crate) struct Workers<'a> {
    parallelism: Parallelism<'a>,
    threads: usize,
}

impl Workers<'_> {
    /// The calling thread alone.
    pub(crate) const SERIAL: Self = Self { parallelism: Parallelism::Serial, threads: 1 };

    /// The number of threads that may take part, including the calling one: at least 1, and always the same.
    pub(crate) const fn threads(self) -> usize {
        self.threads
    }

    /// Runs `task(0)` to `task(tasks - 1)`, each once, in any order, and returns when all are done. With one thread
    /// the tasks run one after the other on the calling thread.
    pub(crate) fn for_each(self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if tasks > 1 && self.threads > 1 {
            match self.parallelism {
                Parallelism::Serial => {}
                #[cfg(feature = "rayon")]
                Parallelism::Rayon => return halves(0, tasks, task),
                #[cfg(feature = "rayon")]
                Parallelism::Team(team) => return team.for_each(tasks, task),
                Parallelism::Executor(executor) => {
                    // A number stands for several tasks if there are more of them than numbers.
                    let numbers = tasks.min(executor::MOST_NUMBERS);
                    return executor::run_tasks(executor, numbers, &|number| {
                        share(tasks, numbers, number).for_each(task);
                    });
                }
            }
        }
        for index in 0..tasks {
            task(index);
        }
    }
}

/// Recursive halving with `rayon::join`, which does not allocate inside a pool. The depth is the logarithm of the
/// number of tasks.
#[cfg(feature = "rayon")]
fn halves(start: usize, end: usize, task: &(dyn Fn(usize) + Sync)) {
    if end - start == 1 {
        task(start);
    } else {
        let middle = start + (end - start) / 2;
        rayon::join(|| halves(start, middle, task), || halves(middle, end, task));
    }
}

/// Part `index` of `0..total` split into `parts` ranges whose lengths differ by at most 1.
#[inline(always)]
pub(crate) const fn share(total: usize, parts: usize, index: usize) -> Range<usize> {
    let (size, extra) = (total / parts, total % parts);
    let smaller = if index < extra { index } else { extra };
    let start = index * size + smaller;
    start..start + size + (index < extra) as usize
}

/// `work`, or a small part of it under Miri and in the build for ThreadSanitizer (`--cfg small_tasks`): there small
/// shapes use several threads too, so that these tools check the interaction of threads.
pub(crate) const fn work_to_share(work: usize) -> usize {
    match work >> 12 {
        _ if !cfg!(any(miri, small_tasks)) => work,
        0 => 1,
        less => less,
    }
}

pub use executor::Executor;
#[cfg(feature = "rayon")]
pub use team::Team;
#[cfg(feature = "std")]
pub use thread_pool::ThreadPool;

mod executor;

#[cfg(feature = "std")]
#[cfg_attr(not(feature = "rayon"), allow(dead_code, reason = "only teams have helpers that poll"))]
mod batch;
#[cfg(feature = "std")]
#[cfg_attr(not(feature = "rayon"), allow(dead_code, reason = "only teams have helpers that poll"))]
mod sync;
#[cfg(feature = "rayon")]
mod team;
#[cfg(feature = "std")]
mod thread_pool;

#[cfg(all(test, feature = "rayon"))]
mod tests;
