//! The text of one translation, part by part while the model writes it.

use crate::errors::{Failure, Place};
use crate::pool::{POLL, Workers};
use crate::translated::{finish_code, notes_of};
use crate::translator::Shared;
use pyo3::prelude::*;
use simdformer::Cancel;
use simdformer_text::translator::Translator as TextTranslator;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// What the computing thread sends.
#[derive(Debug)]
enum Part {
    Text(String),
    /// The last one: the translator, for the next call, and what is known of the translation, or that it failed.
    End(Box<TextTranslator>, Result<End, Failure>),
}

/// A number of `simdformer.Finish`, and the notes.
type End = (u8, Vec<String>);

/// An iterator over the parts of a translation.
#[pyclass(frozen, module = "simdformer._simdformer")]
#[derive(Debug)]
pub(crate) struct TokenStream {
    parts: Mutex<Option<Receiver<Part>>>,
    cancel: Cancel,
    shared: Arc<Shared>,
    process: u32,
    truncated: bool,
    /// At the end.
    end: Mutex<Option<End>>,
}

impl TokenStream {
    /// Begins to translate `text`, one sentence, with `translator` on a thread of `workers`, with the draws of random stream `stream`. `truncated`:
    /// whether it is more than the model takes.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        workers: &Workers,
        mut translator: TextTranslator,
        (text, stream, truncated): (String, u64, bool),
    ) -> Result<Self, Failure> {
        let (sender, receiver) = channel();
        let cancel = Cancel::new();
        translator.set_cancel(cancel.clone());
        translator.set_on_done(|_| ());
        translator.seek(stream);
        let gone = cancel.clone();
        workers.pool()?.spawn(move || {
            let mut on_text = |part: &str| {
                if sender.send(Part::Text(part.to_owned())).is_err() {
                    gone.cancel();
                }
            };
            let found = translator.translate_streamed(&text, &mut on_text);
            let result = found.map_err(Failure::from).and_then(|found| match found.failure {
                Some(failure) => Err(Failure::sentence(failure, Place::default())),
                None => Ok((finish_code(found.finish, None), notes_of(&found).collect())),
            });
            // Without a receiver the iterator is gone, and the translator with it.
            let _ = sender.send(Part::End(Box::new(translator), result));
        });
        let parts = Mutex::new(Some(receiver));
        let (shared, process) = (Arc::clone(shared), std::process::id());
        Ok(Self { parts, cancel, shared, process, truncated, end: Mutex::new(None) })
    }

    fn take(&self) -> Option<Receiver<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl TokenStream {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let Some(mut receiver) = self.take() else { return Ok(None) };
        if self.process != std::process::id() {
            let message =
                "a stream must be read in the process that began it, found a child of a fork";
            return Err(Failure::new("ForkError", message).into());
        }
        loop {
            let received;
            (received, receiver) = py.detach(move || (receiver.recv_timeout(POLL), receiver));
            match received {
                Ok(Part::Text(text)) => {
                    *self.parts.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
                    return Ok(Some(text));
                }
                Ok(Part::End(translator, result)) => {
                    self.shared.give_back_translator(*translator);
                    *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(result?);
                    return Ok(None);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = py.check_signals() {
                        self.cancel.cancel();
                        return Err(error);
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

    /// Whether only the first tokens of the sentence are translated.
    #[getter]
    fn truncated(&self) -> bool {
        self.truncated
    }

    /// Why the translation ended, a number of `simdformer.Finish`; `None` before the end.
    #[getter]
    fn finish(&self) -> Option<u8> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(finish, _)| *finish)
    }

    /// What is to be known about the translation; empty before the end.
    #[getter]
    fn notes(&self) -> Vec<String> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.as_ref().map(|(_, notes)| notes.clone()).unwrap_or_default()
    }

    /// Ends the translation.
    fn close(&self) {
        self.cancel.cancel();
        drop(self.take());
    }
}

impl Drop for TokenStream {
    fn drop(&mut self) {
        self.cancel.cancel();
        if self.process != std::process::id() {
            // The mutex of the channel may be locked by a thread that does not exist here.
            std::mem::forget(self.take());
        }
    }
}
