//! Loom's versions of what `kernels/src/parallel/sync.rs` gives.

pub(super) use loom::sync::Mutex;
pub(super) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// A helper looks again once before it goes.
pub(super) const PATIENCE: u32 = 1;

/// Loom lets the others run first.
pub(super) fn wait(_round: u32) {
    loom::thread::yield_now();
}
