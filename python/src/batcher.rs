//! Sentences from any threads in one running batch: the class behind `simdformer.Batcher`.
//!
//! The decoding thread never waits for Python: it puts events into a queue, which one thread of Python empties.

use crate::errors::{Failure, Place};
use crate::loaded;
use crate::options;
use crate::translated::{finish_code, notes_of};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use simdformer::kernels::ThreadPool;
use simdformer::search::Finish;
use simdformer::{Cancel, Threads};
use simdformer_text::Error;
use simdformer_text::translator::{BatchEvent, BatchRequest, Batcher as TextBatcher, Translator};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest time without a look at the state of the interpreter.
const WAIT: Duration = Duration::from_millis(200);

/// An event of a sentence, and its number.
type Reply = (u64, BatchEvent);

/// The native half of `simdformer.Batcher`.
#[pyclass(frozen, module = "simdformer._simdformer")]
#[derive(Debug)]
pub(crate) struct Batcher {
    /// The process that has the decoding thread.
    process: u32,
    /// `None` after `close`. The locks are held only while Python is attached.
    batcher: Mutex<Option<TextBatcher>>,
    cancels: Mutex<HashMap<u64, Cancel>>,
    sender: Mutex<Option<Sender<Reply>>>,
    receiver: Mutex<Option<Receiver<Reply>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a sentence ended (a number of `simdformer.Finish`), its score, whether its source was cut, and its notes.
type End = (u8, f32, bool, Vec<String>);

/// The number of a sentence, the kind of the event (`text`, `done`, `stopped` or `failed`), a text, an exception, and
/// what is known of a sentence that is done.
type PyReply<'py> = (u64, &'static str, String, Option<Bound<'py, PyAny>>, Option<End>);

#[pymethods]
impl Batcher {
    #[new]
    #[pyo3(signature = (path, *, isa, dtype, threads, options))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        isa: Option<&str>,
        dtype: Option<&str>,
        threads: usize,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let loaded = loaded::open(py, &path, isa, dtype)?;
        let (options, planning, _) = options::translator(options, loaded.model.config())?;
        let workers = match threads {
            1 => Threads::Serial,
            threads => {
                let pool = ThreadPool::new(threads);
                let pool = pool.map_err(|error| {
                    Failure::new("SimdformerError", format!("{threads} threads: {error}"))
                })?;
                Threads::Shared(Arc::new(pool))
            }
        };
        let engine = planning.engine(&loaded.model).threads(workers).build();
        let tokenizer = Arc::clone(loaded.tokenizer()?);
        let translator = Translator::new(engine.map_err(Failure::from)?, tokenizer, options);
        let batcher =
            TextBatcher::new(&translator.map_err(Failure::from)?).map_err(Failure::from)?;
        // Python waits for a place in the queue itself, so that a task does not block its loop.
        batcher.set_capacity(usize::MAX);
        let (sender, receiver) = channel();
        Ok(Self {
            process: std::process::id(),
            batcher: Mutex::new(Some(batcher)),
            cancels: Mutex::default(),
            sender: Mutex::new(Some(sender)),
            receiver: Mutex::new(Some(receiver)),
        })
    }

    /// Submits a sentence under a number of the caller.
    #[pyo3(signature = (number, text, *, source, target, stream, pieces))]
    fn submit(
        &self,
        number: u64,
        text: &str,
        source: Option<&str>,
        target: Option<&str>,
        stream: u64,
        pieces: bool,
    ) -> PyResult<()> {
        let sender = lock(&self.sender).clone();
        let batcher = lock(&self.batcher);
        let (Some(batcher), Some(sender)) = (batcher.as_ref(), sender) else {
            return Err(Failure::from(Error::Closed).into());
        };
        let request = BatchRequest { text, source, target, stream };
        // Before the sentence can end, so that `replies` finds it.
        let mut cancels = lock(&self.cancels);
        let cancel = batcher.submit_with(request, move |event| {
            if pieces || !matches!(event, BatchEvent::Text(_)) {
                // Nothing receives after `close`.
                drop(sender.send((number, event)));
            }
        });
        cancels.insert(number, cancel.map_err(Failure::from)?);
        Ok(())
    }

    /// Ends a sentence at the next step.
    fn cancel(&self, number: u64) {
        if let Some(cancel) = lock(&self.cancels).get(&number) {
            cancel.cancel();
        }
    }

    /// The events since the last call. Waits for the first; empty when nothing happened for a while, `None` when the batcher
    /// is closed and all events were returned.
    fn replies<'py>(&self, py: Python<'py>) -> PyResult<Option<Vec<PyReply<'py>>>> {
        let Some(receiver) = lock(&self.receiver).take() else { return Ok(None) };
        let ((first, more), receiver) = py.detach(move || {
            let first = receiver.recv_timeout(WAIT);
            // What happened in the same step comes together.
            let more: Vec<Reply> = receiver.try_iter().collect();
            ((first, more), receiver)
        });
        let replies = match first {
            Ok(first) => core::iter::once(first).chain(more).collect(),
            Err(RecvTimeoutError::Timeout) => more,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        };
        *lock(&self.receiver) = Some(receiver);
        let reply = |(number, event)| self.reply(py, number, event);
        Ok(Some(replies.into_iter().map(reply).collect::<PyResult<_>>()?))
    }

    /// The number of sentences that wait or are decoded.
    fn unfinished(&self) -> usize {
        lock(&self.batcher).as_ref().map_or(0, TextBatcher::len)
    }

    /// Accepts no more sentences. With `wait` those that were submitted are done first, otherwise they end.
    fn close(&self, py: Python<'_>, wait: bool) {
        if self.process != std::process::id() {
            return self.abandon();
        }
        let batcher = lock(&self.batcher).take();
        lock(&self.sender).take();
        py.detach(move || {
            if let Some(batcher) = batcher {
                if wait {
                    batcher.close();
                } else {
                    drop(batcher);
                }
            }
        });
    }

    /// Gives up a batcher of the parent process, in which its thread runs: nothing is waited for or freed.
    fn abandon(&self) {
        core::mem::forget(lock(&self.batcher).take());
        core::mem::forget(lock(&self.sender).take());
        core::mem::forget(lock(&self.receiver).take());
    }
}

impl Batcher {
    fn reply<'py>(
        &self,
        py: Python<'py>,
        number: u64,
        event: BatchEvent,
    ) -> PyResult<PyReply<'py>> {
        let failure = match event {
            BatchEvent::Text(text) => return Ok((number, "text", text, None, None)),
            BatchEvent::Done(found) => match found.failure {
                None => {
                    lock(&self.cancels).remove(&number);
                    let stopped = found.finish == Some(Finish::Stopped);
                    let kind = if stopped { "stopped" } else { "done" };
                    let finish = finish_code(found.finish, None);
                    let end = (finish, found.score, found.truncated, notes_of(&found).collect());
                    return Ok((number, kind, found.text, None, Some(end)));
                }
                Some(failure) => Failure::sentence(failure, Place::default()),
            },
            BatchEvent::Failed(error) => error.into(),
            other => Failure::new("InternalError", format!("an event is unknown: {other:?}")),
        };
        lock(&self.cancels).remove(&number);
        Ok((number, "failed", String::new(), Some(failure.value(py)?), None))
    }
}

impl Drop for Batcher {
    /// In a child of a fork nothing is freed: the decoding thread is in the parent.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            self.abandon();
        }
    }
}
