//! One entry into a rayon pool for many kernels.
//!
//! Entering a pool from outside costs microseconds and a fork inside it about one; a decode step
//! makes some fifty forks. A [`Team`] asks rayon for helpers once. Each helper then watches a
//! counter: the leader publishes a batch of numbered tasks, everybody takes numbers until none is
//! left, and the leader goes on when all tasks are done. Nobody ever waits for a *helper*, only
//! for *tasks already taken*: helpers that the pool never scheduled cost nothing but their help,
//! so an oversubscribed or busy pool slows a team down and cannot stop it. When the closure of
//! [`Team::run`] returns, the helpers go back to the pool; nothing spins between calls.

use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

type Task<'t> = &'t (dyn Fn(usize) + Sync);

/// Rounds of `spin_loop` before a waiting thread offers its core to others.
const SPINS_BEFORE_YIELD: u32 = 256;

/// The calling thread and whoever of its rayon pool comes to help.
///
/// ```
/// use simdformer_kernels::{Parallelism, Team};
///
/// let threads = Team::run(|team| Parallelism::Team(team).threads());
/// assert!(threads >= 1);
/// ```
#[derive(Debug)]
pub struct Team<'a> {
    shared: &'a Shared,
    threads: usize,
    /// Only the leader may publish tasks.
    not_sync: PhantomData<Cell<()>>,
}

/// What leader and helpers share. `batch` packs the batch number (high 32 bits) with the tasks not
/// yet taken (low 32 bits), so that a late helper can never take a task of a batch it did not see,
/// nor mistake the next batch's size for its own.
#[derive(Debug)]
struct Shared {
    batch: CacheLine<AtomicU64>,
    finished: CacheLine<AtomicUsize>,
    /// Tasks in the current batch.
    count: AtomicUsize,
    /// `*const Task` of the current batch.
    task: AtomicPtr<()>,
    closed: AtomicBool,
    panicked: AtomicBool,
}

#[derive(Debug)]
#[repr(align(128))]
struct CacheLine<T>(T);

/// Says "no more batches" however the leader leaves.
struct Close<'a>(&'a Shared);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
    }
}

impl Team<'_> {
    /// Runs `lead` on the calling thread while the other threads of its rayon pool (the global
    /// pool when it belongs to none) help with the kernels that `lead` calls.
    pub fn run<R: Send>(lead: impl FnOnce(&Team<'_>) -> R + Send) -> R {
        let threads = rayon::current_num_threads();
        let shared = Shared {
            batch: CacheLine(AtomicU64::new(0)),
            finished: CacheLine(AtomicUsize::new(0)),
            count: AtomicUsize::new(0),
            task: AtomicPtr::new(core::ptr::null_mut()),
            closed: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        };
        let lead = || {
            let close = Close(&shared);
            let result = lead(&Team { shared: &shared, threads, not_sync: PhantomData });
            drop(close);
            result
        };
        if threads == 1 {
            return lead();
        }
        rayon::join(lead, || helpers(threads - 1, &shared)).0
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    pub(super) fn for_each(&self, tasks: usize, task: Task<'_>) {
        if self.threads == 1 || tasks >= u32::MAX as usize {
            for index in 0..tasks {
                task(index);
            }
            return;
        }
        let shared = self.shared;
        shared.finished.0.store(0, Ordering::Relaxed);
        shared.count.store(tasks, Ordering::Relaxed);
        shared.task.store((&raw const task).cast::<()>().cast_mut(), Ordering::Relaxed);
        let number = (shared.batch.0.load(Ordering::Relaxed) >> 32).wrapping_add(1) & 0xffff_ffff;
        // Publishes the three stores above; a helper reads them only after it has taken a task.
        shared.batch.0.store((number << 32) | tasks as u64, Ordering::Release);
        // The task must outlive its last use even when the leader's own share panics.
        let wait = WaitForAll { shared, tasks };
        shared.help(number);
        drop(wait);
        assert!(!shared.panicked.load(Ordering::Relaxed), "a task of this team panicked");
    }
}

struct WaitForAll<'a> {
    shared: &'a Shared,
    tasks: usize,
}

impl Drop for WaitForAll<'_> {
    fn drop(&mut self) {
        let mut patience = Patience::default();
        while self.shared.finished.0.load(Ordering::Acquire) < self.tasks {
            patience.wait();
        }
    }
}

/// Counts a task as finished even when it unwinds, so that nobody waits for it for ever.
struct Finish<'a>(&'a Shared);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.panicked.store(true, Ordering::Relaxed);
        }
        self.0.finished.0.fetch_add(1, Ordering::Release);
    }
}

impl Shared {
    /// Takes and runs tasks of batch `number` until none is left.
    fn help(&self, number: u64) {
        let mut seen = self.batch.0.load(Ordering::Acquire);
        while seen >> 32 == number {
            let left = (seen & 0xffff_ffff) as usize;
            if left == 0 {
                return;
            }
            match self.batch.0.compare_exchange_weak(
                seen,
                seen - 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    let finish = Finish(self);
                    let index = self.count.load(Ordering::Relaxed) - left;
                    let task = self.task.load(Ordering::Relaxed).cast::<Task<'_>>();
                    // SAFETY: the exchange took task `index` of the batch in course, whose leader
                    // cannot return before `finished` counts it, so the pointer still lives.
                    unsafe { (*task)(index) };
                    drop(finish);
                    seen = self.batch.0.load(Ordering::Acquire);
                }
                Err(now) => seen = now,
            }
        }
    }
}

/// Brings `count` helpers in, through joins so that nothing is allocated.
fn helpers(count: usize, shared: &Shared) {
    if count > 1 {
        rayon::join(|| helper(shared), || helpers(count - 1, shared));
    } else {
        helper(shared);
    }
}

fn helper(shared: &Shared) {
    let mut patience = Patience::default();
    let mut done = 0;
    while !shared.closed.load(Ordering::Acquire) {
        let number = shared.batch.0.load(Ordering::Acquire) >> 32;
        if number == done {
            patience.wait();
        } else {
            shared.help(number);
            done = number;
            patience = Patience::default();
        }
    }
}

#[derive(Default)]
struct Patience(u32);

impl Patience {
    fn wait(&mut self) {
        if self.0 < SPINS_BEFORE_YIELD {
            self.0 += 1;
            core::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Parallelism;
    use crate::parallel::Team;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::vec::Vec;

    #[test]
    fn every_task_runs_once_in_every_batch() {
        for threads in [1, 2, 3, 7] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let Ok(pool) = pool else { panic!("no pool of {threads} threads") };
            pool.install(|| {
                Team::run(|team| {
                    for batch in 0..2000usize {
                        let tasks = [0, 1, 2, 3, 17, 64][batch % 6];
                        let counts: Vec<AtomicUsize> =
                            (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                        Parallelism::Team(team).for_each(tasks, &|index| {
                            counts[index].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                    }
                });
            });
        }
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_leader() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
        let Ok(pool) = pool else { panic!("no pool of two threads") };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.install(|| {
                Team::run(|team| {
                    Parallelism::Team(team).for_each(8, &|index| assert!(index != 5, "task five"));
                });
            });
        }));
        assert!(caught.is_err());
    }
}
