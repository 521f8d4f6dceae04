//! The segments of a recording, one after the other while the model writes them.

use crate::errors::Failure;
use crate::pool::{POLL, Workers};
use crate::recording::Recorded;
use crate::transcriber::Shared;
use core::ops::ControlFlow;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use simdformer::Cancel;
use simdformer::search::Finish;
use simdformer_speech::{RecordingSummary, Segment, TranscribeEvent, Transcriber};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// What the computing thread sends.
enum Part {
    /// The length of the recording, in seconds, if it is known before.
    Length(f64),
    /// The recording is transcribed up to the end of a window.
    Reached(Reached),
    Segment(Segment),
    /// The last one: the transcriber, for the next recording, and the result.
    End(Box<Transcriber>, Result<RecordingSummary, Failure>),
}

/// A window that was transcribed: where it begins and ends, in seconds.
struct Reached {
    start: f64,
    seconds: f64,
    /// Whether its text did not end.
    cut: bool,
    language_probability: Option<f32>,
}

/// An iterator over the segments of a recording.
#[pyclass(frozen, module = "simdformer._simdformer")]
pub(crate) struct SegmentStream {
    parts: Mutex<Option<Receiver<Part>>>,
    cancel: Cancel,
    /// Where the transcriber goes at the end, if it is kept.
    home: Option<Arc<Shared>>,
    process: u32,
}

/// The frames of a second.
const FRAMES: f64 = 100.0;

impl SegmentStream {
    /// Begins to transcribe `recorded`: on a thread of its own if it computes on one, so that the recordings of several
    /// threads of Python do not wait for each other, or in the pool of `workers`.
    pub(crate) fn begin(
        mut transcriber: Transcriber,
        home: Option<Arc<Shared>>,
        workers: &Workers,
        recorded: Recorded,
    ) -> Result<Self, Failure> {
        let (sender, receiver) = channel();
        let cancel = Cancel::new();
        let theirs = cancel.clone();
        let work = move || {
            let result = send_parts(&mut transcriber, &recorded, &theirs, &sender);
            // Without a receiver the iterator is gone, and the transcriber with it.
            let _ = sender.send(Part::End(Box::new(transcriber), result));
        };
        if workers.threads() == 1 {
            let thread = std::thread::Builder::new().name("simdformer-audio".to_owned());
            thread.spawn(work).map_err(|error| {
                Failure::new("SimdformerError", format!("a thread could not start: {error}"))
            })?;
        } else {
            workers.pool()?.spawn(work);
        }
        let parts = Mutex::new(Some(receiver));
        Ok(Self { parts, cancel, home, process: std::process::id() })
    }

    fn take(&self) -> Option<Receiver<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn send_parts(
    transcriber: &mut Transcriber,
    recorded: &Recorded,
    cancel: &Cancel,
    sender: &Sender<Part>,
) -> Result<RecordingSummary, Failure> {
    let mut on_seconds = |seconds| {
        let _ = sender.send(Part::Length(seconds));
    };
    let found = recorded.transcribe(transcriber, cancel, &mut on_seconds, &mut |event| {
        let sent = match event {
            TranscribeEvent::Window(window) => {
                let seconds = |frame: usize| frame as f64 / FRAMES;
                sender.send(Part::Reached(Reached {
                    start: seconds(window.first_frame),
                    seconds: seconds(window.first_frame + window.frames),
                    cut: window.finish != Finish::End,
                    language_probability: window.language_probability,
                }))
            }
            TranscribeEvent::Segment(segment) => sender.send(Part::Segment(segment.clone())),
            _ => Ok(()),
        };
        if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    match found {
        // Reading ends with an error of its own.
        Err(_) if cancel.is_cancelled() => {
            Err(Failure::new("CancelledError", "the transcription was ended"))
        }
        found => found.map_err(Failure::of_recording),
    }
}

#[pymethods]
impl SegmentStream {
    /// The next event, as its name and its fields: `length` (seconds), `reached`, a window, before its `segment`s, and `end` with what is known
    /// of the whole recording. None after the end.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<(&'static str, Bound<'py, PyDict>)>> {
        if self.process != std::process::id() {
            let message =
                "segments must be read in the process that began them, found a child of a fork";
            return Err(Failure::new("ForkError", message).into());
        }
        let Some(mut receiver) = self.take() else { return Ok(None) };
        loop {
            let received;
            (received, receiver) = py.detach(move || (receiver.recv_timeout(POLL), receiver));
            let fields = PyDict::new(py);
            let name = match received {
                Ok(Part::End(transcriber, result)) => {
                    if let Some(home) = &self.home {
                        home.give_back(*transcriber);
                    }
                    let summary = result?;
                    fields.set_item("duration", summary.duration)?;
                    fields.set_item("language", summary.language)?;
                    let incomplete = summary.incomplete.map(|place| place.to_string());
                    fields.set_item("incomplete", incomplete)?;
                    return Ok(Some(("end", fields)));
                }
                Ok(Part::Length(seconds)) => {
                    fields.set_item("seconds", seconds)?;
                    "length"
                }
                Ok(Part::Reached(Reached { start, seconds, cut, language_probability })) => {
                    fields.set_item("start", start)?;
                    fields.set_item("seconds", seconds)?;
                    fields.set_item("cut", cut)?;
                    fields.set_item("language_probability", language_probability)?;
                    "reached"
                }
                Ok(Part::Segment(segment)) => {
                    set_segment(&fields, segment)?;
                    "segment"
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = py.check_signals() {
                        self.cancel.cancel();
                        return Err(error);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(
                        Failure::new("InternalError", "a thread ended without a result").into()
                    );
                }
            };
            *self.parts.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
            return Ok(Some((name, fields)));
        }
    }

    /// Ends the transcription.
    fn close(&self) {
        self.cancel.cancel();
        let parts = self.take();
        if self.process != std::process::id() {
            // The mutex of the channel may be locked by a thread that does not exist here.
            std::mem::forget(parts);
        }
    }
}

/// The fields of `simdformer.Segment`.
fn set_segment(fields: &Bound<'_, PyDict>, segment: Segment) -> PyResult<()> {
    fields.set_item("start", segment.start)?;
    fields.set_item("end", segment.end)?;
    fields.set_item("text", segment.text)?;
    fields.set_item("tokens", segment.tokens)?;
    let words = segment.words.into_iter();
    let words: Vec<_> =
        words.map(|word| (word.start, word.end, word.text, word.probability)).collect();
    fields.set_item("words", words)?;
    fields.set_item("avg_logprob", segment.avg_logprob)?;
    fields.set_item("no_speech_prob", segment.no_speech_prob)?;
    fields.set_item("compression_ratio", segment.compression_ratio)?;
    fields.set_item("temperature", segment.temperature)?;
    fields.set_item("language", segment.language)?;
    fields.set_item("window", segment.window)
}

impl Drop for SegmentStream {
    fn drop(&mut self) {
        self.close();
    }
}
