//! The primitives that `batch.rs` uses. `tests/loom` builds `batch.rs` with loom's versions of them, which try every
//! interleaving.

pub(super) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub(super) use std::sync::Mutex;

/// Rounds in which a waiting thread spins.
const SPINS: u32 = 256;

/// Rounds without a task after which a helper leaves: about a millisecond of an idle core. The gaps between the
/// batches of a decoding step are up to a few tenths of a millisecond.
pub(super) const PATIENCE: u32 = SPINS + 4096;

/// Waits for a short time; `round` is the number of rounds without a task before this one.
pub(super) fn wait(round: u32) {
    if round < SPINS {
        core::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
