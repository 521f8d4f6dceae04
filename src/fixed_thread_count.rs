//! An executor whose number of threads is read once per call.

use simdformer_kernels::{Executor, Parallelism};

/// Runs `work` with a fixed number of threads, which is read only here. An executor may return another number the next
/// time, and work that was divided for one number must not run with another.
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

/// An executor with a fixed number of threads.
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
