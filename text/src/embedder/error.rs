//! Errors of embedders and rerankers, and why a text was not run.

use crate::Error as TextError;
use core::fmt;
use simdformer::{Error, SessionError};

/// Why a model cannot be used for vectors or scores, or why a run ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum EmbedError {
    /// The tokenizer or a file of settings.
    Text(TextError),
    /// The files of the model, its weights or the modules after the transformer.
    Model(Error),
    /// Planning or running the model.
    Session(SessionError),
    /// The flag of [`Embedder::set_cancel`](super::Embedder::set_cancel) or
    /// [`Reranker::set_cancel`](super::Reranker::set_cancel) was set.
    Cancelled,
    /// A prompt was asked for by a name that the directory does not have.
    Prompt {
        /// The name.
        found: String,
        /// The names of the directory.
        known: Vec<String>,
    },
    /// A number of dimensions that is 0 or larger than the width of the vectors.
    Dims {
        /// The width of the vectors.
        most: usize,
        /// The number.
        found: usize,
    },
    /// The model has no classifier.
    NoClassifier,
    /// The classifier has another number of scores than one.
    Labels {
        /// The number.
        found: usize,
    },
    /// Codes of 8 bits were asked for without ranges.
    NoRanges,
    /// A vector and the ranges, or two vectors, differ in width.
    Width {
        /// The width of the first.
        expected: usize,
        /// The width of the second.
        found: usize,
    },
    /// The least value of a range is above the greatest, or one of them is not finite.
    Range {
        /// The dimension, from 0.
        dimension: usize,
        /// The least and the greatest value.
        found: [f32; 2],
    },
}

impl fmt::Display for EmbedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(error) => error.fmt(f),
            Self::Model(error) => error.fmt(f),
            Self::Session(error) => error.fmt(f),
            Self::Cancelled => SessionError::Cancelled.fmt(f),
            Self::Prompt { found, known } if known.is_empty() => {
                write!(f, "the directory has no prompts, asked for was {found:?}")
            }
            Self::Prompt { found, known } => {
                let known = known.join(", ");
                write!(f, "the directory has the prompts {known}, asked for was {found:?}")
            }
            Self::Dims { most, found } => {
                write!(
                    f,
                    "expected from 1 to {most} dimensions, as the vectors have, found {found}"
                )
            }
            Self::NoClassifier => f.write_str(
                "expected a model with a classifier, as cross-encoders have, found none",
            ),
            Self::Labels { found } => {
                write!(f, "expected a classifier of one score to sort by, found {found}")
            }
            Self::NoRanges => f.write_str("int8 and uint8 need the range of each dimension"),
            Self::Width { expected, found } => {
                write!(f, "expected {expected} dimensions, found {found}")
            }
            Self::Range { dimension, found: [least, most] } => {
                write!(f, "dimension {dimension}: expected a range, found {least} to {most}")
            }
        }
    }
}

impl core::error::Error for EmbedError {
    /// The source of the wrapped error; its own text is part of the message.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Text(error) => error.source(),
            Self::Model(error) => error.source(),
            Self::Session(error) => error.source(),
            _ => None,
        }
    }
}

impl From<TextError> for EmbedError {
    fn from(error: TextError) -> Self {
        Self::Text(error)
    }
}

impl From<Error> for EmbedError {
    fn from(error: Error) -> Self {
        Self::Model(error)
    }
}

impl From<SessionError> for EmbedError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Cancelled => Self::Cancelled,
            error => Self::Session(error),
        }
    }
}

/// Why a text or a pair of texts has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRun {
    /// It has no tokens.
    NoTokens,
    /// It has more tokens than the model reads, and must not be cut.
    TooLong {
        /// Its tokens, including special ones.
        tokens: usize,
        /// The most that the model reads.
        most: usize,
    },
    /// It has no tokens beside the prompt, which the pooling leaves out.
    OnlyPrompt {
        /// The tokens of the prompt.
        tokens: usize,
    },
    /// The numbers that the model gives for it are NaN or infinite.
    NotFinite,
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTokens => f.write_str("there are no tokens in it"),
            Self::TooLong { tokens, most } => {
                write!(f, "{tokens} tokens, the model takes {most}")
            }
            Self::OnlyPrompt { tokens } => {
                write!(f, "the prompt has {tokens} tokens, and no other is left to be pooled")
            }
            Self::NotFinite => f.write_str("the model's numbers are NaN or infinite"),
        }
    }
}
