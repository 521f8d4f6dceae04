//! The threads of an object, and how a call waits for them.
//!
//! A pool belongs to one object and to one process: after `fork` the child has no copy of the parent's threads, so it
//! leaks the parent's pool and starts its own at the first call. Nothing starts at import. Locks are held only while
//! Python is attached and never while a thread waits, so that no child of a fork finds one locked.

use crate::errors::Failure;
use crate::signals::{self, Interrupt};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the main thread looks for signals while others compute.
const POLL: Duration = Duration::from_millis(50);

/// A number of threads, started at the first call that needs them.
#[derive(Debug)]
pub(crate) struct Workers {
    threads: usize,
    pool: Mutex<Option<(u32, Arc<ThreadPool>)>>,
}

impl Workers {
    /// `threads` is at least 1.
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads, pool: Mutex::new(None) }
    }

    /// The number of threads that compute at the same time.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// The pool of this process.
    fn pool(&self) -> Result<Arc<ThreadPool>, Failure> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if let Some((owner, pool)) = &*pool
            && *owner == process
        {
            return Ok(Arc::clone(pool));
        }
        let name = |index| format!("simdformer-{index}");
        let new = ThreadPoolBuilder::new().num_threads(self.threads).thread_name(name).build();
        let new = Arc::new(new.map_err(|error| {
            Failure::new("SimdformerError", format!("{} threads: {error}", self.threads))
        })?);
        // The threads of the parent's pool do not exist here: to drop it would wait for them.
        if let Some(parent) = pool.replace((process, Arc::clone(&new))) {
            std::mem::forget(parent);
        }
        Ok(new)
    }

    /// Runs `work` with Python detached, on these threads. In the main thread of Python, Ctrl-C ends it: the
    /// interrupt that `work` receives is set, and when `work` has returned, `KeyboardInterrupt` (or what the
    /// signal handler raised) is raised. Signals do not reach other threads, so these compute `work` themselves
    /// if it needs one thread.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Interrupt) -> R + Send + 'static,
    ) -> PyResult<R> {
        let interrupt = Interrupt::default();
        if !signals::is_main_thread(py)? {
            return Ok(if self.threads == 1 {
                py.detach(|| work(&interrupt))
            } else {
                let pool = self.pool()?;
                py.detach(|| pool.install(|| work(&interrupt)))
            });
        }
        let (sender, mut receiver) = sync_channel(1);
        let theirs = interrupt.clone();
        self.pool()?.spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| work(&theirs)));
            // The receiver waits until something is sent.
            let _ = sender.send(result);
        });
        let mut raised = None;
        loop {
            let received;
            // A receiver can move to a thread, but threads cannot share it.
            (received, receiver) = py.detach(move || (receiver.recv_timeout(POLL), receiver));
            match received {
                Ok(Ok(result)) => return raised.map_or(Ok(result), Err),
                Ok(Err(panic)) => resume_unwind(panic),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = py.check_signals() {
                        interrupt.set();
                        raised.get_or_insert(error);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(
                        Failure::new("InternalError", "a thread ended without a result").into()
                    );
                }
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let pool = self.pool.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((owner, pool)) = pool
            && owner != std::process::id()
        {
            std::mem::forget(pool);
        }
    }
}
