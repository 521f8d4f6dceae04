//! The caller's own threads behind a safe trait, and why no implementation of it can cause a data race.
//!
//! Kernels write disjoint parts of their output from disjoint tasks, so a task that runs on two threads at once is a
//! data race. The crate cannot rely on an implementation of a safe trait to prevent this, and an unsafe trait would
//! require unsafe code in every engine, which an engine may have forbidden. So an executor does not get the tasks
//! themselves but a function of a task number. The function *claims* each number with an atomic bit before it runs the
//! tasks of that number. A number that is called a second time, or that does not exist, does nothing. Numbers that
//! were never called are run at the end by the calling thread. Results are correct with any executor; a wrong one is
//! only slow.
//!
//! Safe code cannot call a number after [`Executor::for_each`] has returned, because it only borrows the function. An
//! executor that passes it to long-lived threads extends the borrow with unsafe code, and must then wait for these
//! threads.
//!
//! The number of threads is read once per call ([`Workers`](super::Workers)), so an executor that returns another
//! number cannot change the scratch layout of a call.
//!
//! A number always stands for the same tasks. So if an executor gives the same numbers to the same thread in every
//! call, that thread finds its part of the weights in its own cache.

use core::sync::atomic::{AtomicUsize, Ordering};

/// The caller's threads: an engine's pool, workers of another language, an operating system's queue. Needs neither
/// rayon nor std.
///
/// Pass it to a kernel as [`Parallelism::Executor`](super::Parallelism::Executor).
///
/// # What kernels do
///
/// A kernel calls [`Executor::threads`] at most once per call, and calls [`Executor::for_each`] only when there is
/// work for several threads: smaller calls stay on the calling thread. Both calls happen on the thread that called the
/// kernel. A kernel calls `for_each` sequentially, and never from inside a task.
///
/// * **Concurrency.** One executor may serve several kernels at a time: threads that share it, for example four
///   sessions with clones of one `Threads::Shared`, call `threads` and `for_each` concurrently. An implementation must
///   support this. It may queue the calls, serialize them with a lock, or run a call on its own thread while the other
///   threads are busy.
/// * **Re-entrancy.** Kernels do not call `for_each` from inside a task, but a callback may: the filter of
///   [`pruned_argmax::argmax`](crate::pruned_argmax::argmax) and the task of
///   [`Parallelism::for_each_mut`](super::Parallelism::for_each_mut) run inside tasks. If they pass this executor to a
///   kernel, the kernel calls it from there, on any of its threads. An executor that serializes its calls would
///   deadlock; with such an executor, callbacks must use [`Parallelism::Serial`](super::Parallelism::Serial).
///
/// # What an executor must do
///
/// [`Executor::for_each`] calls `task` once with every number from 0 to `tasks - 1`, on any threads and in any order,
/// and returns when the last call has returned. A panic in a task must continue in the caller, after the other threads
/// have left their tasks.
///
/// * **Lifetime of `task`.** It is borrowed until `for_each` returns or unwinds. Safe code cannot keep it longer. An
///   executor that passes it to long-lived threads extends the borrow with unsafe code and is then responsible: after
///   `for_each` returns or unwinds, no thread may be inside `task` or call it again.
///
/// An executor in safe code that breaks the other rules causes no harm: no task runs twice, the calling thread runs
/// the missing tasks, and the results have the same bits with any number of threads. If the executor loses a panic,
/// the kernel panics.
///
/// ```
/// use core::sync::atomic::{AtomicUsize, Ordering};
/// use simdformer_kernels::{
///     Epilogue, Executor, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, gemm,
/// };
///
/// /// Starts threads for each call. A pool would reuse them.
/// struct Scoped(usize);
///
/// impl Executor for Scoped {
///     fn threads(&self) -> usize {
///         self.0
///     }
///
///     fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
///         let next = AtomicUsize::new(0);
///         let work = || {
///             loop {
///                 let index = next.fetch_add(1, Ordering::Relaxed);
///                 if index >= tasks {
///                     return;
///                 }
///                 task(index);
///             }
///         };
///         std::thread::scope(|scope| {
///             (1..self.0).for_each(|_| drop(scope.spawn(work)));
///             work();
///         });
///     }
/// }
///
/// let (isa, depth, columns) = (Isa::best(), 256, 512);
/// let weight = vec![0.5; depth * columns];
/// let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, depth, columns)?];
/// let weight = PackedMatrix::pack(isa, Matrix::new(&weight, depth, columns)?, &mut buffer)?;
/// let x = vec![1.0; 16 * depth];
/// let mut y = vec![0.0; 16 * columns];
/// gemm(
///     Matrix::new(&x, 16, depth)?,
///     &weight,
///     &Epilogue::default(),
///     MatrixMut::new(&mut y, 16, columns)?,
///     Parallelism::Executor(&Scoped(2)),
/// )?;
/// assert!(y.iter().all(|&y| y == 128.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Executor: Sync {
    /// The number of threads that take part, including the calling one. Kernels use it to choose the task size. With
    /// 1, no work is handed over. Called once per kernel call; the value may change between calls.
    fn threads(&self) -> usize;

    /// Calls `task(0)` to `task(tasks - 1)`, once each, and returns when all have returned. There are at most 1,024
    /// tasks, each of at least some microseconds; `tasks` is not 0. Several threads may call this function at the same
    /// time.
    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));
}

/// The largest number of threads that is used; larger values of an executor are reduced to it.
pub(super) const MOST_THREADS: usize = 1 << 16;

/// The largest number of task numbers that an executor gets. If there are more tasks, a number stands for several
/// tasks.
pub(super) const MOST_NUMBERS: usize = 1024;

/// Bits in one word of `claimed`.
const BITS: usize = usize::BITS as usize;

/// Runs `task(0)` to `task(numbers - 1)` on `executor`, each exactly once.
///
/// # Panics
/// If a task or the executor panics, or if the executor lost the panic of a task.
pub(super) fn run_tasks(executor: &dyn Executor, numbers: usize, task: &(dyn Fn(usize) + Sync)) {
    debug_assert!(numbers <= MOST_NUMBERS);
    let claims = TaskClaims {
        task,
        numbers,
        claimed: [const { AtomicUsize::new(0) }; MOST_NUMBERS / BITS],
        done: AtomicUsize::new(0),
    };
    executor.for_each(numbers, &|number| claims.call(number));
    claims.close();
}

/// All tasks of a kernel call, and the numbers that are claimed.
struct TaskClaims<'t> {
    task: &'t (dyn Fn(usize) + Sync),
    numbers: usize,
    claimed: [AtomicUsize; MOST_NUMBERS / BITS],
    /// The count of numbers whose tasks have returned.
    done: AtomicUsize,
}

impl TaskClaims<'_> {
    /// Runs the tasks of `number`, if the number exists and is not claimed yet.
    fn call(&self, number: usize) {
        if number >= self.numbers {
            return;
        }
        let bit = 1 << (number % BITS);
        if self.claimed[number / BITS].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return;
        }
        (self.task)(number);
        // Publishes the writes of the tasks to the thread that reads the count.
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Runs the numbers that are not claimed; afterwards all tasks are done.
    fn close(&self) {
        if self.done.load(Ordering::Acquire) == self.numbers {
            return;
        }
        (0..self.numbers).for_each(|number| self.call(number));
        // A number that is claimed but not done has panicked, or another thread still runs it.
        assert!(
            self.done.load(Ordering::Acquire) == self.numbers,
            "a task panicked and the executor did not pass it on, or it returned before its tasks had"
        );
    }
}
