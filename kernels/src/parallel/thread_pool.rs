//! A pool of `std` threads that sleep between calls.
//!
//! A call publishes one batch (`batch.rs`), wakes as many threads as the batch can use, and takes tasks itself. When no
//! task is left, it waits for the threads that joined the batch.
//!
//! # Why nothing waits for ever
//!
//! - A thread of the pool sleeps until a call is published or the pool is dropped. Both happen under the lock of the
//!   state that the thread checks before it sleeps, so no wake-up is lost. If a thread comes late, the caller has taken
//!   its tasks.
//! - A call waits only for threads that run tasks of its own batch. It never waits for another call: a call that finds
//!   one published, of another thread or of the task that it is in, runs its tasks on the calling thread alone.

use super::batch::{Batches, Helper};
use super::executor::Executor;
use super::sync::{Arc, Condvar, Mutex, MutexGuard, SPINS, thread, wait};
use core::fmt;
use std::sync::PoisonError;
use std::vec::Vec;
use std::{format, io};

/// Threads for programs without rayon: an [`Executor`] that owns `std` threads.
///
/// Pass it to a kernel as [`Parallelism::Executor`](super::Parallelism::Executor). Threads without work sleep. A call
/// allocates nothing.
///
/// Several threads may share a pool, and a task may call kernels on the pool that it runs on. The threads serve one
/// call at a time; another call that begins meanwhile runs on the calling thread alone, so no call waits for another.
///
/// A panic in a task reaches the caller when no task of the call runs any more. If several tasks panic, the caller gets
/// one of the panics. The pool can be used again.
///
/// ```
/// use simdformer_kernels::{
///     Epilogue, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, ThreadPool, gemm,
/// };
///
/// let pool = ThreadPool::new(2)?; // once, for all calls
/// let (isa, rows, depth, columns) = (Isa::best(), 16, 256, 512);
/// let weight = vec![0.5; depth * columns];
/// let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, depth, columns)?];
/// let weight = PackedMatrix::pack(isa, Matrix::new(&weight, depth, columns)?, &mut buffer)?;
/// let (x, mut y) = (vec![1.0; rows * depth], vec![0.0; rows * columns]);
/// gemm(
///     Matrix::new(&x, rows, depth)?,
///     &weight,
///     &Epilogue::default(),
///     MatrixMut::new(&mut y, rows, columns)?,
///     Parallelism::Executor(&pool),
/// )?;
/// assert!(y.iter().all(|&y| y == 128.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ThreadPool {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// What the threads of a pool share.
struct Shared {
    state: Mutex<State>,
    /// A call is published, or the pool is dropped.
    published: Condvar,
    /// `joined` is zero.
    left: Condvar,
}

#[derive(Default)]
struct State {
    /// The batch of the published call.
    call: Option<Helper<'static>>,
    /// Threads that may still join the call.
    wanted: usize,
    /// Threads that have joined the call and not left it, or that have not started.
    joined: usize,
    closed: bool,
}

impl ThreadPool {
    /// A pool of `threads` threads, one of which is the calling thread of each call: `threads - 1` are started, none
    /// for 0 and 1. Returns when all of them have started, because the start of a thread allocates.
    ///
    /// # Errors
    /// The operating system cannot start a thread. Those that have started are stopped.
    pub fn new(threads: usize) -> io::Result<Self> {
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { state, published: Condvar::new(), left: Condvar::new() });
        let mut pool = Self { shared, threads: Vec::new() };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            shared.lock().joined += 1;
            let name = format!("simdformer-{index}");
            pool.threads.push(thread::Builder::new().name(name).spawn(move || shared.work())?);
        }
        drop(pool.shared.wait_until_left());
        Ok(pool)
    }
}

impl Executor for ThreadPool {
    fn threads(&self) -> usize {
        self.threads.len() + 1
    }

    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let helpers = self.threads.len().min(tasks.saturating_sub(1));
        if helpers == 0 {
            return (0..tasks).for_each(task);
        }
        let mut batches = Batches::new();
        let (leader, helper) = batches.split();
        leader.run_tasks(tasks, task, |batch| {
            // SAFETY: `batches` outlives this closure, which drops the call.
            let call = unsafe { Call::publish(&self.shared, helper, helpers) };
            if call.is_some() && helpers == self.threads.len() {
                self.shared.published.notify_all();
            } else if call.is_some() {
                (0..helpers).for_each(|_| self.shared.published.notify_one());
            }
            batch.work();
            // The last tasks of the other threads usually end before this thread could sleep and wake up.
            for round in 0..SPINS {
                if batch.is_done() {
                    break;
                }
                wait(round);
            }
            drop(call);
        });
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.published.notify_all();
        for thread in self.threads.drain(..) {
            // The threads do not panic: `Helper::help` catches the panics of tasks.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadPool({} threads)", self.threads())
    }
}

impl Shared {
    /// No code of the caller runs under the lock, so a poisoned state is consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `joined` is zero.
    fn wait_until_left(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.joined > 0 {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// A thread of the pool: joins calls until the pool is dropped.
    fn work(&self) {
        loop {
            let mut state = self.lock();
            state.joined -= 1;
            if state.joined == 0 {
                self.left.notify_one();
            }
            let helper = loop {
                match state.call {
                    _ if state.closed => return,
                    Some(helper) if state.wanted > 0 => break helper,
                    _ => {
                        let woken = self.published.wait(state);
                        state = woken.unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            state.wanted -= 1;
            state.joined += 1;
            drop(state);
            helper.help();
        }
    }
}

/// A published call. When it is dropped, no thread of the pool uses its batch.
struct Call<'p>(&'p Shared);

impl<'p> Call<'p> {
    /// Lets up to `threads` threads join the batch of `helper`; the caller wakes them. `None` if another call is
    /// published.
    ///
    /// # Safety
    /// The result is dropped before the batch.
    unsafe fn publish(shared: &'p Shared, helper: Helper<'_>, threads: usize) -> Option<Self> {
        let mut state = shared.lock();
        if state.call.is_some() {
            return None;
        }
        // SAFETY: only the lifetime changes. Threads copy the helper out of the state only while they count as joined,
        // and `Call::drop` removes it from the state when none is joined. `# Safety` of this function: the batch lives
        // until then.
        state.call = Some(unsafe { core::mem::transmute::<Helper<'_>, Helper<'static>>(helper) });
        state.wanted = threads;
        Some(Self(shared))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.lock().wanted = 0;
        self.0.wait_until_left().call = None;
    }
}
