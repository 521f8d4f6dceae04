//! Handles Ctrl-C: the first one requests a stop, the second ends the program immediately.

#![allow(unsafe_code, reason = "the system's interface to signals")]

use std::sync::atomic::{AtomicBool, Ordering};

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Whether a stop was requested.
pub(crate) fn stopped() -> bool {
    STOPPED.load(Ordering::SeqCst)
}

#[cfg(unix)]
extern "C" fn remember(signal: libc::c_int) {
    STOPPED.store(true, Ordering::SeqCst);
    // SAFETY: `signal` may be called in a signal handler, and `SIG_DFL` is a valid action.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// From now on, records Ctrl-C and termination requests of the system. On systems without such signals, nothing is
/// recorded, and the last save remains.
pub(crate) fn listen() {
    #[cfg(unix)]
    {
        let handler: extern "C" fn(libc::c_int) = remember;
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: the handler only stores to an atomic and calls `signal`; a signal handler may do both.
            unsafe { libc::signal(signal, handler as libc::sighandler_t) };
        }
    }
}
