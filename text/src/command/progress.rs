//! A line that says how far it is.

use std::io::Write;
use std::time::{Duration, Instant};

/// Between two lines of progress.
const PATIENCE: Duration = Duration::from_millis(200);

/// A line that says how far it is, rewritten now and then.
pub(crate) struct Progress {
    started: Instant,
    said: Instant,
    before: usize,
    watched: bool,
    /// What is counted.
    what: &'static str,
}

impl Progress {
    /// Of work that began at `started` and has done `before` texts; `watched` if somebody looks.
    pub(crate) fn new(started: Instant, before: usize, watched: bool) -> Self {
        Self { started, said: started, before, watched, what: "texts" }
    }

    /// The same, of something else than texts.
    #[cfg(feature = "audio")]
    pub(crate) fn of(self, what: &'static str) -> Self {
        Self { what, ..self }
    }

    /// Texts that are done.
    pub(crate) fn before(&self) -> usize {
        self.before
    }

    /// One more text is done.
    pub(crate) fn done(&mut self, notes: &mut dyn Write) {
        self.before += 1;
        let now = Instant::now();
        if !self.watched || now - self.said < PATIENCE {
            return;
        }
        self.said = now;
        let seconds = (now - self.started).as_secs_f64();
        let rate = self.before as f64 / seconds.max(1e-9);
        // Who cannot be told of progress is not told of that either.
        let _ = write!(notes, "\r{} {}, {rate:.1} a second", self.before, self.what);
        let _ = notes.flush();
    }

    /// The line goes.
    pub(crate) fn end(&self, notes: &mut dyn Write) {
        if self.watched && self.said != self.started {
            let _ = write!(notes, "\r{:40}\r", "");
        }
    }
}
