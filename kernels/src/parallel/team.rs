//! One entry into a rayon pool for many kernels.
//!
//! Entering a pool from outside costs microseconds, and a fork inside it one or two, since a worker
//! that finds nothing to steal goes to sleep; a decoding step makes some fifty forks. A [`Team`] asks
//! rayon for helpers once. They watch for batches of tasks (`batch.rs`) for as long as these follow
//! each other closely, and when the closure of [`Team::run`] returns, they are back in the pool.
//!
//! # Why not `rayon::join` alone
//!
//! It allocates nothing either, and is what [`Parallelism::Rayon`](super::Parallelism::Rayon) is.
//! But a thread that waits in it for a stolen half runs whatever job the pool has in the meantime.
//! For a kernel that is the wrong one: it may be somebody else's whole translation, which the step in
//! course then waits for, or one that takes a lock which our caller holds, and then neither ends. It
//! is also slower, by 2 to 6 % of a decoding step on two threads; workers that are kept awake by a
//! job that calls `rayon::yield_now` make up for that, but they too run the jobs of others, and the
//! team's leader then waits for these. Here nobody runs anything during a batch but its tasks.
//!
//! # Why nothing hangs
//!
//! A leader waits for tasks that others have taken, a task for whatever its closure waits for, and a
//! helper for nothing. A leader or a task may enter rayon again, in this pool or in another one, and
//! its thread may there be handed any job: a helper of its own team, of the team of a frame below, of
//! a team whose leader waits for this one. None of them stays: a helper that has found nothing to do
//! for about a millisecond leaves. So every wait is for something that began after the wait did, and
//! the one that began last is not waiting. Helpers that left are asked in again for each batch,
//! by `rayon::join`; that is a little slower, and happens to teams whose leader was elsewhere.

use super::batch::{Batches, Helper, Leader, TOO_MANY, Task};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The calling thread and whoever of its rayon pool comes to help.
///
/// ```
/// use simdformer_kernels::{Parallelism, Team};
///
/// let threads = Team::run(|team| Parallelism::Team(team).threads());
/// assert!(threads >= 1);
/// ```
///
/// # What may be called where
///
/// The closure of [`Team::run`], and callbacks of kernels that run in a team, may do what any rayon
/// job may: enter rayon again, install work into another pool, run other teams, panic. Two things are
/// theirs to see to, as in every rayon job:
///
/// - They must not wait, other than through rayon, for something that needs a thread of this pool:
///   the pool's threads may all be waiting for them.
/// - Whoever waits inside rayon may be handed any other job of the pool, and `Team::run` itself ends
///   with such a wait, though it hardly ever has to: hold no lock that these jobs take.
///
/// Helpers without a batch to work on leave after about a millisecond, and no thread is kept busy
/// while a callback prints or sleeps.
///
/// # Panics
///
/// A panic in a task reaches the caller of the kernel when no task of it runs any more: one panic, the
/// first, however many tasks panicked. The team, if the panic is caught inside [`Team::run`], and the
/// pool can be used again. What the kernel was writing is then partly written.
pub struct Team<'a> {
    leader: Leader<'a>,
    helper: Helper<'a>,
    threads: usize,
}

impl Team<'_> {
    /// Runs `lead` on the calling thread (on one of the global pool if it belongs to no pool) while
    /// the other threads of its rayon pool help with the kernels that `lead` calls.
    ///
    /// # Panics
    /// As `lead` does.
    pub fn run<R: Send>(lead: impl FnOnce(&Team<'_>) -> R + Send) -> R {
        let (mut lead, mut result) = (Some(lead), None);
        Self::run_dyn(&mut |team| result = lead.take().map(|lead| lead(team)));
        // `run_dyn` returns only after its closure has returned: a panic in it goes on from there.
        result.unwrap_or_else(|| unreachable!("the closure of the team has not run"))
    }

    /// As [`Team::run`]. It is not generic: it calls `rayon::join`, which would be compiled again for every closure.
    fn run_dyn(lead: &mut (dyn FnMut(&Team<'_>) + Send)) {
        let threads = rayon::current_num_threads();
        let mut batches = Batches::new();
        let (leader, helper) = batches.split();
        let team = Team { leader, helper, threads };
        if threads == 1 {
            return lead(&team);
        }
        let leaders_place = AtomicUsize::new(usize::MAX);
        let lead = || {
            leaders_place.store(place(), Ordering::Relaxed);
            // Dropped at the end: no more batches, however `lead` ends.
            let team = team;
            lead(&team);
        };
        // Joins, since they do not allocate.
        let help = || {
            // The leader, waiting inside rayon: it cannot wait for itself.
            if place() == leaders_place.load(Ordering::Relaxed) {
                helper.leave();
            } else {
                helper.stay();
            }
        };
        rayon::join(lead, || times(threads - 1, &help));
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `task(0)` to `task(tasks - 1)`.
    pub(super) fn for_each(&self, tasks: usize, task: Task<'_>) {
        if self.threads == 1 || tasks >= TOO_MANY {
            for index in 0..tasks {
                task(index);
            }
            return;
        }
        let (gone, helper) = (self.leader.gone(), self.helper);
        self.leader.run(tasks, task, |finish| {
            // Helpers that are here need no call.
            if gone > 0 {
                rayon::join(finish, || times(gone.min(tasks), &|| helper.help()));
            }
        });
    }
}

impl fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Team({} threads)", self.threads)
    }
}

/// The number of this thread in its pool.
fn place() -> usize {
    // Team members are in a pool.
    rayon::current_thread_index().unwrap_or(usize::MAX)
}

/// Runs `work` `count` times, on as many threads as find the time.
fn times(count: usize, work: &(impl Fn() + Sync)) {
    if count > 1 {
        rayon::join(work, || times(count - 1, work));
    } else {
        work();
    }
}
