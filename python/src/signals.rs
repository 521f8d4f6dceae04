//! Ctrl-C: which thread sees it, and how a call learns of it.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a call that computes: the call looks at it once per step of the decoder and once per batch of the encoder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks the call to end.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the call must end.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether this is the thread in which Python handles signals. After a fork it is the thread that forked.
pub(crate) fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    static THREADING: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let threading = THREADING.get_or_try_init(py, || py.import("threading").map(Bound::unbind))?;
    let threading = threading.bind(py);
    let main: Option<u64> = threading.call_method0("main_thread")?.getattr("ident")?.extract()?;
    let this: u64 = threading.call_method0("get_ident")?.extract()?;
    Ok(main == Some(this))
}
