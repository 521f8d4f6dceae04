//! Ctrl-C: the first is remembered, the second ends the program at once.

#![allow(unsafe_code, reason = "the system's interface to signals")]

use std::sync::atomic::{AtomicBool, Ordering};

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Whether somebody wants it to end.
pub(crate) fn stopped() -> bool {
    STOPPED.load(Ordering::SeqCst)
}

#[cfg(unix)]
extern "C" fn remember(signal: libc::c_int) {
    STOPPED.store(true, Ordering::SeqCst);
    // SAFETY: setting a signal's action is allowed in a handler, and the default is always one.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Remembers Ctrl-C, and being asked to end by the system, from now on. Where there are no such signals, nothing is
/// remembered: the last save is what is left.
pub(crate) fn listen() {
    #[cfg(unix)]
    {
        let handler: extern "C" fn(libc::c_int) = remember;
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: the handler stores to an atomic and calls `signal`, both of which a handler may.
            unsafe { libc::signal(signal, handler as libc::sighandler_t) };
        }
    }
}
