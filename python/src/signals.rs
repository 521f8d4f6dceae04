//! Ctrl-C: which thread sees it, and how a call learns of it.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a call that computes: the call looks at it once per step of the decoder and once per batch of the encoder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the call to end.
    pub(crate) fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the call must end.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether this is the thread in which Python handles signals. After a fork it is the thread that forked.
pub(crate) fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    static MAIN_THREAD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static GET_IDENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let main_thread = MAIN_THREAD.import(py, "threading", "main_thread")?;
    let get_ident = GET_IDENT.import(py, "threading", "get_ident")?;
    let main: Option<u64> = main_thread.call0()?.getattr("ident")?.extract()?;
    let this: u64 = get_ident.call0()?.extract()?;
    Ok(main == Some(this))
}
