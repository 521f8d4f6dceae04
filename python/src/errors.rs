//! Errors of the core as Python exceptions.
//!
//! The classes are Python's, in `simdformer/errors.py`, because they have several bases and fields, and must survive
//! pickling. A [`Failure`] names the class and the fields; it becomes an exception where Python is attached.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use simdformer::kernels::ISA_VARIABLE;
use simdformer::search::SearchError;
use simdformer::{Error, KernelError, SessionError, SourceError};
use simdformer_text::Error as TextError;
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

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        Self::new("InternalError", error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::NotFound { operand, .. } => {
                Self::new("ModelNotFoundError", message).with("path", &*operand)
            }
            Error::Unsupported { operand, .. } if *operand == *ISA_VARIABLE => {
                Self::new("IsaError", message)
            }
            Error::InvalidOption { operand, expected, found } => Self::new("OptionError", message)
                .with("option", &*operand)
                .with("expected", &*expected)
                .with("found", &*found),
            Error::InvalidInput { operand, expected, found, .. } => {
                Self::new("InputError", message)
                    .with("argument", &*operand)
                    .with("expected", &*expected)
                    .with("found", &*found)
            }
            Error::OutOfMemory { bytes: Some(bytes), .. } => {
                Self::new("MemoryPlanError", message).with("bytes", bytes)
            }
            Error::OutOfMemory { bytes: None, .. } => Self::new("MemoryPlanError", message),
            Error::Cancelled { .. } => Self::new("CancelledError", message),
            Error::Kernel(error) => error.into(),
            _ => Self::new("CheckpointError", message),
        }
    }
}

/// The classes of the text layer's kinds of errors, for a call that reads a model. What a call reads beside it has classes of
/// its own: [`Failure::of_document`].
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
            TextError::Unsupported { .. }
            | TextError::Corrupt { .. }
            | TextError::Conflict { .. }
            | TextError::Io { .. } => Self::new("CheckpointError", message),
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
            // `Workers::run` raises `KeyboardInterrupt` in its place.
            TextError::Cancelled => Self::new("CancelledError", message),
            TextError::Closed => {
                Self::new("ClosedError", "expected an open Batcher, found one that was closed")
            }
            TextError::Model(error) => error.into(),
            TextError::Session(error) => error.into(),
            _ => Self::new("SimdformerError", message),
        }
    }
}

impl Failure {
    /// The class of an error in a call that reads a document.
    pub(crate) fn of_document(error: TextError) -> Self {
        match error {
            TextError::InvalidInput { .. } => Self::new("DocumentError", error.to_string()),
            TextError::Io { .. } => Self::new("SimdformerError", error.to_string()),
            error => error.into(),
        }
    }
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        let message = error.to_string();
        match error {
            SearchError::BeyondLimit { setting, expected_at_most, found, .. }
            | SearchError::TooMany { setting, expected_at_most, found } => {
                Self::new("OptionError", message)
                    .with("option", setting)
                    .with("expected", expected_at_most)
                    .with("found", found)
            }
            SearchError::Number { setting, expected, found } => Self::new("OptionError", message)
                .with("option", setting)
                .with("expected", expected)
                .with("found", found),
            SearchError::NotFinite { position, .. } => {
                Self::new("NotFiniteError", message).with("position", position)
            }
            SearchError::Zero { setting } => {
                Self::new("OptionError", message).with("option", setting).with("found", 0u32)
            }
            SearchError::Token { setting, vocabulary, found } => Self::new("TokenError", message)
                .with("option", setting)
                .with("expected", vocabulary)
                .with("found", found),
            _ => Self::new("OptionError", message),
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let message = error.to_string();
        let limit = |limit: &str, expected: usize, found: usize| {
            Self::new("LimitError", message.clone())
                .with("limit", limit)
                .with("expected", expected)
                .with("found", found)
        };
        match error {
            SessionError::LimitBeyondModel { limit: name, expected_at_most, found }
            | SessionError::BeyondPlan { limit: name, expected_at_most, found }
            | SessionError::OptionBeyondPlan { limit: name, expected_at_most, found, .. } => {
                limit(name, expected_at_most, found)
            }
            SessionError::LimitBelow { limit: name, expected_at_least, found, .. } => {
                limit(name, expected_at_least, found)
            }
            SessionError::ZeroLimit { limit: name } => limit(name, 1, 0),
            SessionError::NoFreeSentence { expected_at_most, found } => {
                limit("sentences", expected_at_most, found)
            }
            SessionError::NoFreeHypothesis { beams, .. } => limit("beams", beams, beams + 1),
            SessionError::OutOfMemory { bytes } => {
                Self::new("MemoryPlanError", message).with("bytes", bytes)
            }
            SessionError::TooLarge => Self::new("MemoryPlanError", message),
            SessionError::Token { index, vocabulary, found } => Self::new("TokenError", message)
                .with("position", index)
                .with("expected", vocabulary)
                .with("found", found),
            SessionError::Source { index, error } => {
                Self::source(error, message).with("index", index)
            }
            SessionError::UnknownSentence { found }
            | SessionError::UnknownHypothesis { found }
            | SessionError::RepeatedHypothesis { found } => {
                Self::new("HandleError", message).with("found", found)
            }
            SessionError::Rewind { expected_at_most, found } => {
                limit("length", expected_at_most, found)
            }
            SessionError::Layer { layers: most, found }
            | SessionError::Head { heads: most, found } => limit("layer or head", most, found),
            // `Workers::run` raises `KeyboardInterrupt` in its place.
            SessionError::Cancelled => Self::new("CancelledError", message),
            SessionError::NoDecoder => Self::new("OptionError", message),
            SessionError::Search(error) => error.into(),
            SessionError::Kernel(error) => error.into(),
            _ => Self::new("InputError", message),
        }
    }
}

impl Failure {
    /// One refused source.
    pub(crate) fn source(error: SourceError, message: String) -> Self {
        match error {
            SourceError::BeyondPlan { limit, expected_at_most, found } => {
                Self::new("LimitError", message)
                    .with("limit", limit)
                    .with("expected", expected_at_most)
                    .with("found", found)
            }
            SourceError::Token { index, vocabulary, found } => Self::new("TokenError", message)
                .with("position", index)
                .with("expected", vocabulary)
                .with("found", found),
            _ => Self::new("InputError", message),
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
