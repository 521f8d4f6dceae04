//! Errors of documents.

use super::Format;
use core::fmt;

/// An error of reading or writing a document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocumentError {
    /// The text is not of its format.
    Syntax {
        /// The format.
        format: Format,
        /// The line, from 1.
        line: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// Another number of segments than the document has.
    Segments {
        /// How many the document has.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// The marks of a translated segment do not fit its text.
    Marks {
        /// Which segment, from 0.
        segment: usize,
        /// What is wrong.
        reason: &'static str,
    },
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { format, line, expected } => {
                write!(f, "line {line} of the {format} document: expected {expected}")
            }
            Self::Segments { expected, found } => {
                write!(f, "the document has {expected} segments, {found} were given")
            }
            Self::Marks { segment, reason } => write!(f, "segment {segment}: {reason}"),
        }
    }
}

impl std::error::Error for DocumentError {}
