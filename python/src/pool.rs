//! The threads of an object, and how a call waits for them.
//!
//! A pool belongs to one object and to one process: after `fork` the child has no copy of the parent's threads, so it
//! leaks the parent's pool and starts its own at the first call. Nothing starts at import. Locks are held only while
//! Python is attached and never while a thread waits, so that no child of a fork finds one locked.

use crate::errors::Failure;
use crate::signals;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use simdformer::Cancel;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the main thread looks for signals while others compute.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// A call of fewer multiplications than this runs on the calling thread, which sees a signal when the call has ended: some
/// tens of milliseconds. To hand it to another thread would cost more than the call.
const SMALL: u64 = 250_000_000;

/// About the work for a byte or a token of a tokenizer, in multiplications.
pub(crate) const TOKENIZING: usize = 1000;

/// A number of threads, started at the first call that needs them.
#[derive(Debug)]
pub(crate) struct Workers {
    threads: usize,
    pool: Mutex<Option<(u32, Arc<ThreadPool>)>>,
}

/// What is known of a call before it runs.
#[derive(Debug, Default)]
pub(crate) struct Call<'py> {
    /// The most multiplications that it may need.
    pub(crate) work: u64,
    /// Counts what is finished, and a function of Python that is called with the count.
    pub(crate) progress: Option<(Arc<AtomicU64>, Bound<'py, PyAny>)>,
}

impl<'py> Call<'py> {
    /// A call that feeds at most `tokens` tokens to a model of `parameters` parameters.
    pub(crate) fn new(
        tokens: usize,
        parameters: usize,
        progress: Option<Bound<'py, PyAny>>,
    ) -> Self {
        let work = (tokens as u64).saturating_mul(parameters as u64);
        Self { work, progress: progress.map(|callback| (Arc::default(), callback)) }
    }

    /// The counter that the work advances.
    pub(crate) fn counter(&self) -> Option<Arc<AtomicU64>> {
        self.progress.as_ref().map(|(counter, _)| Arc::clone(counter))
    }

    fn report(&self) -> PyResult<()> {
        match &self.progress {
            Some((counter, callback)) => {
                callback.call1((counter.load(Ordering::Relaxed),)).map(drop)
            }
            None => Ok(()),
        }
    }
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
    pub(crate) fn pool(&self) -> Result<Arc<ThreadPool>, Failure> {
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

    /// Runs `work` with Python detached, on these threads. In the main thread of Python, Ctrl-C ends it: the flag that
    /// `work` receives is set, and when `work` has returned, `KeyboardInterrupt` (or what the signal handler raised) is
    /// raised. Signals do not reach other threads, so these wait for their work without looking for any.
    pub(crate) fn run_detached<R: Send + 'static>(
        &self,
        py: Python<'_>,
        call: &Call<'_>,
        work: impl FnOnce(&Cancel) -> R + Send + 'static,
    ) -> PyResult<R> {
        let (result, seen) = self.run_to_end(py, call, work)?;
        seen.map(|()| result)
    }

    /// As [`run_detached`](Self::run_detached). What `work` returned is also given if a signal ended it, with the exception.
    pub(crate) fn run_to_end<R: Send + 'static>(
        &self,
        py: Python<'_>,
        call: &Call<'_>,
        work: impl FnOnce(&Cancel) -> R + Send + 'static,
    ) -> PyResult<(R, PyResult<()>)> {
        let cancel = Cancel::default();
        let silent = call.progress.is_none();
        if silent && self.threads == 1 && call.work <= SMALL {
            return Ok((py.detach(|| work(&cancel)), Ok(())));
        }
        if silent && !signals::is_main_thread(py)? {
            let result = if self.threads == 1 {
                py.detach(|| work(&cancel))
            } else {
                let pool = self.pool()?;
                py.detach(|| pool.install(|| work(&cancel)))
            };
            return Ok((result, Ok(())));
        }
        let (sender, mut receiver) = sync_channel(1);
        let theirs = cancel.clone();
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
            let seen = match received {
                Ok(Ok(result)) => {
                    let seen = raised.map_or_else(|| call.report(), Err);
                    return Ok((result, seen));
                }
                Ok(Err(panic)) => resume_unwind(panic),
                Err(RecvTimeoutError::Timeout) if raised.is_some() => continue,
                Err(RecvTimeoutError::Timeout) => py.check_signals().and_then(|()| call.report()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(
                        Failure::new("InternalError", "a thread ended without a result").into()
                    );
                }
            };
            if let Err(error) = seen {
                cancel.cancel();
                raised = Some(error);
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
