//! Every kernel, forward and training, on an executor whose number of threads changes from call to call:
//! the bits of one thread.

use crate::calls::{Results, Size, everything};
use crate::support::all_isas;
use simdformer_kernels::{Executor, Isa, Parallelism, ThreadPool};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Real threads, whose reported number changes with every call.
struct Changing<'a> {
    pool: &'a ThreadPool,
    answers: &'a [usize],
    asked: AtomicUsize,
}

impl<'a> Changing<'a> {
    fn new(pool: &'a ThreadPool, answers: &'a [usize]) -> Self {
        Self { pool, answers, asked: AtomicUsize::new(0) }
    }
}

impl Executor for Changing<'_> {
    fn threads(&self) -> usize {
        self.answers[self.asked.fetch_add(1, Ordering::Relaxed) % self.answers.len()]
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.pool.for_each(tasks, task);
    }
}

fn check(isa: Isa, what: &str, found: &Results, serial: &Results) {
    assert_eq!(found.len(), serial.len());
    for ((name, found), (_, serial)) in found.iter().zip(serial) {
        assert!(found == serial, "{isa}, {what}: {name}");
    }
}

#[test]
fn a_changing_number_of_threads_changes_no_bit() {
    let pool = ThreadPool::new(3).expect("threads");
    for isa in all_isas() {
        let serial = everything(isa, Size::SHARED, Parallelism::Serial);
        for answers in [&[3, 1, 3][..], &[1, 3], &[3, 3, 1], &[2, usize::MAX, 0, 1]] {
            let executor = Changing::new(&pool, answers);
            let found = everything(isa, Size::SHARED, Parallelism::Executor(&executor));
            check(isa, &format!("{answers:?} threads"), &found, &serial);
        }
    }
}

/// Several threads. A second call of `threads` could give another number.
#[test]
fn a_kernel_reads_the_number_of_threads_once() {
    let pool = ThreadPool::new(2).expect("threads");
    let executor = Changing::new(&pool, &[2]);
    let results = everything(Isa::best(), Size::SHARED, Parallelism::Executor(&executor));
    assert_eq!(executor.asked.into_inner(), results.len());
}

/// The names of the public functions under `folder` that take a `Parallelism`.
fn functions(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a text");
            for rest in text.split("pub fn ").skip(1) {
                let end = rest.find(['{', ';']).unwrap_or(rest.len());
                if rest[..end].contains("Parallelism<'_>") {
                    let name = rest.split(['(', '<']).next().expect("a name");
                    names.insert(name.to_owned());
                }
            }
        }
    }
}

#[test]
fn every_function_that_takes_a_parallelism_is_called() {
    let mut expected = BTreeSet::new();
    functions(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut expected);
    // Their threads are in `PackOptions`.
    expected.extend(["pack", "pack_columns"].map(str::to_owned));
    let results = everything(Isa::best(), Size::SHARED, Parallelism::Serial);
    let found: BTreeSet<String> = results.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, expected);
}

/// Threads that are started for each call. The first calls wait until there are [`CALLERS`] of them.
struct Meeting {
    barrier: Barrier,
    waiting: AtomicUsize,
}

impl Executor for Meeting {
    fn threads(&self) -> usize {
        2
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < CALLERS {
            self.barrier.wait();
        }
        scoped(tasks, task);
    }
}

fn scoped(tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    std::thread::scope(|scope| {
        for first in [0, 1] {
            scope.spawn(move || (first..tasks).step_by(2).for_each(task));
        }
    });
}

/// The number of threads that call kernels on one executor at the same time.
const CALLERS: usize = 4;

/// Each is inside of `for_each` before any continues, so nothing serializes the calls.
#[test]
fn several_threads_share_an_executor() {
    let isa = Isa::best();
    let serial = everything(isa, Size::SHARED, Parallelism::Serial);
    let meeting = Meeting { barrier: Barrier::new(CALLERS), waiting: AtomicUsize::new(0) };
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let found = everything(isa, Size::SHARED, Parallelism::Executor(&meeting));
                check(isa, "shared", &found, &serial);
            });
        }
    });
}

/// Threads that are started for each call, also for a call from inside of a task.
struct Scoped;

impl Executor for Scoped {
    fn threads(&self) -> usize {
        2
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        scoped(tasks, task);
    }
}

#[test]
fn a_task_may_call_kernels_on_the_same_executor() {
    let isa = Isa::best();
    let serial = everything(isa, Size::SHARED, Parallelism::Serial);
    let mut found = [Results::new(), Results::new()];
    let parallelism = Parallelism::Executor(&Scoped);
    parallelism.for_each_mut(&mut found, &|_, found| {
        *found = everything(isa, Size::SHARED, Parallelism::Executor(&Scoped));
    });
    found.iter().for_each(|found| check(isa, "nested", found, &serial));
}
