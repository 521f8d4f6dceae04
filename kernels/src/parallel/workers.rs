//! The threads of one kernel call, counted once.

use super::{Parallelism, executor};

/// Who runs the tasks of one kernel call: a [`Parallelism`] whose threads have been counted.
///
/// A kernel makes one at its entry and passes it down. Code below the entry has no [`Parallelism`], so it
/// cannot count again: an [`Executor`](super::Executor) may answer otherwise the next time, and a scratch that
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
    pub(super) fn new(parallelism: Parallelism<'a>) -> Self {
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
