//! Batches of numbered tasks. One thread, the leader, publishes them; the leader and its helpers take them.
//!
//! It is independent of the threads: `team.rs` and `thread_pool.rs` decide which threads help. Three rules prevent a
//! thread from waiting forever:
//!
//! - The leader takes tasks itself until none is left, and then waits only for tasks that others have *taken*. It
//!   never waits for a helper to arrive or to leave.
//! - A helper never waits: without a task it leaves after a bounded number of rounds.
//! - A task that panics counts as done. The first panic is stored until all tasks of the batch are done (tasks that
//!   have not begun are skipped), and then continues in the leader.
//!
//! One rule prevents the use of a task after its batch: a thread takes a task by a successful compare-exchange on
//! `left`, a batch is published only when all tasks of the previous one are done, and the leader leaves
//! [`Leader::run_tasks`] only when all tasks of its batch are done.
//!
//! The leader takes tasks from the front and helpers take them from the back. So the tasks of one thread are adjacent,
//! and with two threads each thread reads the same weights in every pass.

use super::sync::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Mutex, Ordering, PATIENCE, wait};
use core::cell::Cell;
use core::marker::PhantomData;
use std::any::Any;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;

pub(super) type Task<'t> = &'t (dyn Fn(usize) + Sync);

/// The most tasks of a batch.
const MAX_TASKS: usize = u32::MAX as usize - 1;

/// The value of `left` after the last batch.
const CLOSED: u64 = u64::MAX;

/// A sequence of batches, shared by one [`Leader`] and any number of [`Helper`]s.
#[derive(Debug)]
pub(super) struct Batches {
    /// The range of tasks that are not taken: the first one (high 32 bits), and the one after the last (low 32 bits).
    left: CacheLine<AtomicU64>,
    /// The number of tasks done.
    done: CacheLine<AtomicUsize>,
    /// `*const Task` of the current batch.
    task: AtomicPtr<()>,
    panicked: AtomicBool,
    /// The payload of the first panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// The number of helpers that left before the last batch.
    departed: AtomicUsize,
}

/// Two cache lines, because some CPUs fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct CacheLine<T>(T);

/// Publishes batches. When it is dropped, the helpers leave.
#[derive(Debug)]
pub(super) struct Leader<'b> {
    batches: &'b Batches,
    /// Makes the type `!Sync`, so only one thread at a time can publish. Tasks cannot publish either, because they are
    /// `Sync`.
    not_sync: PhantomData<Cell<()>>,
}

/// Takes tasks of the batches that the leader publishes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Helper<'b>(&'b Batches);

#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

impl Batches {
    pub(super) fn new() -> Self {
        Self {
            left: CacheLine(AtomicU64::new(0)),
            done: CacheLine(AtomicUsize::new(0)),
            task: AtomicPtr::new(core::ptr::null_mut()),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            departed: AtomicUsize::new(0),
        }
    }

    /// The only leader, and a helper that can be copied.
    pub(super) fn split(&mut self) -> (Leader<'_>, Helper<'_>) {
        (Leader { batches: self, not_sync: PhantomData }, Helper(self))
    }

    /// Takes a task of the current batch, if `seen` or a later load of `left` contains one.
    fn take(&self, mut seen: u64, end: End) -> Option<usize> {
        loop {
            let (first, last) = (seen >> 32, seen & 0xffff_ffff);
            // This is also true after the last batch ([`CLOSED`]).
            if first >= last {
                return None;
            }
            let (index, rest) = match end {
                End::Front => (first, seen + (1 << 32)),
                End::Back => (last - 1, seen - 1),
            };
            // Acquires the stores before the batch was published: exchanges by other threads since then continue the
            // release sequence of that store.
            match self.left.0.compare_exchange_weak(
                seen,
                rest,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(index as usize),
                Err(now) => seen = now,
            }
        }
    }

    /// Takes tasks of the current batch until none is left.
    fn work(&self, end: End) {
        while let Some(index) = self.take(self.left.0.load(Ordering::Relaxed), end) {
            self.run_task(index);
        }
    }

    /// Runs task `index`, which this thread has taken.
    fn run_task(&self, index: usize) {
        if !self.panicked.load(Ordering::Relaxed) {
            let task = self.task.load(Ordering::Relaxed).cast::<Task<'_>>();
            let result = catch_unwind(AssertUnwindSafe(|| {
                // SAFETY: this thread has taken a task of the current batch. Its leader cannot leave `Leader::run_tasks`,
                // which borrows the task, before `done` counts this task.
                unsafe { (*task)(index) }
            }));
            if let Err(panic) = result {
                self.store_panic(panic);
            }
        }
        self.done.0.fetch_add(1, Ordering::Release);
    }

    /// Stores the first panic of the batch and drops the others.
    #[cold]
    fn store_panic(&self, panic: Box<dyn Any + Send>) {
        let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = if first.is_none() { first.replace(panic) } else { Some(panic) };
        drop(first);
        self.panicked.store(true, Ordering::Relaxed);
        // The drop of a payload may panic too, and this task is not counted yet.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(spare))) {
            core::mem::forget(panic);
        }
    }
}

impl Leader<'_> {
    /// Runs `task(0)` to `task(tasks - 1)`, each once, on this thread and its helpers. `share` may run the batch in
    /// parallel with additional helpers. More than [`MAX_TASKS`] tasks run on this thread alone.
    ///
    /// # Panics
    /// With the first panic of a task, when no task runs any more.
    pub(super) fn run_tasks(&self, tasks: usize, task: Task<'_>, share: impl FnOnce(&Batch<'_>)) {
        if tasks > MAX_TASKS {
            return (0..tasks).for_each(task);
        }
        let batches = self.batches;
        batches.done.0.store(0, Ordering::Relaxed);
        batches.task.store((&raw const task).cast::<()>().cast_mut(), Ordering::Relaxed);
        // Publishes the two stores above.
        batches.left.0.store(tasks as u64, Ordering::Release);
        // `task` must outlive its last use, even if `share` panics.
        let batch = Batch { batches, tasks };
        share(&batch);
        drop(batch);
        if batches.panicked.load(Ordering::Relaxed) {
            batches.panicked.store(false, Ordering::Relaxed);
            let panic = batches.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(panic) = panic {
                resume_unwind(panic);
            }
        }
    }

    /// The number of helpers that left because there was no task for long. The leader may call them back.
    pub(super) fn gone(&self) -> usize {
        self.batches.departed.load(Ordering::Relaxed)
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        // No task is left to take.
        self.batches.left.0.store(CLOSED, Ordering::Relaxed);
    }
}

/// The tasks of a batch: all are done when this value is dropped.
pub(super) struct Batch<'b> {
    batches: &'b Batches,
    tasks: usize,
}

impl Batch<'_> {
    /// Takes tasks until none is left.
    pub(super) fn work(&self) {
        self.batches.work(End::Front);
    }

    /// Whether all tasks are done.
    pub(super) fn is_done(&self) -> bool {
        self.batches.done.0.load(Ordering::Acquire) >= self.tasks
    }

    /// Takes tasks until none is left, and waits until all are done.
    pub(super) fn finish(&self) {
        self.work();
        let mut round = 0;
        while !self.is_done() {
            wait(round);
            round = round.saturating_add(1);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Helper<'_> {
    /// Takes tasks of batch after batch, until the leader has closed the batches or until this helper, or an earlier
    /// one, has found no task for long.
    pub(super) fn stay(self) {
        let batches = self.0;
        if batches.departed.load(Ordering::Relaxed) > 0 {
            return self.leave();
        }
        let mut round = 0;
        loop {
            let seen = batches.left.0.load(Ordering::Relaxed);
            if let Some(index) = batches.take(seen, End::Back) {
                batches.run_task(index);
                round = 0;
            } else if seen == CLOSED {
                return;
            } else if round == PATIENCE {
                return self.leave();
            } else {
                wait(round);
                round += 1;
            }
        }
    }

    /// Takes tasks of the current batch until none is left.
    pub(super) fn help(self) {
        self.0.work(End::Back);
    }

    /// Leaves, and counts this for the leader.
    pub(super) fn leave(self) {
        self.0.departed.fetch_add(1, Ordering::Relaxed);
    }
}
