//! What `batch.rs` is built on. `tests/loom` builds the same file on loom's versions of these, which
//! try every interleaving.

pub(super) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
pub(super) use std::sync::Mutex;

/// Rounds in which a waiting thread keeps its core.
const SPINS: u32 = 256;

/// Rounds without a task after which a helper goes: about a millisecond of an idle core. Between
/// the batches of a decoding step lie up to a few tenths of one.
pub(super) const PATIENCE: u32 = SPINS + 4096;

/// Waits a little, in the `round`th round in which there was nothing to do.
pub(super) fn wait(round: u32) {
    if round < SPINS {
        core::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
