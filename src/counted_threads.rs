//! An executor whose threads are counted once for a whole call.

use simdformer_kernels::{Executor, Parallelism};

/// Runs `work` with the same threads, whose number is asked for here and nowhere else: an executor may answer
/// otherwise the next time, and what is cut for one number should not be run for another.
pub(crate) fn counted<R>(
    parallelism: Parallelism<'_>,
    work: impl FnOnce(Parallelism<'_>) -> R,
) -> R {
    match parallelism {
        Parallelism::Executor(executor) => {
            let counted = Counted { executor, threads: parallelism.threads() };
            work(Parallelism::Executor(&counted))
        }
        others => work(others),
    }
}

/// An executor that gives one answer.
struct Counted<'a> {
    executor: &'a dyn Executor,
    threads: usize,
}

impl Executor for Counted<'_> {
    fn threads(&self) -> usize {
        self.threads
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.executor.for_each(tasks, task);
    }
}
