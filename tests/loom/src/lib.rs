//! The batches of `kernels/src/parallel/batch.rs`, compiled on loom's atomics. Loom runs each model
//! below once for every interleaving of its threads, with every value that a read may see, up to
//! [`PREEMPTIONS`] switches that no thread asked for; a thread that waits for ever, or memory that
//! is read without being published, fails.
//!
//! Run by `.ci/run`: `cargo test --manifest-path tests/loom/Cargo.toml`. `LOOM_MAX_PREEMPTIONS`
//! takes the place of the bound.
#![cfg(test)]

extern crate std;

#[path = "../../../kernels/src/parallel/batch.rs"]
#[allow(clippy::duplicate_mod)]
mod batch;
mod sync;

use batch::{Batches, Helper, Leader};
use loom::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Switches in one run beside those where a thread waits: nearly all faults need one or two.
const PREEMPTIONS: usize = 2;

/// What a task does.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Return,
    Panic,
}
use Does::{Panic, Return};

/// What a task that is meant to panic panics with.
#[derive(Debug, PartialEq)]
struct Meant(usize);

/// A place that one thread at a time may write, and that others may read when that has been
/// published: loom sees to it.
struct Place(UnsafeCell<usize>);

// SAFETY: loom fails the model when two threads are at one place at once.
unsafe impl Sync for Place {}

/// Runs a batch and checks that each task ran once, unless one panicked, and that the leader sees
/// what the tasks wrote.
fn check(leader: &Leader<'_>, tasks: &[Does], share: impl FnOnce(&(dyn Fn() + Sync))) {
    let places: Vec<Place> = tasks.iter().map(|_| Place(UnsafeCell::new(0))).collect();
    let task = |index: usize| {
        // SAFETY: only this task writes there; loom checks it.
        places[index].0.with_mut(|count| unsafe { *count += 1 });
        if tasks[index] == Panic {
            // No hook: no message for each of a million runs.
            resume_unwind(Box::new(Meant(index)));
        }
    };
    let result = catch_unwind(AssertUnwindSafe(|| leader.run(tasks.len(), &task, share)));
    // SAFETY: the batch is over; loom checks it.
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
            // Loom's own.
            Err(panic) => resume_unwind(panic),
        },
    }
}

/// `lead` beside `helpers` threads that do `help`, in every interleaving.
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
        // Threads of loom's live as long as they like; the batches then do, too.
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
        // SAFETY: made above, and all who saw it are gone.
        drop(unsafe { Box::from_raw(whole) });
    });
}

fn alone(_: &(dyn Fn() + Sync)) {}

/// The leader calls a helper in for one batch, as it does when those who stayed have gone.
fn called(helper: Helper<'_>) -> impl FnOnce(&(dyn Fn() + Sync)) {
    // What `rayon::join` does when nobody steals: first the one, then the other, on one thread.
    move |finish| {
        finish();
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
        model(2, Helper::stay, move |leader, _| {
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
    model(2, Helper::stay, |leader, _| {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            check(leader, &[Return, Return], |_| resume_unwind(Box::new(Meant(0))));
        }));
        // Both tasks are done nevertheless: this checks that `check` came to the panic only then.
        assert!(panic.is_err());
        check(leader, &[Return], alone);
    });
}

/// What rayon does to a leader, or to a task, that waits inside it: it hands it a helper's job.
#[test]
fn a_leader_that_is_handed_its_own_helper() {
    model(1, Helper::stay, |leader, helper| {
        check(leader, &[Return, Return], alone);
        helper.stay();
        check(leader, &[Return, Return], called(helper));
    });
}

#[test]
fn a_task_that_is_handed_a_helper_of_its_own_team() {
    model(1, Helper::stay, |leader, helper| {
        leader.run(2, &|_| helper.stay(), alone);
        check(leader, &[Return, Return], called(helper));
    });
}

/// Every order of one helper and one batch, without a bound.
#[test]
fn one_helper_without_a_bound() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = None;
    run(builder, 1, Helper::stay, |leader, _| check(leader, &[Return, Panic], alone));
}

/// Every index of a batch is taken once from whichever end, also when helpers come and go.
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
