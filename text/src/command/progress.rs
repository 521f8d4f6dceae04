//! A progress line.

use std::io::Write;
use std::time::{Duration, Instant};

/// The delay between two updates of the line.
const INTERVAL: Duration = Duration::from_millis(200);

/// A progress line that is rewritten at intervals.
pub(crate) struct Progress {
    started: Instant,
    last_update: Instant,
    before: usize,
    watched: bool,
    /// The unit that is counted.
    what: &'static str,
}

impl Progress {
    /// Progress of work that began at `started` and has completed `before` texts; `watched` if a user sees it.
    pub(crate) fn new(started: Instant, before: usize, watched: bool) -> Self {
        Self { started, last_update: started, before, watched, what: "texts" }
    }

    /// The same with another unit than texts.
    #[cfg(feature = "audio")]
    pub(crate) fn of(self, what: &'static str) -> Self {
        Self { what, ..self }
    }

    /// Texts that are complete.
    pub(crate) fn before(&self) -> usize {
        self.before
    }

    /// Counts one more complete text.
    pub(crate) fn done(&mut self, notes: &mut dyn Write) {
        self.before += 1;
        let now = Instant::now();
        if !self.watched || now - self.last_update < INTERVAL {
            return;
        }
        self.last_update = now;
        let seconds = (now - self.started).as_secs_f64();
        let rate = self.before as f64 / seconds.max(1e-9);
        // If progress cannot be written, the write error is ignored too.
        let _ = write!(notes, "\r{} {}, {rate:.1} a second", self.before, self.what);
        let _ = notes.flush();
    }

    /// Erases the line.
    pub(crate) fn end(&self, notes: &mut dyn Write) {
        if self.watched && self.last_update != self.started {
            let _ = write!(notes, "\r{:40}\r", "");
        }
    }
}
