//! The text of one translation, part by part while the model writes it.

use crate::errors::{Failure, Place};
use crate::generate::code;
use crate::id_session::{IdSession, PreparedSearch};
use crate::pool::{POLL, Workers};
use crate::translator::Shared;
use core::ops::ControlFlow;
use pyo3::prelude::*;
use simdformer::search::{Finish, Hooks};
use simdformer::{Cancel, Event, SessionError, Source, SourceError, Stop};
use simdformer_text::Tokenizer;
use simdformer_text::translator::Failure as TextFailure;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// What the computing thread sends.
#[derive(Debug)]
enum Part {
    Text(String),
    /// The last one: the session, for the next call, and why the search ended, or that it failed. `None` if it did not run.
    End(Box<IdSession>, Result<Option<Finish>, Failure>),
}

/// An iterator over the parts of a translation.
#[pyclass(frozen, module = "simdformer._simdformer")]
#[derive(Debug)]
pub(crate) struct TokenStream {
    parts: Mutex<Option<Receiver<Part>>>,
    cancel: Cancel,
    shared: Arc<Shared>,
    process: u32,
    truncated: bool,
    /// A number of `simdformer.Finish`, at the end.
    finish: Mutex<Option<u8>>,
}

/// The source of a stream.
#[derive(Debug)]
pub(crate) struct StreamSource {
    pub(crate) ids: Vec<u32>,
    pub(crate) stream: u64,
    /// Whether `ids` are only the first of the sentence.
    pub(crate) truncated: bool,
    /// The sentence, if it is copied: it has no letters, or no word that the model knows.
    pub(crate) copied: Option<String>,
}

impl TokenStream {
    /// Begins to translate `source` on a thread of `workers`.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        workers: &Workers,
        source: StreamSource,
    ) -> Result<Self, Failure> {
        let (sender, receiver) = channel();
        let (cancel, truncated) = (Cancel::new(), source.truncated);
        let tokenizer = Arc::clone(shared.tokenizer()?);
        let prepared = shared.prepared().clone();
        let mut session = shared.id_session()?;
        session.set_cancel(&cancel);
        workers.pool()?.spawn(move || {
            let result = match &source.copied {
                Some(text) => {
                    // As below.
                    let _ = sender.send(Part::Text(text.clone()));
                    Ok(None)
                }
                None => run(&mut session, &prepared, &tokenizer, &source, &sender).map(Some),
            };
            // Without a receiver the iterator is gone, and the session with it.
            let _ = sender.send(Part::End(Box::new(session), result));
        });
        let parts = Mutex::new(Some(receiver));
        let (shared, process) = (Arc::clone(shared), std::process::id());
        Ok(Self { parts, cancel, shared, process, truncated, finish: Mutex::new(None) })
    }

    fn take(&self) -> Option<Receiver<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn run(
    session: &mut IdSession,
    prepared: &PreparedSearch,
    tokenizer: &Tokenizer,
    source: &StreamSource,
    sender: &Sender<Part>,
) -> Result<Finish, Failure> {
    let (target_tokens, search) = prepared.fit(session.model());
    let session = session.plan(1, source.ids.len(), target_tokens, &search)?.session();
    let input = Source {
        prefix: &prepared.prompt,
        forced_bos: prepared.forced_bos,
        stream: source.stream,
        ..Source::new(&source.ids)
    };
    let mut text = tokenizer.stream();
    let mut finish = Finish::Stopped;
    let done = session.generate(&[input], &search, &mut Hooks::default(), &mut |event| {
        let sent = match event {
            Event::Token { token, .. } if token.sequence == 0 => match text.push(token.id) {
                Some(part) => sender.send(Part::Text(part.to_owned())),
                None => Ok(()),
            },
            Event::Done(done) => {
                finish = done.finish;
                Ok(())
            }
            _ => Ok(()),
        };
        if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(Stop::All) }
    });
    match done {
        Err(SessionError::Source {
            error: SourceError::Token { vocabulary, found: token, .. },
            ..
        }) => {
            let failure = TextFailure::UnknownToken { token, vocabulary };
            return Err(Failure::sentence(failure, Place::default()));
        }
        done => done?,
    };
    if finish == Finish::NotFinite {
        return Err(Failure::sentence(TextFailure::NotFinite, Place::default()));
    }
    let rest = text.finish();
    if !rest.is_empty() {
        let _ = sender.send(Part::Text(rest.to_owned()));
    }
    Ok(finish)
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
                Ok(Part::End(session, result)) => {
                    self.shared.give_back_session(*session);
                    let finish = code(result?.unwrap_or(Finish::End));
                    *self.finish.lock().unwrap_or_else(PoisonError::into_inner) = Some(finish);
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
        *self.finish.lock().unwrap_or_else(PoisonError::into_inner)
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
