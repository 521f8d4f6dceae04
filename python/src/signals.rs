//! Ctrl-C: which thread sees it.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

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
