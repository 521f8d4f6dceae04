//! Batches on real threads: every task runs once, panics come from every place, rayon is entered again from every
//! place. A test that hangs fails: see [`within`].

use super::{Parallelism, Team};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use simdformer_testing::effort::cases;
use std::boxed::Box;
use std::format;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::{String, ToString};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::vec::Vec;

/// The result of `work`, or a failure after a time that no test here needs.
fn within<R: Send + 'static>(what: &str, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || send.send(work()));
    match receive.recv_timeout(Duration::from_secs(60)) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("it sent nothing and did not panic"),
        },
    }
}

fn pool(threads: usize) -> rayon::ThreadPool {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap_or_else(|error| panic!("no pool of {threads} threads: {error}"))
}

const THREADS: [usize; 4] = [1, 2, 3, 7];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Rayon,
    Team,
}

const KINDS: [Kind; 2] = [Kind::Rayon, Kind::Team];

impl Kind {
    /// Runs `lead` inside the current pool.
    fn run<R: Send>(self, lead: impl FnOnce(Parallelism<'_>) -> R + Send) -> R {
        match self {
            Self::Rayon => lead(Parallelism::Rayon),
            Self::Team => Team::form(|team| lead(Parallelism::Team(team))),
        }
    }
}

/// Runs a batch of `tasks` and checks that each ran once.
fn check_batch(parallelism: Parallelism<'_>, tasks: usize) {
    let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    parallelism.workers().for_each(tasks, &|index| {
        counts[index].fetch_add(1, Ordering::Relaxed);
    });
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
}

/// The message of the panic of `work`.
fn panic_of(work: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(work)).err()?;
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).or(Some(String::new()))
}

/// Spins for about `microseconds`.
fn busy(microseconds: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(microseconds) {
        core::hint::spin_loop();
    }
}

/// Runs batches until the helpers of the team have arrived.
fn gather(parallelism: Parallelism<'_>) {
    for _ in 0..20 {
        parallelism.workers().for_each(parallelism.threads() * 2, &|_| busy(50));
    }
}

#[test]
fn every_task_runs_once_in_every_batch() {
    within("a batch", || {
        for threads in THREADS {
            pool(threads).install(|| {
                for kind in KINDS {
                    kind.run(|parallelism| {
                        for batch in 0..2000usize {
                            check_batch(parallelism, [0, 1, 2, 3, 17, 64][batch % 6]);
                        }
                    });
                }
            });
        }
    });
}

#[test]
fn a_panic_in_any_task_reaches_the_leader_once_and_all_goes_on() {
    for kind in KINDS {
        for threads in THREADS {
            within(&format!("a panic, {kind:?} of {threads}"), move || {
                let pool = pool(threads);
                for (tasks, position) in
                    [(1, 0), (2, 0), (2, 1), (8, 0), (8, 3), (8, 7), (64, 40)].repeat(10)
                {
                    let batch = |parallelism: Parallelism<'_>| {
                        parallelism.workers().for_each(tasks, &|index| {
                            busy(5);
                            assert!(index != position, "task {index}");
                        });
                    };
                    let expected = Some(format!("task {position}"));
                    // The panic leaves the pool.
                    let found = panic_of(|| pool.install(|| kind.run(batch)));
                    assert_eq!(found, expected, "{kind:?} of {threads}");
                    // The leader catches the panic, and the team continues.
                    pool.install(|| {
                        kind.run(|parallelism| {
                            for _ in 0..3 {
                                assert_eq!(panic_of(|| batch(parallelism)), expected);
                                check_batch(parallelism, 9);
                            }
                        });
                    });
                }
            });
        }
    }
}

#[test]
fn panics_in_all_tasks_at_once_are_one_panic() {
    for kind in KINDS {
        for threads in THREADS {
            within(&format!("all tasks panic, {kind:?} of {threads}"), move || {
                pool(threads).install(|| {
                    for tasks in [1, 2, 3, 7, 50].repeat(cases(2, 10)) {
                        kind.run(|parallelism| {
                            gather(parallelism);
                            let found = panic_of(|| {
                                parallelism.workers().for_each(tasks, &|_| {
                                    busy(20);
                                    panic!("every task");
                                });
                            });
                            assert_eq!(found.as_deref(), Some("every task"));
                            check_batch(parallelism, 9);
                        });
                    }
                });
            });
        }
    }
}

#[test]
fn a_leader_that_panics_ends_its_team() {
    for threads in THREADS {
        within("a leader that panics", move || {
            let pool = pool(threads);
            for gathered in [false, true] {
                let found = panic_of(|| {
                    pool.install(|| {
                        Kind::Team.run(|parallelism| {
                            if gathered {
                                gather(parallelism);
                            }
                            panic!("the leader");
                        })
                    })
                });
                assert_eq!(found.as_deref(), Some("the leader"));
                pool.install(|| Kind::Team.run(|parallelism| check_batch(parallelism, 9)));
            }
        });
    }
}

/// A value whose drop runs batches, like a session that an engine drops during shutdown.
struct Last<'p, 'o> {
    parallelism: Parallelism<'p>,
    outcome: &'o AtomicUsize,
}

impl Drop for Last<'_, '_> {
    fn drop(&mut self) {
        assert!(std::thread::panicking());
        gather(self.parallelism);
        check_batch(self.parallelism, 9);
        let found = panic_of(|| {
            self.parallelism.workers().for_each(9, &|index| {
                busy(20);
                assert!(index % 2 == 0, "an odd task");
            });
        });
        check_batch(self.parallelism, 9);
        if found.as_deref() == Some("an odd task") {
            self.outcome.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn batches_run_while_a_thread_unwinds() {
    for kind in KINDS {
        for threads in THREADS {
            within(&format!("a drop, {kind:?} of {threads}"), move || {
                let outcome = AtomicUsize::new(0);
                let pool = pool(threads);
                let found = panic_of(|| {
                    pool.install(|| {
                        kind.run(|parallelism| {
                            let _last = Last { parallelism, outcome: &outcome };
                            panic!("first");
                        })
                    })
                });
                assert_eq!(found.as_deref(), Some("first"));
                assert_eq!(outcome.load(Ordering::Relaxed), 1);
                // A complete team that begins and ends while its leader unwinds.
                struct Whole(Kind);
                impl Drop for Whole {
                    fn drop(&mut self) {
                        self.0.run(|parallelism| {
                            gather(parallelism);
                            check_batch(parallelism, 9);
                        });
                    }
                }
                let found = panic_of(|| {
                    pool.install(|| {
                        let _whole = Whole(kind);
                        panic!("second");
                    });
                });
                assert_eq!(found.as_deref(), Some("second"));
            });
        }
    }
}

/// A panic payload that panics when it is dropped.
struct Bomb<'n>(&'n AtomicUsize);

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("a payload that panics"));
        }
    }
}

#[test]
fn panicking_payloads_do_not_hang() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    for threads in [2, 3, 7] {
        within("a payload that panics", move || {
            pool(threads).install(|| {
                Kind::Team.run(|parallelism| {
                    gather(parallelism);
                    let caught = catch_unwind(AssertUnwindSafe(|| {
                        parallelism.workers().for_each(threads, &|_| {
                            busy(100);
                            std::panic::resume_unwind(Box::new(Bomb(&DROPPED)));
                        });
                    }));
                    assert!(catch_unwind(AssertUnwindSafe(|| drop(caught))).is_err());
                    check_batch(parallelism, 9);
                });
            });
        });
    }
}

/// Enters rayon in every way that steals other jobs while it waits.
fn reenter(other: &rayon::ThreadPool) {
    let whole = |parallelism: Parallelism<'_>| {
        check_batch(parallelism, 9);
        busy(100);
        check_batch(parallelism, 9);
    };
    other.install(|| busy(300));
    other.install(|| Team::form(|team| whole(Parallelism::Team(team))));
    rayon::join(|| busy(20), || busy(300));
    rayon::join(|| busy(20), || rayon::join(|| busy(20), || busy(300)));
    rayon::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|_| busy(50));
        }
    });
    // From a thread of another pool back into the pool that this thread may belong to.
    other.install(|| rayon::join(|| busy(20), || busy(100)));
    while rayon::yield_now() == Some(rayon::Yield::Executed) {}
    Team::form(|team| whole(Parallelism::Team(team)));
    whole(Parallelism::Rayon);
}

#[test]
fn a_leader_may_enter_rayon() {
    for threads in THREADS {
        for others in [1, 2] {
            within(&format!("a leader of {threads} in rayon"), move || {
                let (pool, other) = (pool(threads), pool(others));
                for round in 0..cases(4, 10) {
                    pool.install(|| {
                        Kind::Team.run(|parallelism| {
                            if round % 2 == 0 {
                                gather(parallelism);
                            }
                            reenter(&other);
                            check_batch(parallelism, 9);
                            reenter(&other);
                            check_batch(parallelism, 9);
                        });
                    });
                }
            });
        }
    }
}

#[test]
fn a_task_may_enter_rayon() {
    for kind in KINDS {
        for threads in THREADS {
            within(&format!("a task in rayon, {kind:?} of {threads}"), move || {
                let (pool, other) = (pool(threads), pool(2));
                for _ in 0..cases(2, 5) {
                    pool.install(|| {
                        kind.run(|parallelism| {
                            gather(parallelism);
                            let done = AtomicUsize::new(0);
                            parallelism.workers().for_each(2 * threads + 1, &|_| {
                                reenter(&other);
                                done.fetch_add(1, Ordering::Relaxed);
                            });
                            assert_eq!(done.load(Ordering::Relaxed), 2 * threads + 1);
                            check_batch(parallelism, 9);
                        });
                    });
                }
            });
        }
    }
}

#[test]
fn nested_teams_and_parallel_leaders_return() {
    fn nest(depth: usize, other: &rayon::ThreadPool) {
        Kind::Team.run(|parallelism| {
            check_batch(parallelism, 5);
            if depth > 0 {
                // Two leaders in one pool; rayon may run the helper of either leader on the other's thread.
                rayon::join(|| nest(depth - 1, other), || nest(depth - 1, other));
                parallelism.workers().for_each(2, &|_| nest(depth - 1, other));
                other.install(|| nest(depth - 1, other));
            }
            check_batch(parallelism, 5);
        });
    }
    for threads in THREADS {
        within(&format!("nested teams of {threads}"), move || {
            let (pool, other) = (pool(threads), pool(threads.min(2)));
            for _ in 0..5 {
                pool.install(|| nest(2, &other));
            }
        });
    }
}

/// CPU time that this thread has used.
#[cfg(target_os = "linux")]
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a writable `timespec`.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(target_os = "linux")]
#[test]
fn helpers_leave_while_the_leader_does_other_work() {
    within("a leader that sleeps", || {
        const ASLEEP: Duration = Duration::from_millis(300);
        let threads = 3;
        let pool = pool(threads);
        let total = || pool.broadcast(|_| thread_time()).into_iter().sum::<Duration>();
        pool.install(|| Kind::Team.run(gather));
        let before = total();
        pool.install(|| {
            Kind::Team.run(|parallelism| {
                for _ in 0..2 {
                    check_batch(parallelism, 9);
                    std::thread::sleep(ASLEEP / 2);
                    check_batch(parallelism, 9);
                }
            });
        });
        let used = total() - before;
        assert!(used < ASLEEP / 3, "{used:?} of processor time while the leader slept {ASLEEP:?}");
    });
}

#[test]
fn helpers_return_after_the_leader_did_other_work() {
    within("two tasks that meet", || {
        pool(2).install(|| {
            Kind::Team.run(|parallelism| {
                gather(parallelism);
                for _ in 0..3 {
                    std::thread::sleep(Duration::from_millis(100));
                    // Two tasks that wait for each other, with a time limit.
                    let here = [const { AtomicBool::new(false) }; 2];
                    let met = AtomicUsize::new(0);
                    parallelism.workers().for_each(2, &|index| {
                        here[index].store(true, Ordering::Relaxed);
                        let start = Instant::now();
                        while start.elapsed() < Duration::from_secs(20) {
                            if here[1 - index].load(Ordering::Relaxed) {
                                met.fetch_add(1, Ordering::Relaxed);
                                return;
                            }
                            std::thread::yield_now();
                        }
                    });
                    assert_eq!(met.load(Ordering::Relaxed), 2, "one thread had to run both tasks");
                }
            });
        });
    });
}

/// A leader does not run foreign jobs of the pool, such as another session's, in the middle of a batch: such a job
/// could take any time, or wait for a lock that the leader's caller holds.
#[test]
fn a_leader_runs_no_foreign_jobs_during_its_batches() {
    std::thread_local! {
        static LEADING: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
    }
    within("jobs of others", || {
        pool(3).install(|| {
            let met = AtomicUsize::new(0);
            rayon::scope(|scope| {
                for _ in 0..200 {
                    scope.spawn(|_| {
                        met.fetch_add(usize::from(LEADING.get()), Ordering::Relaxed);
                        Kind::Team.run(|parallelism| {
                            LEADING.set(true);
                            for _ in 0..20 {
                                parallelism.workers().for_each(6, &|_| busy(3));
                            }
                            LEADING.set(false);
                        });
                    });
                }
            });
            assert_eq!(met.load(Ordering::Relaxed), 0);
        });
    });
}

#[test]
fn large_batches_are_whole() {
    within("a large batch", || {
        pool(3).install(|| Kind::Team.run(|parallelism| check_batch(parallelism, 100_000)));
    });
}
