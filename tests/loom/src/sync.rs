//! Loom's versions of the items of `kernels/src/parallel/sync.rs`.

pub(super) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub(super) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(super) use loom::thread;

/// A caller looks once for the end of its tasks before it sleeps.
pub(super) const SPINS: u32 = 1;

/// A helper looks for a task once more before it leaves.
pub(super) const PATIENCE: u32 = 1;

/// Loom lets other threads run first.
pub(super) fn wait(_round: u32) {
    loom::thread::yield_now();
}
