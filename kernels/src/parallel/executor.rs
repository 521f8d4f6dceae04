//! The caller's own threads behind a trait, and why no implementation of it can do harm.
//!
//! Kernels write disjoint parts of their output from disjoint tasks, so a task that ran on two threads
//! at once would be a data race. A trait of safe functions cannot be trusted not to cause one, and an
//! unsafe trait would ask every engine for a line of unsafe code that it may have forbidden. So what an
//! executor is handed is not the task but a ticket office: each number it calls is *claimed*, by an
//! atomic bit, before the tasks behind it run. A number that is called a second time, or that does not
//! exist, does nothing; numbers that were never called are run in the end by the caller. Results are
//! right with any executor, and a broken one is merely slow.
//!
//! Nor can safe code call a number after [`Executor::for_each`] has returned, as it only borrows the
//! function; an executor that hands it to long-lived threads makes the borrow longer by unsafe code,
//! and promises with it that it waits for them.
//!
//! How many threads there are is asked once per call ([`Workers`](super::Workers)), so a different answer cannot
//! change how a call has laid out its scratch.
//!
//! Numbers stand for fixed tasks, so that an executor which gives the same numbers to the same thread
//! in every call has that thread find its part of the weights in its own cache.

use super::share::share;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Threads of the caller's: a pool of an engine, workers of another language, an operating system's
/// queue. Needs neither rayon nor std.
///
/// Pass it to a kernel as [`Parallelism::Executor`](super::Parallelism::Executor).
///
/// # What kernels do
///
/// A kernel asks for [`Executor::threads`] at most once per call, and calls [`Executor::for_each`] only when
/// there is work for several threads: smaller calls stay on the calling thread. Both happen on the thread that
/// called the kernel. A kernel makes its calls of `for_each` one after the other, and none from inside a task.
///
/// * **Concurrency.** One executor may serve several kernels at a time: threads that share it, as four sessions
///   with clones of one `Threads::Shared` do, call `threads` and `for_each` at the same moment. An
///   implementation has to work then. It may queue the calls, let each wait for the one before it (a lock), or
///   run a call on its own thread while the others are busy.
/// * **Re-entrancy.** Kernels do not call `for_each` from inside a task, but a callback may: the filter of
///   [`pruned_argmax::argmax`](crate::pruned_argmax::argmax) and the task of
///   [`Parallelism::for_each_mut`](super::Parallelism::for_each_mut) run inside tasks, and what they pass this
///   executor to calls it from there, on any of its threads. An executor in which calls wait for each other
///   would wait for ever: with such a one, callbacks use
///   [`Parallelism::Serial`](super::Parallelism::Serial).
///
/// # What an executor does
///
/// [`Executor::for_each`] calls `task` once with every number from 0 to `tasks - 1`, on any threads and
/// in any order, and returns when the last of them has returned. A panic in a task goes on in the
/// caller, after the other threads have left their tasks.
///
/// * **Lifetime of `task`.** It is borrowed until `for_each` returns or unwinds, and is gone afterwards. Safe code
///   cannot keep it longer. An executor that hands it to long-lived threads extends the borrow by unsafe code
///   and is then responsible: when `for_each` is left, in whatever way, no thread may be inside `task` or call
///   it again.
///
/// An executor in safe code that breaks the rest of this does no harm: nothing is run twice, what it left out is
/// run by the calling thread, and the results are the same bits, whatever numbers of threads it says. If a
/// panic got lost, the kernel panics.
///
/// ```
/// use core::sync::atomic::{AtomicUsize, Ordering};
/// use simdformer_kernels::{
///     Epilogue, Executor, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, gemm,
/// };
///
/// /// Threads that are started for each call. A pool would keep them.
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
/// let mut buffer = vec![0.0; PackedMatrix::len(isa, depth, columns)?];
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
    /// Threads that take part, the calling one included: how finely work is worth cutting. With 1,
    /// nothing is handed out. Asked once per call of a kernel; the answer may change between calls.
    fn threads(&self) -> usize;

    /// Calls `task(0)` to `task(tasks - 1)`, once each, and returns when all have returned. There are at
    /// most 1,024 tasks, each of some microseconds at least; `tasks` is not 0. Several threads may be in this
    /// function at a time.
    fn for_each(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));
}

/// What an executor's threads count for at most, whatever it says.
pub(super) const MOST_THREADS: usize = 1 << 16;

/// Numbers that an executor is handed at most; a number stands for several tasks when there are more.
const MOST_NUMBERS: usize = 1024;

/// Bits of a word of claims.
const BITS: usize = usize::BITS as usize;

/// Runs `task(0)` to `task(tasks - 1)` on `executor`, each exactly once.
///
/// # Panics
/// As a task or the executor does; the executor lost the panic of a task.
pub(super) fn run(executor: &dyn Executor, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    let office = TaskClaims {
        task,
        tasks,
        numbers: tasks.min(MOST_NUMBERS),
        claimed: [const { AtomicUsize::new(0) }; MOST_NUMBERS / BITS],
        done: AtomicUsize::new(0),
    };
    executor.for_each(office.numbers, &|number| office.call(number));
    office.close();
}

/// All tasks of a kernel, and which have been claimed.
struct TaskClaims<'t> {
    task: &'t (dyn Fn(usize) + Sync),
    tasks: usize,
    numbers: usize,
    claimed: [AtomicUsize; MOST_NUMBERS / BITS],
    /// Numbers whose tasks have returned.
    done: AtomicUsize,
}

impl TaskClaims<'_> {
    /// Runs the tasks of `number`, if it is one and nobody else did.
    fn call(&self, number: usize) {
        if number >= self.numbers {
            return;
        }
        let bit = 1 << (number % BITS);
        if self.claimed[number / BITS].fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            return;
        }
        for index in share(self.tasks, self.numbers, number) {
            (self.task)(index);
        }
        // Publishes what the tasks have written to whoever sees the count.
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Runs what nobody has claimed; after that, all tasks are done.
    fn close(&self) {
        if self.done.load(Ordering::Acquire) == self.numbers {
            return;
        }
        (0..self.numbers).for_each(|number| self.call(number));
        // What was claimed and not done has panicked: nothing of safe code runs it any more.
        assert!(
            self.done.load(Ordering::Acquire) == self.numbers,
            "a task panicked and the executor did not pass it on, or it returned before its tasks had"
        );
    }
}
