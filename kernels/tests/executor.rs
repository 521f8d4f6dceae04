//! Kernels on threads of the caller: a thread pool, and executors that break the contract in every way that
//! safe code can. All give the bits of one thread.

use crate::calls::{self, Results, Size};
use crate::support::pruned_argmax::Operands;
use crate::support::*;
use simdformer_kernels::topk::argmax;
use simdformer_kernels::{Exec, Executor, Isa, Matrix, Parallelism, ThreadPool};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};

type Task<'t> = &'t (dyn Fn(usize) + Sync);

fn everything(isa: Isa, parallelism: Parallelism<'_>) -> Results {
    calls::everything(isa, Size::SHARED, parallelism)
}

fn check(isa: Isa, what: &str, executor: &dyn Executor, serial: &Results) {
    let found = everything(isa, Parallelism::Executor(executor));
    assert_eq!(found.len(), serial.len());
    for ((name, found), (_, serial)) in found.iter().zip(serial) {
        assert!(found == serial, "{isa}, {what}: {name}");
    }
}

#[test]
fn a_thread_pool_gives_the_bits_of_one_thread() {
    for isa in all_isas() {
        let serial = everything(isa, SERIAL);
        for (case, threads) in [1, 2, 3, 7].into_iter().enumerate() {
            if !chosen(isa, case, 4) {
                continue;
            }
            let pool = ThreadPool::new(threads).expect("threads");
            check(isa, &format!("{threads} threads"), &pool, &serial);
        }
    }
}

/// How an executor breaks the contract.
#[derive(Clone, Copy, Debug)]
enum Breach {
    /// Runs every task twice, on two threads at the same time.
    Twice,
    /// Runs all tasks on each of three threads.
    Everywhere,
    /// Runs every second task.
    Half,
    /// Runs nothing.
    Nothing,
    /// Runs the last task first, on the calling thread.
    Backwards,
    /// Also calls task numbers that do not exist.
    Beyond,
    /// Makes the right number of calls, all for task 0.
    Zero,
}

/// Three threads, started for each call, that break the contract.
fn broken(breach: Breach) -> impl Executor {
    Runs(3, move |tasks: usize, task: Task<'_>| match breach {
        Breach::Twice => scoped(2, &|_| (0..tasks).for_each(task)),
        Breach::Everywhere => {
            scoped(3, &|first| (0..tasks).for_each(|i| task((first * tasks / 3 + i) % tasks)));
        }
        Breach::Half => scoped(2, &|first| (2 * first..tasks).step_by(4).for_each(task)),
        Breach::Nothing => {}
        Breach::Backwards => (0..tasks).rev().for_each(task),
        Breach::Beyond => scoped(2, &|first| {
            (first..3 * tasks).step_by(2).chain([usize::MAX, 1 << 31, 1024]).for_each(task);
        }),
        Breach::Zero => (0..tasks).for_each(|_| task(0)),
    })
}

/// Calls `run` on each of so many threads.
fn scoped(threads: usize, run: Task<'_>) {
    std::thread::scope(|scope| {
        for index in 0..threads {
            scope.spawn(move || run(index));
        }
    });
}

/// Two threads, started for each call, that share the tasks.
fn both(tasks: usize, task: Task<'_>) {
    scoped(2, &|first| (first..tasks).step_by(2).for_each(task));
}

#[test]
fn a_broken_executor_changes_no_bit() {
    use Breach::{Backwards, Beyond, Everywhere, Half, Nothing, Twice, Zero};
    for isa in all_isas() {
        let serial = everything(isa, SERIAL);
        let all = [Twice, Everywhere, Half, Nothing, Backwards, Beyond, Zero];
        for (case, breach) in all.into_iter().enumerate() {
            // The number of tasks does not depend on the instruction set.
            if !chosen(isa, case, 6) {
                continue;
            }
            check(isa, &format!("{breach:?}"), &broken(breach), &serial);
        }
    }
}

/// Runs the tasks on a pool, and reports one number of threads after the other.
struct Says<'s> {
    pool: &'s ThreadPool,
    threads: &'s [usize],
    asked: AtomicUsize,
}

impl<'s> Says<'s> {
    fn new(pool: &'s ThreadPool, threads: &'s [usize]) -> Self {
        Self { pool, threads, asked: AtomicUsize::new(0) }
    }
}

impl Executor for Says<'_> {
    fn threads(&self) -> usize {
        self.threads[self.asked.fetch_add(1, Ordering::Relaxed) % self.threads.len()]
    }

    fn for_each(&self, tasks: usize, task: Task<'_>) {
        self.pool.for_each(tasks, task);
    }
}

#[test]
fn every_number_of_threads_is_accepted() {
    let (isa, pool) = (Isa::best(), ThreadPool::new(1).expect("no thread"));
    let serial = everything(isa, SERIAL);
    for threads in [&[0][..], &[1], &[usize::MAX], &[5000], &[3, 0, usize::MAX, 1, 2, 100]] {
        check(isa, &format!("{threads:?} threads"), &Says::new(&pool, threads), &serial);
        assert!(Parallelism::Executor(&Says::new(&pool, threads)).threads() >= 1);
    }
}

#[test]
fn a_changing_number_of_threads_changes_no_bit() {
    let pool = ThreadPool::new(3).expect("threads");
    for isa in all_isas() {
        let serial = everything(isa, SERIAL);
        for threads in [&[3, 1, 3][..], &[1, 3], &[3, 3, 1], &[2, usize::MAX, 0, 1]] {
            check(isa, &format!("{threads:?} threads"), &Says::new(&pool, threads), &serial);
        }
    }
}

/// Several threads. A second call of `threads` could give another number.
#[test]
fn a_kernel_reads_the_number_of_threads_once() {
    let pool = ThreadPool::new(2).expect("threads");
    let executor = Says::new(&pool, &[2]);
    let results = everything(Isa::best(), Parallelism::Executor(&executor));
    assert_eq!(executor.asked.into_inner(), results.len());
}

#[test]
fn kernels_keep_their_part_of_the_contract() {
    let isa = Isa::best();
    let (all, busy) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let witness = Runs(4, |tasks: usize, task: Task<'_>| {
        assert!(!busy.swap(true, Ordering::SeqCst), "a call inside another one");
        all.lock().expect("no panic").push(tasks);
        (0..tasks).for_each(task);
        busy.store(false, Ordering::SeqCst);
    });
    everything(isa, Parallelism::Executor(&witness));
    let calls = core::mem::take(&mut *all.lock().expect("no panic"));
    assert!(calls.len() >= 15, "{calls:?}");
    // More rows than the largest number of tasks, with a stride of 0: each row is the same memory.
    let row = Random::new(3).values(1 << 14);
    let scores = Matrix::strided(&row, 2500, row.len(), 0, 1).expect("one row");
    let mut columns = vec![u32::MAX; 2500];
    argmax(Exec::new(isa, Parallelism::Executor(&witness)), scores, &mut columns).expect("a fit");
    assert!(columns.iter().all(|&column| column == columns[0]), "every row once");
    assert_eq!(*all.lock().expect("no panic"), [1024]);
    assert!(calls.iter().all(|&tasks| (2..=1024).contains(&tasks)), "{calls:?}");
    // A small call stays on the calling thread.
    let never = Runs(64, |tasks: usize, _: Task<'_>| panic!("asked to run {tasks} tasks"));
    let small = view_matrix(&[1.0; 4], 2, 2);
    argmax(Exec::new(isa, Parallelism::Executor(&never)), small, &mut [0; 2]).expect("a fit");
}

/// The panic of a small pruned argmax whose `banned` panics for one row.
fn banned_panic(executor: &dyn Executor, panics: bool) -> Option<String> {
    let operands = Operands::dense((4, 24, 200), |_, _| 1.0, |k, j| ((200 * k + j) % 7) as f32);
    let built = operands.build(Isa::best());
    let banned = |row: usize, _| {
        assert!(!(panics && row == 2), "meant");
        false
    };
    let call = || built.argmax(operands.x.view(), &banned, Parallelism::Executor(executor));
    let panic = catch_unwind(AssertUnwindSafe(call)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
}

#[test]
fn panics_reach_the_caller() {
    for threads in [1, 2, 3] {
        let pool = ThreadPool::new(threads).expect("threads");
        assert_eq!(banned_panic(&pool, true).as_deref(), Some("meant"), "{threads} threads");
        assert_eq!(banned_panic(&pool, false), None, "{threads} threads: it can be used again");
    }
    assert_eq!(banned_panic(&broken(Breach::Nothing), true).as_deref(), Some("meant"));
    // Without a report of the panics of tasks.
    let swallows = Runs(2, |tasks: usize, task: Task<'_>| {
        for index in 0..tasks {
            let _ = catch_unwind(AssertUnwindSafe(|| task(index)));
        }
    });
    assert_eq!(banned_panic(&swallows, false), None);
    let lost = banned_panic(&swallows, true).expect("a lost panic is noticed");
    assert!(lost.contains("did not pass it on"), "{lost}");
    // After all tasks are done.
    let panics = Runs(2, |tasks: usize, task: Task<'_>| {
        (0..tasks).for_each(task);
        panic!("meant");
    });
    assert_eq!(banned_panic(&panics, false).as_deref(), Some("meant"));
}

/// The names of the public functions under `folder` that take a `Parallelism` or an `Exec`.
#[cfg(feature = "train")]
fn functions(folder: &std::path::Path, names: &mut std::collections::BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a text");
            for rest in text.split("pub fn ").skip(1) {
                // A brace within a line is a pattern of an argument.
                let end = rest.find(" {\n").unwrap_or(rest.len());
                if ["Parallelism<'_>", "Exec<'_>"].iter().any(|of| rest[..end].contains(of)) {
                    let name = rest.split(['(', '<']).next().expect("a name");
                    names.insert(name.to_owned());
                }
            }
        }
    }
}

#[cfg(feature = "train")]
#[test]
fn every_function_that_takes_a_parallelism_is_called() {
    let mut expected = std::collections::BTreeSet::new();
    functions(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut expected);
    // Their threads are in `PackOptions`.
    expected.extend(["pack", "pack_columns"].map(str::to_owned));
    let results = everything(Isa::best(), SERIAL);
    let found: std::collections::BTreeSet<String> =
        results.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, expected);
}

/// The number of threads that call kernels on one executor at the same time.
const CALLERS: usize = 4;

/// Each is inside of `for_each` before any continues, so nothing serializes the calls.
#[test]
fn several_threads_share_an_executor() {
    let isa = Isa::best();
    let serial = everything(isa, SERIAL);
    let (barrier, waiting) = (Barrier::new(CALLERS), AtomicUsize::new(0));
    let meeting = Runs(2, |tasks: usize, task: Task<'_>| {
        if waiting.fetch_add(1, Ordering::Relaxed) < CALLERS {
            barrier.wait();
        }
        both(tasks, task);
    });
    scoped(CALLERS, &|_| check(isa, "shared", &meeting, &serial));
}

#[test]
fn a_task_may_call_kernels_on_the_same_executor() {
    let isa = Isa::best();
    let serial = everything(isa, SERIAL);
    let executor = Runs(2, both);
    let nested = |_: usize, _: &mut u8| check(isa, "nested", &executor, &serial);
    Parallelism::Executor(&executor).for_each_mut(&mut [0, 0], &nested);
}
