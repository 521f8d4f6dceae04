//! [`ThreadPool`]: each task runs once, panics reach the caller, and calls inside calls and beside calls end.

use simdformer_kernels::{Executor, Parallelism, ThreadPool};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const ROUNDS: usize = if cfg!(miri) { 3 } else { 300 };

fn pool(threads: usize) -> ThreadPool {
    ThreadPool::new(threads).expect("threads")
}

/// Runs `tasks` tasks and checks that each ran once.
fn check_call(pool: &ThreadPool, tasks: usize) {
    let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    pool.for_each(tasks, &|index| {
        counts[index].fetch_add(1, Ordering::Relaxed);
    });
    assert!(counts.into_iter().all(|count| count.into_inner() == 1), "{pool:?}, {tasks} tasks");
}

/// Runs `task` on every thread of the pool, one task each.
fn on_every_thread(pool: &ThreadPool, task: impl Fn(usize) + Sync) {
    let barrier = Barrier::new(pool.threads());
    pool.for_each(pool.threads(), &|index| {
        barrier.wait();
        task(index);
    });
}

fn panic_of(work: impl FnOnce()) -> Option<Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(work)).err()
}

#[test]
fn every_task_runs_once() {
    for (threads, reported) in [(0, 1), (1, 1), (2, 2), (3, 3), (7, 7)] {
        let pool = pool(threads);
        assert_eq!(pool.threads(), reported);
        assert_eq!(Parallelism::Executor(&pool).threads(), reported);
        assert_eq!(format!("{pool:?}"), format!("ThreadPool({reported} threads)"));
        for round in 0..ROUNDS {
            check_call(&pool, [0, 1, 2, 3, 17, 64][round % 6]);
        }
    }
    check_call(&pool(3), if cfg!(miri) { 100 } else { 100_000 });
}

#[test]
fn every_thread_takes_part() {
    for threads in [1, 2, 5] {
        let (pool, ids) = (pool(threads), std::sync::Mutex::new(Vec::new()));
        on_every_thread(&pool, |_| ids.lock().expect("no panic").push(std::thread::current().id()));
        let mut ids = ids.into_inner().expect("no panic");
        assert!(ids.contains(&std::thread::current().id()));
        ids.dedup();
        assert_eq!(ids.len(), threads);
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    for threads in [1, 2, 3] {
        let pool = pool(threads);
        for (tasks, position) in [(1, 0), (2, 0), (2, 1), (8, 0), (8, 7), (64, 40)] {
            let panic = panic_of(|| {
                pool.for_each(tasks, &|index| {
                    if index == position {
                        panic_any(index);
                    }
                });
            });
            assert_eq!(panic.and_then(|panic| panic.downcast().ok()), Some(Box::new(position)));
            check_call(&pool, tasks);
        }
        let panic = panic_of(|| on_every_thread(&pool, |index| panic_any(index)));
        let found = panic.and_then(|panic| panic.downcast::<usize>().ok()).expect("one of them");
        assert!(*found < threads);
        check_call(&pool, 9);
    }
}

#[test]
fn a_call_inside_a_task_runs_on_the_thread_of_the_task() {
    for threads in [1, 2, 3] {
        let pool = pool(threads);
        for _ in 0..ROUNDS / 3 {
            on_every_thread(&pool, |_| {
                let here = std::thread::current().id();
                pool.for_each(4, &|index| {
                    assert!(pool.threads() == 1 || std::thread::current().id() == here);
                    check_call(&pool, index);
                });
            });
        }
        // A panic of an inner call is one of the outer call.
        let panic = panic_of(|| pool.for_each(3, &|_| pool.for_each(3, &|_| panic_any("inner"))));
        assert_eq!(panic.and_then(|panic| panic.downcast().ok()), Some(Box::new("inner")));
        check_call(&pool, 9);
    }
}

#[test]
fn calls_of_several_threads_do_not_wait_for_each_other() {
    let pool = pool(3);
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if round % 7 == caller {
                        assert!(panic_of(|| pool.for_each(5, &|_| panic_any(caller))).is_some());
                    }
                    check_call(pool, 1 + (round + caller) % 9);
                }
            });
        }
    });
    // A call of this thread, while the tasks of another call do not end before it.
    let begun = Barrier::new(2);
    let done = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pool.for_each(2, &|index| {
                if index == 0 {
                    begun.wait();
                    done.wait();
                }
            });
        });
        begun.wait();
        check_call(&pool, 20);
        done.wait();
    });
}

#[test]
fn a_dropped_pool_has_no_threads() {
    struct Exit(Arc<AtomicUsize>);
    impl Drop for Exit {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    std::thread_local! {
        static EXIT: std::cell::RefCell<Option<Exit>> = const { std::cell::RefCell::new(None) };
    }
    for threads in [1, 2, 4] {
        let (pool, exits) = (pool(threads), Arc::new(AtomicUsize::new(0)));
        let caller = std::thread::current().id();
        on_every_thread(&pool, |_| {
            if std::thread::current().id() != caller {
                EXIT.with(|exit| exit.replace(Some(Exit(Arc::clone(&exits)))));
            }
        });
        drop(pool);
        assert_eq!(exits.load(Ordering::Relaxed), threads - 1);
    }
    for round in 0..ROUNDS / 3 {
        // At once, and directly after a call.
        drop(pool(round % 5));
        check_call(&pool(round % 5), round % 3);
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn idle_threads_sleep() {
    fn thread_time() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is valid for writes.
        let code = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        assert_eq!(code, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    std::thread_local! {
        static SEEN: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
    }
    let pool = pool(3);
    on_every_thread(&pool, |_| SEEN.set(thread_time()));
    std::thread::sleep(Duration::from_millis(300));
    on_every_thread(&pool, |_| {
        let used = thread_time() - SEEN.get();
        assert!(used < Duration::from_millis(100), "{used:?} in 300 ms");
    });
}
