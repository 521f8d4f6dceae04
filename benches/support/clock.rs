//! Seconds: of the wall, or of this thread alone.

#![allow(unsafe_code)]

use std::time::Instant;

/// What to count.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Clock {
    /// Time that passes.
    Wall,
    /// Time that the calling thread runs.
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

fn thread_seconds() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that the call fills.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(status, 0, "the system has no CPU clock for threads");
    now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64
}
