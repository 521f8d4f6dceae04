//! Seconds of wall-clock time, or of CPU time of this thread.

#![allow(unsafe_code)]

use std::time::Instant;

/// Which time is counted.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Clock {
    /// Wall-clock time.
    Wall,
    /// CPU time of the calling thread.
    Thread,
}

impl Clock {
    /// Seconds that `f` takes.
    pub(crate) fn time(self, f: impl FnOnce()) -> f64 {
        match self {
            Self::Wall => {
                let start = Instant::now();
                f();
                start.elapsed().as_secs_f64()
            }
            Self::Thread => {
                let start = thread_seconds();
                f();
                thread_seconds() - start
            }
        }
    }
}

#[cfg(unix)]
fn thread_seconds() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec, which the call fills.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(status, 0, "the system has no CPU clock for threads");
    now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64
}

/// The command line rejects `--cpu-time` here.
#[cfg(not(unix))]
fn thread_seconds() -> f64 {
    f64::NAN
}
