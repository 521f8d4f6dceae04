//! `batch.rs` and `thread_pool.rs` of `kernels/src/parallel`, compiled with the atomics, locks and threads
//! of loom. Loom runs each model below once for every interleaving of its threads and every value that a read may see, with up to
//! [`PREEMPTIONS`] preemptions. A thread that waits for ever fails the model, and so does memory that is
//! read before it is published.
//!
//! Run by `.ci/run`: `cargo test --manifest-path tests/loom/Cargo.toml`. The environment variable
//! `LOOM_MAX_PREEMPTIONS` replaces the bound. The two models that take longest have one helper, and two with
//! `SIMDFORMER_TESTS=full`, as in `.ci/nightly`.
#![cfg(test)]

extern crate std;

#[path = "../../../kernels/src/parallel/batch.rs"]
#[allow(clippy::duplicate_mod)]
mod batch;
mod sync;
#[path = "../../../kernels/src/parallel/thread_pool.rs"]
#[allow(clippy::duplicate_mod, unreachable_pub, reason = "it is public in the kernels")]
mod thread_pool;

use batch::{Batch, Batches, Helper, Leader};
use executor::Executor;
use loom::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use thread_pool::ThreadPool;

/// The trait of `kernels/src/parallel/executor.rs`.
mod executor {
    pub(super) trait Executor: Sync {
        fn threads(&self) -> usize;
        fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));
    }
}

/// Preemptions in one run, not counting switches at which a thread waits. Nearly all faults need one or
/// two.
const PREEMPTIONS: usize = 2;

/// The behavior of a task.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Return,
    Panic,
}
use Does::{Panic, Return};

/// The payload of a panic that the test intends.
#[derive(Debug, PartialEq)]
struct Meant(usize);

/// A cell that one thread at a time may write. Others may read it after that has been published; loom
/// checks this.
struct Place(UnsafeCell<usize>);

// SAFETY: loom fails the model when two threads access one cell at the same time.
unsafe impl Sync for Place {}

/// The helpers of the models that take longest: with two, a minute of CPU time each.
fn helpers() -> usize {
    if std::env::var("SIMDFORMER_TESTS").is_ok_and(|tests| tests == "full") { 2 } else { 1 }
}

/// Runs a batch and checks that each task ran once unless one panicked, and that the leader sees the
/// results of all tasks.
fn check(leader: &Leader<'_>, tasks: &[Does], share: impl FnOnce(&Batch<'_>)) {
    check_run(tasks, |task| leader.run_tasks(tasks.len(), task, share));
}

/// Runs `run` with a function that does `tasks`, and checks as [`check`].
fn check_run(tasks: &[Does], run: impl FnOnce(&(dyn Fn(usize) + Sync))) {
    let places: Vec<Place> = tasks.iter().map(|_| Place(UnsafeCell::new(0))).collect();
    let task = |index: usize| {
        // SAFETY: only this task writes there; loom checks it.
        places[index].0.with_mut(|count| unsafe { *count += 1 });
        if tasks[index] == Panic {
            // Without the panic hook, which would print a message in each of a million runs.
            resume_unwind(Box::new(Meant(index)));
        }
    };
    let result = catch_unwind(AssertUnwindSafe(|| run(&task)));
    // SAFETY: the batch has ended; loom checks it.
    let count = |place: &Place| place.0.with(|count| unsafe { *count });
    match result {
        Ok(()) => {
            assert!(tasks.iter().all(|does| *does == Return), "a panic was lost");
            assert!(places.iter().all(|place| count(place) == 1));
        }
        Err(panic) => match panic.downcast::<Meant>() {
            Ok(meant) => {
                assert!(tasks[meant.0] == Panic && count(&places[meant.0]) == 1);
                assert!(places.iter().all(|place| count(place) <= 1));
            }
            // A panic of loom itself.
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// Runs `lead` beside `helpers` threads that run `help`, in every interleaving.
fn model(
    helpers: usize,
    help: fn(Helper<'static>),
    lead: impl Fn(&Leader<'_>, Helper<'static>) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    run(builder, helpers, help, lead);
}

fn run(
    builder: loom::model::Builder,
    helpers: usize,
    help: fn(Helper<'static>),
    lead: impl Fn(&Leader<'_>, Helper<'static>) + Send + Sync + 'static,
) {
    builder.check(move || {
        // The threads of loom have the lifetime `'static`, so the batches need it too.
        let batches = Box::leak(Box::new(Batches::new()));
        let whole: *mut Batches = batches;
        let (leader, helper) = batches.split();
        let threads: Vec<_> =
            (0..helpers).map(|_| loom::thread::spawn(move || help(helper))).collect();
        lead(&leader, helper);
        drop(leader);
        for thread in threads {
            thread.join().expect("no helper panics");
        }
        // SAFETY: allocated above, and no thread has a reference to it any more.
        drop(unsafe { Box::from_raw(whole) });
    });
}

fn alone(_: &Batch<'_>) {}

/// The leader requests a helper for one batch, as it does after the earlier helpers have gone.
fn called(helper: Helper<'_>) -> impl FnOnce(&Batch<'_>) {
    // As `rayon::join` does when no thread steals: first one closure, then the other, on one thread.
    move |batch| {
        batch.finish();
        helper.help();
    }
}

#[test]
fn two_helpers_and_two_batches() {
    model(2, Helper::stay, |leader, _| {
        check(leader, &[Return, Return], alone);
        check(leader, &[Return], alone);
    });
}

#[test]
fn two_helpers_and_one_batch_of_three() {
    model(2, Helper::stay, |leader, _| check(leader, &[Return; 3], alone));
}

#[test]
fn helpers_for_one_batch() {
    model(2, Helper::help, |leader, helper| {
        check(leader, &[Return, Panic], called(helper));
        check(leader, &[Return, Return], called(helper));
    });
}

#[test]
fn a_panic_in_one_task() {
    for tasks in [[Panic, Return], [Return, Panic]] {
        model(helpers(), Helper::stay, move |leader, _| {
            check(leader, &tasks, alone);
            check(leader, &[Return], alone);
        });
    }
}

#[test]
fn panics_in_all_tasks() {
    model(2, Helper::stay, |leader, _| {
        check(leader, &[Panic, Panic], alone);
        check(leader, &[Return], alone);
    });
}

#[test]
fn panics_in_all_batches() {
    model(1, Helper::stay, |leader, _| {
        check(leader, &[Panic; 3], alone);
        check(leader, &[Return, Panic, Panic], alone);
        check(leader, &[Return, Return], alone);
    });
}

#[test]
fn three_batches_with_one_helper() {
    model(1, Helper::stay, |leader, _| {
        for _ in 0..3 {
            check(leader, &[Return, Return], alone);
        }
    });
}

#[test]
fn a_leader_that_leaves_at_once() {
    model(2, Helper::stay, |_, _| ());
}

#[test]
fn a_leader_that_panics_beside_its_batches() {
    model(helpers(), Helper::stay, |leader, _| {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            check(leader, &[Return, Return], |_| resume_unwind(Box::new(Meant(0))));
        }));
        // Both tasks are done: the panic came from `check`, after the batch.
        assert!(panic.is_err());
        check(leader, &[Return], alone);
    });
}

/// As rayon does to a leader or a task that waits: it runs a job of a helper on the same thread.
#[test]
fn a_leader_runs_its_own_helper() {
    model(1, Helper::stay, |leader, helper| {
        check(leader, &[Return, Return], alone);
        helper.stay();
        check(leader, &[Return, Return], called(helper));
    });
}

#[test]
fn a_task_runs_a_helper_of_its_own_team() {
    model(1, Helper::stay, |leader, helper| {
        leader.run_tasks(2, &|_| helper.stay(), alone);
        check(leader, &[Return, Return], called(helper));
    });
}

/// Every order of one helper and one batch, without a bound on preemptions.
#[test]
fn one_helper_without_a_bound() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = None;
    run(builder, 1, Helper::stay, |leader, _| check(leader, &[Return, Panic], alone));
}

/// Every index of a batch is claimed once, from either end, also when helpers join and leave.
#[test]
fn helpers_that_come_and_go() {
    fn come_and_go(helper: Helper<'_>) {
        helper.help();
        helper.stay();
    }
    model(2, come_and_go, |leader, helper| {
        check(leader, &[Return, Return], called(helper));
        assert!(leader.gone() <= 2);
    });
}

/// Runs `work` with a pool of `threads` threads, in every interleaving. Loom fails a model in which the pool
/// or a call waits for ever.
fn pool_model(threads: usize, work: fn(&ThreadPool)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(move || work(&ThreadPool::new(threads).expect("threads of loom")));
}

fn check_call(pool: &ThreadPool, tasks: &[Does]) {
    check_run(tasks, |task| pool.for_each(tasks.len(), task));
}

#[test]
fn a_pool_that_is_dropped_at_once() {
    pool_model(3, |pool| assert_eq!(pool.threads(), 3));
}

#[test]
fn two_calls_on_a_pool_of_two() {
    pool_model(2, |pool| {
        check_call(pool, &[Return, Panic]);
        check_call(pool, &[Return, Return]);
    });
}

#[test]
fn a_call_on_a_pool_of_three() {
    pool_model(3, |pool| check_call(pool, &[Return; 2]));
}

#[test]
fn a_call_inside_a_task() {
    pool_model(2, |pool| {
        pool.for_each(2, &|_| check_call(pool, &[Return, Return]));
    });
}

/// A thread outside of the pool calls it at the same time.
#[test]
fn calls_of_two_threads() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(|| {
        let pool = loom::sync::Arc::new(ThreadPool::new(2).expect("threads of loom"));
        let other = loom::sync::Arc::clone(&pool);
        let thread = loom::thread::spawn(move || check_call(&other, &[Return, Return]));
        check_call(&pool, &[Return, Return]);
        thread.join().expect("no panic");
    });
}
