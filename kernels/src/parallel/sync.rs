//! The primitives that `batch.rs` and `thread_pool.rs` use. `tests/loom` builds these files with loom's versions of
//! them, which try every interleaving.

pub(super) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(super) use std::thread;

/// Rounds in which a waiting thread spins.
pub(super) const SPINS: u32 = 256;

/// Rounds without a task after which a helper leaves: about a millisecond of an idle core. The gaps between the
/// batches of a decoding step are up to a few tenths of a millisecond.
pub(super) const PATIENCE: u32 = SPINS + 4096;

/// Waits for a short time; `round` is the number of rounds without a task before this one.
pub(super) fn wait(round: u32) {
    if round < SPINS {
        core::hint::spin_loop();
    } else {
        thread::yield_now();
    }
}
