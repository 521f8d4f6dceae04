//! Batches of numbered tasks that one thread, the leader, publishes and all may take.
//!
//! This is all the synchronization that is ours. It knows no thread pool: who helps, and on which
//! thread, is `team.rs`'s business. Three rules keep anybody from waiting for ever:
//!
//! - The leader takes tasks itself until none is left, and then waits only for those that others
//!   have *taken*. It never waits for a helper to come, or to go.
//! - A helper waits for nothing: without a task it goes after a bounded number of rounds.
//! - A task that panics is a task that is done. The first panic is kept until all tasks of the batch
//!   are done (those that had not begun are not begun), and then goes on in the leader.
//!
//! And one keeps tasks from being used after their batch: a task is taken by a successful exchange
//! on `left`, a batch is published only when all tasks of the one before are done, and a leader
//! leaves [`Leader::run`] only when its are.
//!
//! The leader takes from the front and helpers from the back, so that each has tasks that lie side
//! by side, and two threads read the same weights in every pass over them.

use super::sync::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Mutex, Ordering, PATIENCE, wait};
use core::cell::Cell;
use core::marker::PhantomData;
use std::any::Any;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;

pub(super) type Task<'t> = &'t (dyn Fn(usize) + Sync);

/// More tasks than a batch can have.
pub(super) const TOO_MANY: usize = u32::MAX as usize;

/// The value of `left` after the last batch.
const CLOSED: u64 = u64::MAX;

/// One batch after another; a [`Leader`] and any number of [`Helper`]s see it.
#[derive(Debug)]
pub(super) struct Batches {
    /// The first task that nobody has taken (high 32 bits), and the one after the last such.
    left: CacheLine<AtomicU64>,
    /// Tasks done.
    done: CacheLine<AtomicUsize>,
    /// `*const Task` of the batch in course.
    task: AtomicPtr<()>,
    panicked: AtomicBool,
    /// What the first panic carries.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Helpers that went before the last batch.
    gone: AtomicUsize,
}

/// Two cache lines, since some CPUs fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct CacheLine<T>(T);

/// Publishes batches. When it is dropped, the helpers go.
#[derive(Debug)]
pub(super) struct Leader<'b> {
    batches: &'b Batches,
    /// One thread at a time: not `Sync`. Tasks cannot publish either, since they are.
    not_sync: PhantomData<Cell<()>>,
}

/// Takes tasks.
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
            gone: AtomicUsize::new(0),
        }
    }

    /// The one leader, and a helper to copy.
    pub(super) fn split(&mut self) -> (Leader<'_>, Helper<'_>) {
        (Leader { batches: self, not_sync: PhantomData }, Helper(self))
    }

    /// Takes a task of the batch in course, if `seen` or a later look shows one.
    fn take(&self, mut seen: u64, end: End) -> Option<usize> {
        loop {
            let (first, last) = (seen >> 32, seen & 0xffff_ffff);
            // Also when closed.
            if first >= last {
                return None;
            }
            let (index, rest) = match end {
                End::Front => (first, seen + (1 << 32)),
                End::Back => (last - 1, seen - 1),
            };
            // Acquires what was stored before the batch was published: whatever others take
            // meanwhile continues that release.
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

    /// Runs task `index`, which this thread has taken.
    fn run(&self, index: usize) {
        if !self.panicked.load(Ordering::Relaxed) {
            let task = self.task.load(Ordering::Relaxed).cast::<Task<'_>>();
            let result = catch_unwind(AssertUnwindSafe(|| {
                // SAFETY: this thread has taken a task of the batch in course, whose leader cannot
                // leave `Leader::run`, where the task lives, before `done` counts this one.
                unsafe { (*task)(index) }
            }));
            if let Err(panic) = result {
                self.keep(panic);
            }
        }
        self.done.0.fetch_add(1, Ordering::Release);
    }

    /// Keeps the first panic of the batch and drops others.
    #[cold]
    fn keep(&self, panic: Box<dyn Any + Send>) {
        let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = if first.is_none() { first.replace(panic) } else { Some(panic) };
        drop(first);
        self.panicked.store(true, Ordering::Relaxed);
        // What it carries may panic in turn, and this task is not counted yet.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(spare))) {
            core::mem::forget(panic);
        }
    }
}

impl Leader<'_> {
    /// Runs `task(0)` to `task(tasks - 1)`, each once, by this thread and its helpers; `share` may
    /// call its argument, which returns when all are done, beside others that help.
    ///
    /// There must be fewer than [`TOO_MANY`] tasks.
    ///
    /// # Panics
    /// As the first task that does, when no task runs any more.
    pub(super) fn run(&self, tasks: usize, task: Task<'_>, share: impl FnOnce(&(dyn Fn() + Sync))) {
        debug_assert!(tasks < TOO_MANY);
        let batches = self.batches;
        batches.done.0.store(0, Ordering::Relaxed);
        batches.task.store((&raw const task).cast::<()>().cast_mut(), Ordering::Relaxed);
        // Publishes the two stores above.
        batches.left.0.store(tasks as u64, Ordering::Release);
        // Whatever becomes of `share`, `task` must outlive its last use.
        let all = All { batches, tasks };
        share(&|| all.finish());
        drop(all);
        if batches.panicked.load(Ordering::Relaxed) {
            batches.panicked.store(false, Ordering::Relaxed);
            let panic = batches.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(panic) = panic {
                resume_unwind(panic);
            }
        }
    }

    /// Helpers that have gone because there was nothing to do for long: they would be welcome again.
    pub(super) fn gone(&self) -> usize {
        self.batches.gone.load(Ordering::Relaxed)
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        // No task is left to be taken.
        self.batches.left.0.store(CLOSED, Ordering::Relaxed);
    }
}

/// All tasks of a batch: none is left when this is dropped.
struct All<'b> {
    batches: &'b Batches,
    tasks: usize,
}

impl All<'_> {
    fn finish(&self) {
        let Self { batches, tasks } = *self;
        while let Some(index) = batches.take(batches.left.0.load(Ordering::Relaxed), End::Front) {
            batches.run(index);
        }
        let mut round = 0;
        while batches.done.0.load(Ordering::Acquire) < tasks {
            wait(round);
            round = round.saturating_add(1);
        }
    }
}

impl Drop for All<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Helper<'_> {
    /// Takes tasks of batch after batch, until the leader has gone or there has been nothing to do
    /// for long, be it for one who was here before.
    pub(super) fn stay(self) {
        let batches = self.0;
        if batches.gone.load(Ordering::Relaxed) > 0 {
            return self.leave();
        }
        let mut round = 0;
        loop {
            let seen = batches.left.0.load(Ordering::Relaxed);
            if let Some(index) = batches.take(seen, End::Back) {
                batches.run(index);
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

    /// Takes tasks of the batch in course until none is left.
    pub(super) fn help(self) {
        let batches = self.0;
        while let Some(index) = batches.take(batches.left.0.load(Ordering::Relaxed), End::Back) {
            batches.run(index);
        }
    }

    /// Goes, so that the leader knows.
    pub(super) fn leave(self) {
        self.0.gone.fetch_add(1, Ordering::Relaxed);
    }
}
