//! The error of this crate: few kinds that a caller can act on, each with the operand, what was expected and what was
//! found.

use core::fmt;
use std::io;
use std::path::Path;

/// Why a call failed.
///
/// Each text is one sentence: the operand, what was expected and what was found. The operand of an error in a file
/// begins with the path of the file.
///
/// ```
/// use simdformer_documents::{Document, Error, Format};
///
/// let error = Document::parse("{\"greeting\": \"Hello", Format::Json).unwrap_err();
/// assert!(matches!(&error, Error::InvalidInput { operand, .. } if operand.contains("line 1")));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A valid file or format that this build does not support.
    Unsupported {
        /// The file or the stream.
        operand: Box<str>,
        /// What is supported.
        expected: Box<str>,
        /// What was found.
        found: Box<str>,
    },
    /// A file is damaged, or contradicts its format or another file.
    Corrupt {
        /// The file.
        operand: Box<str>,
        /// What the format or the other file needs.
        expected: Box<str>,
        /// What was found.
        found: Box<str>,
    },
    /// A valid file belongs to something else: to another process, to another run, or to what was there before.
    Conflict {
        /// The file.
        operand: Box<str>,
        /// What this call needs.
        expected: Box<str>,
        /// What was found, and what can be done.
        found: Box<str>,
    },
    /// An option is outside its range, or not one of the names that the table has.
    InvalidOption {
        /// Its name.
        operand: Box<str>,
        /// The valid values.
        expected: Box<str>,
        /// Its value.
        found: Box<str>,
    },
    /// An argument that is not of its format, does not fit the other arguments, or a call at the wrong time.
    InvalidInput {
        /// Which segment of the call, from 0. The operand names it, too.
        index: Option<usize>,
        /// The argument, and the line in it.
        operand: Box<str>,
        /// What the call needs.
        expected: Box<str>,
        /// What was found.
        found: Box<str>,
    },
    /// The operating system cannot read or write a file or a stream.
    Io {
        /// `"read"` or `"written"`.
        action: &'static str,
        /// The file or the stream.
        path: Box<str>,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A flag of the caller ended the call. What it has handed out stays valid.
    Cancelled,
    /// A function of the caller failed.
    Caller {
        /// What the function was to do.
        operand: Box<str>,
        /// Its error.
        error: Box<dyn core::error::Error + Send + Sync>,
    },
}

/// An error is passed on by many calls, so it stays small.
const _: () = assert!(size_of::<Error>() <= 64);

/// The texts of an error.
fn texts(
    operand: impl Into<Box<str>>,
    expected: impl Into<Box<str>>,
    found: impl fmt::Display,
) -> [Box<str>; 3] {
    [operand.into(), expected.into(), found.to_string().into()]
}

/// Where an error is made, in an order that reads as its text does.
impl Error {
    pub(crate) fn unsupported(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl fmt::Display,
    ) -> Self {
        let [operand, expected, found] = texts(operand, expected, found);
        Self::Unsupported { operand, expected, found }
    }

    pub(crate) fn corrupt(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl fmt::Display,
    ) -> Self {
        let [operand, expected, found] = texts(operand, expected, found);
        Self::Corrupt { operand, expected, found }
    }

    pub(crate) fn conflict(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl fmt::Display,
    ) -> Self {
        let [operand, expected, found] = texts(operand, expected, found);
        Self::Conflict { operand, expected, found }
    }

    pub(crate) fn invalid_option(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl fmt::Display,
    ) -> Self {
        let [operand, expected, found] = texts(operand, expected, found);
        Self::InvalidOption { operand, expected, found }
    }

    pub(crate) fn invalid_input(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl fmt::Display,
    ) -> Self {
        let [operand, expected, found] = texts(operand, expected, found);
        Self::InvalidInput { index: None, operand, expected, found }
    }

    /// The operating system cannot write `path`.
    pub(crate) fn unwritable(path: &Path, error: io::Error) -> Self {
        Self::Io { action: "written", path: path_text(path), error }
    }

    /// The stream `name` cannot be read or written.
    pub(crate) fn of_stream(action: &'static str, name: &str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Io { action, path: name.into(), error }
    }
}

/// A path as the operand of an error.
pub(crate) fn path_text(path: &Path) -> Box<str> {
    path.display().to_string().into()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { operand, expected, found }
            | Self::Corrupt { operand, expected, found }
            | Self::Conflict { operand, expected, found }
            | Self::InvalidOption { operand, expected, found }
            | Self::InvalidInput { operand, expected, found, .. } => {
                write!(f, "{operand}: expected {expected}, found {found}")
            }
            Self::Io { action, path, error } => write!(f, "{path}: cannot be {action}: {error}"),
            Self::Cancelled => f.write_str("the call was cancelled"),
            Self::Caller { operand, error } => write!(f, "{operand}: {error}"),
        }
    }
}

impl core::error::Error for Error {
    /// The source of the cause; the text already contains the cause itself.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => error.source(),
            Self::Caller { error, .. } => error.source(),
            _ => None,
        }
    }
}
