//! Errors of the core as Python exceptions.
//!
//! The classes are Python's, in `simdformer/errors.py`, because they have several bases and fields, and must survive
//! pickling. A [`Failure`] names the class and the fields; it becomes an exception where Python is attached.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use simdformer::kernels::ISA_VARIABLE;
use simdformer::{Error, ErrorValue};
use simdformer_speech::{Error as SpeechError, Incomplete};
use simdformer_text::Error as TextError;
use simdformer_text::tokenize::Error as TokenizerError;
use simdformer_text::translator::Failure as TextFailure;
use std::io::ErrorKind;

/// An error that is not yet an exception.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The class in `simdformer.errors`.
    class: &'static str,
    message: String,
    fields: Vec<(&'static str, Field)>,
}

/// The value of a field of an exception.
#[derive(Clone, Debug)]
pub(crate) enum Field {
    Text(String),
    Texts(Vec<String>),
    Whole(u64),
    Number(f64),
}

impl From<usize> for Field {
    fn from(number: usize) -> Self {
        Self::Whole(number as u64)
    }
}

impl From<u32> for Field {
    fn from(number: u32) -> Self {
        Self::Whole(number.into())
    }
}

impl From<u64> for Field {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Field {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&ErrorValue> for Field {
    fn from(value: &ErrorValue) -> Self {
        match (value.number(), value.float()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            (None, None) => value.to_string().into(),
        }
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<String>> for Field {
    fn from(texts: Vec<String>) -> Self {
        Self::Texts(texts)
    }
}

impl Failure {
    /// An exception of `class` with a message and no fields.
    pub(crate) fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), fields: Vec::new() }
    }

    /// Adds a field.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Field>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Adds a field if there is a value.
    fn maybe(self, name: &'static str, value: Option<usize>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds the fields `expected` and `found`.
    fn values(self, expected: &ErrorValue, found: &ErrorValue) -> Self {
        self.with("expected", expected).with("found", found)
    }

    /// An argument that is outside its range.
    pub(crate) fn option(
        option: &'static str,
        expected: &str,
        found: impl ToString + Into<Field>,
    ) -> Self {
        let message = format!("{option}: expected {expected}, found {}", found.to_string());
        Self::new("OptionError", message)
            .with("option", option)
            .with("expected", expected)
            .with("found", found)
    }

    /// An array that does not have the layout that the call needs.
    pub(crate) fn input(
        argument: &str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        let (expected, found) = (expected.into(), found.into());
        Self::new("InputError", format!("{argument}: expected {expected}, found {found}"))
            .with("argument", argument)
            .with("expected", expected)
            .with("found", found)
    }

    /// The instance of the class, with its fields as attributes.
    pub(crate) fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = py.import("simdformer.errors")?.getattr(self.class)?;
        let fields = PyDict::new(py);
        for (name, value) in &self.fields {
            match value {
                Field::Text(text) => fields.set_item(name, text)?,
                Field::Texts(texts) => fields.set_item(name, texts)?,
                Field::Whole(number) => fields.set_item(name, number)?,
                Field::Number(number) => fields.set_item(name, number)?,
            }
        }
        class.call((&self.message,), Some(&fields))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match failure.value(py) {
            Ok(value) => Self::from_value(value),
            Err(_) => PyRuntimeError::new_err(failure.message),
        })
    }
}

/// The class and the fields of each kind.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let of = |class: &'static str| Self::new(class, error.to_string());
        let failure = match &error {
            Error::NotFound { operand, .. } => of("ModelNotFoundError").with("path", &**operand),
            Error::Unsupported { operand, .. } if *operand == ISA_VARIABLE => of("IsaError"),
            // A call that needs a decoder.
            error if *error == Error::NO_DECODER => of("OptionError"),
            Error::InvalidOption { operand, expected, found, .. } => {
                of("OptionError").values(expected, found).with("option", &**operand)
            }
            Error::InvalidInput { operand, expected, found, .. } => {
                let failure = of("InputError").values(expected, found);
                if operand.is_empty() { failure } else { failure.with("argument", &**operand) }
            }
            Error::BeyondLimit { operand, limit, expected, found, .. } => {
                let limit = limit.map_or(*operand, |(limit, _)| limit);
                of("LimitError").values(expected, &(*found).into()).with("limit", limit)
            }
            Error::Token { operand, position, vocabulary, found, .. } => of("TokenError")
                .with("option", *operand)
                .maybe("position", *position)
                .with("expected", *vocabulary)
                .with("found", *found),
            Error::InvalidHandle { found, .. } => of("HandleError").with("found", *found),
            // Scores; a number of a file has a value.
            Error::NotFinite { position, found: None, .. } => {
                of("NotFiniteError").maybe("position", *position)
            }
            Error::OutOfMemory { bytes, .. } => of("MemoryPlanError").maybe("bytes", *bytes),
            // `Workers::run_detached` raises `KeyboardInterrupt` in its place.
            Error::Cancelled { .. } => of("CancelledError"),
            Error::Closed => of("ClosedError"),
            Error::Caller { .. } => of("InputError"),
            Error::Kernel(_) => of("InternalError"),
            // A file: corrupt, of another kind or another model, or not readable.
            _ => of("CheckpointError"),
        };
        failure.maybe("index", error.index())
    }
}

impl From<TokenizerError> for Failure {
    fn from(error: TokenizerError) -> Self {
        TextError::from(error).into()
    }
}

/// The classes of the text layer's kinds of errors, for a call that reads a model. What a call reads beside it has classes of
/// its own: [`Failure::of_recording`] and [`Failure::of_document`].
impl From<TextError> for Failure {
    fn from(error: TextError) -> Self {
        let message = error.to_string();
        match error {
            TextError::Io { path, error, .. } if error.kind() == ErrorKind::NotFound => {
                Self::new("ModelNotFoundError", message).with("path", &*path)
            }
            TextError::NotFound { operand, expected, .. } => {
                Self::new("ModelNotFoundError", message)
                    .with("path", &*operand)
                    .with("expected", &*expected)
            }
            TextError::Unsupported { operand, expected, found }
            | TextError::Corrupt { operand, expected, found } => {
                Self::new("CheckpointError", message)
                    .with("setting", &*operand)
                    .with("expected", &*expected)
                    .with("found", &*found)
            }
            TextError::Conflict { .. } | TextError::Io { .. } => {
                Self::new("CheckpointError", message)
            }
            TextError::Language { found, nearest, .. } => {
                let failure = Self::new("LanguageError", message).with("nearest", nearest);
                found.iter().fold(failure, |failure, code| failure.with("found", &**code))
            }
            TextError::InvalidOption { operand, expected, found } => {
                Self::new("OptionError", message)
                    .with("option", &*operand)
                    .with("expected", &*expected)
                    .with("found", &*found)
            }
            TextError::InvalidInput { operand, expected, found, .. } => {
                Self::new("InputError", message)
                    .with("argument", &*operand)
                    .with("expected", &*expected)
                    .with("found", &*found)
            }
            TextError::FailedSentence { index, sentence, source, failure } => {
                let place = Place { text: Some(index), sentence: Some((sentence, &source)) };
                Self::sentence(failure, place)
            }
            // `Workers::run_detached` raises `KeyboardInterrupt` in its place.
            TextError::Cancelled => Self::new("CancelledError", message),
            TextError::Closed => {
                Self::new("ClosedError", "expected an open Batcher, found one that was closed")
            }
            TextError::Model(error) => error.into(),
            _ => Self::new("SimdformerError", message),
        }
    }
}

/// As of the text layer, which has the same kinds.
impl From<SpeechError> for Failure {
    fn from(error: SpeechError) -> Self {
        let message = error.to_string();
        match error {
            SpeechError::NotFound { operand, expected, found } => {
                TextError::NotFound { operand, expected, found }.into()
            }
            SpeechError::Unsupported { operand, expected, found } => {
                TextError::Unsupported { operand, expected, found }.into()
            }
            SpeechError::Corrupt { operand, expected, found } => {
                TextError::Corrupt { operand, expected, found }.into()
            }
            SpeechError::InvalidOption { operand, expected, found } => {
                TextError::InvalidOption { operand, expected, found }.into()
            }
            SpeechError::InvalidInput { operand, expected, found } => {
                TextError::InvalidInput { index: None, operand, expected, found }.into()
            }
            SpeechError::Language { operand, expected, found, nearest } => {
                TextError::Language { operand, expected, found, nearest }.into()
            }
            SpeechError::Io { action, path, error } => TextError::Io { action, path, error }.into(),
            SpeechError::Cancelled => TextError::Cancelled.into(),
            SpeechError::Model(error) => error.into(),
            _ => Self::new("SimdformerError", message),
        }
    }
}

impl Failure {
    /// The class of an error in a call that reads a recording.
    pub(crate) fn of_recording(error: SpeechError) -> Self {
        let message = error.to_string();
        match error {
            SpeechError::Io { action: "read", path, error } => {
                let class = match error.kind() {
                    ErrorKind::NotFound => "AudioNotFoundError",
                    _ => "AudioError",
                };
                Self::new(class, message).with("path", &*path)
            }
            // It was opened before.
            SpeechError::Io { .. } => Self::new("AudioError", message),
            SpeechError::Unsupported { expected, found, .. }
            | SpeechError::Corrupt { expected, found, .. } => {
                Self::new("AudioError", message).with("expected", &*expected).with("found", &*found)
            }
            SpeechError::Incomplete(Incomplete { seconds, .. }) => {
                Self::new("AudioError", message).with("seconds", seconds)
            }
            error => error.into(),
        }
    }

    /// The class of an error in a call that reads a document.
    pub(crate) fn of_document(error: TextError) -> Self {
        match error {
            TextError::InvalidInput { .. }
            | TextError::Corrupt { .. }
            | TextError::Unsupported { .. }
            | TextError::Io { action: "read", .. } => Self::new("DocumentError", error.to_string()),
            TextError::Io { .. } => Self::new("SimdformerError", error.to_string()),
            error => error.into(),
        }
    }
}

/// Which sentence of a call failed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place<'p> {
    /// The index of its text, or of its paragraph, in the call; none if there is one text.
    pub(crate) text: Option<usize>,
    /// Its index among the sentences of the text, and what it is; none if the text is one sentence.
    pub(crate) sentence: Option<(usize, &'p str)>,
}

impl Failure {
    /// Why a sentence has no translation.
    pub(crate) fn sentence(failure: TextFailure, place: Place<'_>) -> Self {
        let reason = failure.to_string();
        let mut message = String::new();
        if let Some(text) = place.text {
            message = format!("texts[{text}]: ");
        }
        if let Some((number, sentence)) = place.sentence {
            let short: String = sentence.chars().take(60).collect();
            message.push_str(&format!("sentence {number}, {short:?}: "));
        }
        message.push_str(&reason);
        let failed = match failure {
            TextFailure::TooLong { tokens, most } => Self::new("LimitError", message)
                .with("limit", "source_tokens")
                .with("expected", most)
                .with("found", tokens),
            TextFailure::UnknownToken { token, vocabulary } => {
                Self::new("TokenError", message).with("expected", vocabulary).with("found", token)
            }
            TextFailure::NotFinite => Self::new("NotFiniteError", message),
            TextFailure::NotSegmented => Self::new("InputError", message).with("argument", "texts"),
            _ => Self::new("SimdformerError", message),
        };
        let mut failed = failed.with("reason", reason);
        if let Some(text) = place.text {
            failed = failed.with("index", text);
        }
        if let Some((number, sentence)) = place.sentence {
            failed = failed.with("sentence", number).with("source", sentence);
        }
        failed
    }
}
