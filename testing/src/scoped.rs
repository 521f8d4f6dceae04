//! An executor without a pool.

use simdformer::kernels::Executor;

/// The number of threads, which are started for each kernel.
pub struct Scoped(pub usize);

impl Executor for Scoped {
    fn threads(&self) -> usize {
        self.0
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            for first in 0..self.0 {
                scope.spawn(move || (first..tasks).step_by(self.0).for_each(task));
            }
        });
    }
}
