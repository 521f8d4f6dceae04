//! One entry into a rayon pool for many kernels.
//!
//! Entering a pool from outside costs microseconds, and a fork inside it one or two, because a worker that finds no
//! job to steal goes to sleep. A decoding step makes about fifty forks. A [`Team`] requests helpers from rayon once.
//! The helpers poll for batches of tasks (`batch.rs`) while these follow each other closely. When the closure of
//! [`Team::form`] returns, they return to the pool.
//!
//! # Why not `rayon::join` alone
//!
//! `rayon::join` does not allocate either, and [`Parallelism::Rayon`](super::Parallelism::Rayon) uses it. But a thread
//! that waits in it for a stolen job runs any other job of the pool. For a kernel that is wrong: the job may be a
//! whole translation of another session, for which the current step then waits, or a job that takes a lock which the
//! caller of the kernel holds, which is a deadlock. It is also slower, by 2 to 6 % of a decoding step on two threads.
//! Workers that a job keeps awake with `rayon::yield_now` remove this difference, but they too run other jobs, and the
//! leader of the team then waits for these. In a team, a thread runs only tasks of the batch during a batch.
//!
//! # Why there is no deadlock
//!
//! A leader waits for tasks that others have taken, a task waits for whatever its closure waits for, and a helper
//! never waits. A leader or a task may enter rayon again, in this pool or in another one, and rayon may run any job on
//! its thread: a helper of its own team, of the team of a lower stack frame, or of a team whose leader waits for this
//! thread. None of these helpers stays: a helper that has found no task for about a millisecond leaves. So every wait
//! is for work that began after the wait did, and the work that began last is not waiting. Helpers that left are
//! called back for each batch with `rayon::join`. This is a little slower, and happens only in teams whose leader did
//! other work for a while.

use super::batch::{Batches, Helper, Leader, Task};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The calling thread and the helpers from its rayon pool.
///
/// ```
/// use simdformer_kernels::{Parallelism, Team};
///
/// let threads = Team::form(|team| Parallelism::Team(team).threads());
/// assert!(threads >= 1);
/// ```
///
/// # What callbacks may do
///
/// The closure of [`Team::form`], and callbacks of kernels that run in a team, may do what any rayon job may do: enter
/// rayon again, install work into another pool, run other teams, panic. As in every rayon job, they must follow two
/// rules:
///
/// - They must not wait, other than through rayon, for work that needs a thread of this pool: all threads of the pool
///   may be waiting for them.
/// - A thread that waits inside rayon may run any other job of the pool, so they must not hold a lock that these jobs
///   take. `Team::form` itself ends with such a wait, although it is rarely necessary.
///
/// Helpers without a batch leave after about a millisecond, so no thread stays busy while a callback prints or sleeps.
///
/// # Panics
///
/// A panic in a task reaches the caller of the kernel when no task of the kernel runs any more. If several tasks
/// panic, the caller gets the first panic. If the panic is caught inside [`Team::form`], the team can be used again,
/// and so can the pool. The output of the kernel is then partly written.
pub struct Team<'a> {
    leader: Leader<'a>,
    helper: Helper<'a>,
    threads: usize,
}

impl Team<'_> {
    /// Runs `lead` on the calling thread, or on a thread of the global pool if the calling thread belongs to no pool.
    /// Meanwhile the other threads of the pool help with the kernels that `lead` calls.
    ///
    /// # Panics
    /// If `lead` panics.
    pub fn form<R: Send>(lead: impl FnOnce(&Team<'_>) -> R + Send) -> R {
        let (mut lead, mut result) = (Some(lead), None);
        Self::run_dyn(&mut |team| result = lead.take().map(|lead| lead(team)));
        // `run_dyn` returns only after its closure has returned; a panic in the closure unwinds through it.
        result.unwrap_or_else(|| unreachable!("the closure of the team has not run"))
    }

    /// As [`Team::form`], but not generic, so that `rayon::join` is not compiled again for every closure.
    fn run_dyn(lead: &mut (dyn FnMut(&Team<'_>) + Send)) {
        let threads = rayon::current_num_threads();
        let mut batches = Batches::new();
        let (leader, helper) = batches.split();
        let team = Team { leader, helper, threads };
        if threads == 1 {
            return lead(&team);
        }
        let leader_index = AtomicUsize::new(usize::MAX);
        let lead = || {
            leader_index.store(thread_index(), Ordering::Relaxed);
            // The team is dropped at the end, also if `lead` panics: no batch follows.
            let team = team;
            lead(&team);
        };
        // `rayon::join` does not allocate.
        let help = || {
            // This is the leader's thread, waiting inside rayon: it cannot wait for itself.
            if thread_index() == leader_index.load(Ordering::Relaxed) {
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

    /// Runs `task(0)` to `task(tasks - 1)`, each once. Without helpers this thread runs all of them.
    pub(super) fn for_each(&self, tasks: usize, task: Task<'_>) {
        let (departed, helper) = (self.leader.gone(), self.helper);
        self.leader.run_tasks(tasks, task, |batch| {
            // Helpers that are still polling need no call.
            if departed > 0 {
                rayon::join(|| batch.finish(), || times(departed.min(tasks), &|| helper.help()));
            }
        });
    }
}

impl fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Team({} threads)", self.threads)
    }
}

/// The index of this thread in its pool.
fn thread_index() -> usize {
    // Team members are in a pool.
    rayon::current_thread_index().unwrap_or(usize::MAX)
}

/// Runs `work` `count` times, on as many threads of the pool as are free.
fn times(count: usize, work: &(impl Fn() + Sync)) {
    if count > 1 {
        rayon::join(work, || times(count - 1, work));
    } else {
        work();
    }
}
