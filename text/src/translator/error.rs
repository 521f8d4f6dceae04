//! Errors that end a call.

use super::translation::Failure;
use crate::Error as TextError;
use crate::document::DocumentError;
use core::fmt;
use simdformer::search::SearchError;
use simdformer::{Error, SessionError};
use std::io;

/// Why a call failed. What concerns one sentence only is a [`Failure`] of its translation instead.
#[derive(Debug)]
#[non_exhaustive]
pub enum TranslateError {
    /// The tokenizer: a language that the model does not have, or a text that it cannot segment.
    Text(TextError),
    /// The model cannot be read.
    Model(Error),
    /// The session: no memory, or a model without a decoder.
    Session(SessionError),
    /// The search options are invalid.
    Search(SearchError),
    /// A document is not of its format.
    Document(DocumentError),
    /// A stream.
    Io(io::Error),
    /// A sentence has no translation, in a call that gives nothing but text.
    FailedSentence {
        /// The index of its text, which is a paragraph of a document.
        text: usize,
        /// Its index among the sentences of the text that the model read.
        sentence: usize,
        /// The sentence.
        source: String,
        /// Why it has none.
        failure: Failure,
    },
    /// The flag of [`Translator::set_cancel`](super::Translator::set_cancel) was set.
    Cancelled,
    /// The [`Batcher`](super::Batcher) accepts no more sentences, or its thread has ended.
    Closed,
}

impl fmt::Display for TranslateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(error) => error.fmt(f),
            Self::Model(error) => error.fmt(f),
            Self::Session(error) => error.fmt(f),
            Self::Search(error) => error.fmt(f),
            Self::Document(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::FailedSentence { text, sentence, source, failure } => {
                let short: String = source.chars().take(60).collect();
                write!(f, "text {text}, sentence {sentence}, {short:?}: {failure}")
            }
            Self::Cancelled => SessionError::Cancelled.fmt(f),
            Self::Closed => f.write_str("the batcher is closed"),
        }
    }
}

impl std::error::Error for TranslateError {}

impl TranslateError {
    /// The same error for another sentence.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Session(error) => Self::Session(error.clone()),
            Self::Search(error) => Self::Search(*error),
            Self::Cancelled => Self::Cancelled,
            Self::Closed => Self::Closed,
            other => Self::Io(io::Error::other(other.to_string())),
        }
    }
}

impl From<TextError> for TranslateError {
    fn from(error: TextError) -> Self {
        Self::Text(error)
    }
}

impl From<Error> for TranslateError {
    fn from(error: Error) -> Self {
        Self::Model(error)
    }
}

impl From<SessionError> for TranslateError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Cancelled => Self::Cancelled,
            error => Self::Session(error),
        }
    }
}

impl From<SearchError> for TranslateError {
    fn from(error: SearchError) -> Self {
        Self::Search(error)
    }
}

impl From<DocumentError> for TranslateError {
    fn from(error: DocumentError) -> Self {
        Self::Document(error)
    }
}

impl From<io::Error> for TranslateError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
