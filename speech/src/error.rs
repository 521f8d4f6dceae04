//! The error of this crate: few kinds that a caller can act on, each with the operand, what was expected and what was
//! found. The kinds of [`simdformer::Error`] have the same names and fields here.

use crate::incomplete::Incomplete;
use core::fmt;
use std::borrow::Cow;
use std::io;
use std::path::Path;

/// Why a call failed.
///
/// Each text is one sentence: the operand, what was expected and what was found. The operand of an error in a file
/// begins with the path of the file.
///
/// ```
/// use simdformer_speech::{Error, FeatureExtractor};
///
/// let error = FeatureExtractor::from_dir("no/such/directory").unwrap_err();
/// assert!(matches!(&error, Error::NotFound { operand, .. } if **operand == *"no/such/directory"));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A directory does not exist, or lacks a file.
    NotFound {
        /// Its path.
        operand: Box<str>,
        /// What should be there; alternatives are separated by "or".
        expected: Box<str>,
        /// What is there.
        found: Box<str>,
    },
    /// A valid file, model or format that this build does not support.
    Unsupported {
        /// The file, and the key in it.
        operand: Box<str>,
        /// What is supported.
        expected: Box<str>,
        /// What was found.
        found: Box<str>,
    },
    /// A file is damaged, or contradicts its format or another file.
    Corrupt {
        /// The file, and the key or the line in it.
        operand: Box<str>,
        /// What the format or the other file needs.
        expected: Box<str>,
        /// What was found.
        found: Box<str>,
    },
    /// An option is outside its range, or not one of the names that the model has.
    InvalidOption {
        /// Its name.
        operand: Box<str>,
        /// The valid values.
        expected: Box<str>,
        /// Its value.
        found: Box<str>,
    },
    /// An argument that does not fit the model or the other arguments, or a call at the wrong time.
    InvalidInput {
        /// The argument.
        operand: Box<str>,
        /// What the call needs.
        expected: Box<str>,
        /// What was found.
        found: Box<str>,
    },
    /// The model lacks a language, or has none to choose from.
    Language {
        /// Which: `"language"`.
        operand: &'static str,
        /// What the model has.
        expected: Cow<'static, str>,
        /// The code that was asked for, if one was.
        found: Option<Box<str>>,
        /// Languages of the model; if a code was asked for, the most similar ones.
        nearest: Vec<String>,
    },
    /// A recording is cut or damaged: its sound is missing from some time on.
    Incomplete(Incomplete),
    /// The operating system cannot read a file or a stream.
    Io {
        /// `"read"` or `"read on"`.
        action: &'static str,
        /// The file or the stream.
        path: Box<str>,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A flag of the caller ended the call. What it has handed out stays valid.
    Cancelled,
    /// What the model layer reports.
    Model(simdformer::Error),
}

/// An error is passed on by many calls, so it stays small.
const _: () = assert!(size_of::<Error>() <= 112);

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
    pub(crate) fn not_found(
        operand: &Path,
        expected: impl Into<Box<str>>,
        found: impl fmt::Display,
    ) -> Self {
        let [operand, expected, found] = texts(path_text(operand), expected, found);
        Self::NotFound { operand, expected, found }
    }

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
        Self::InvalidInput { operand, expected, found }
    }

    /// The model has no languages, asked for was `code`.
    pub(crate) fn no_languages(code: &str) -> Self {
        let expected = Cow::Borrowed("none, as the model has no languages to choose from");
        Self::Language {
            operand: "language",
            expected,
            found: Some(code.into()),
            nearest: Vec::new(),
        }
    }

    /// The operating system cannot read `path`.
    pub(crate) fn unreadable(path: &Path, error: io::Error) -> Self {
        Self::Io { action: "read", path: path_text(path), error }
    }

    /// The sound of a recording is missing after `seconds`.
    #[cfg(feature = "files")]
    pub(crate) fn incomplete(
        format: &'static str,
        seconds: f64,
        message: impl Into<String>,
    ) -> Self {
        let message = message.into();
        Self::Incomplete(Incomplete { format, seconds, message })
    }

    /// The source of a recording, which was opened before, cannot be read.
    pub(crate) fn not_read(error: io::Error) -> Self {
        Self::Io { action: "read on", path: "the recording".into(), error }
    }
}

/// A path as the operand of an error.
fn path_text(path: &Path) -> Box<str> {
    path.display().to_string().into()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { operand, expected, found }
            | Self::Unsupported { operand, expected, found }
            | Self::Corrupt { operand, expected, found }
            | Self::InvalidOption { operand, expected, found }
            | Self::InvalidInput { operand, expected, found } => {
                if !operand.is_empty() {
                    write!(f, "{operand}: ")?;
                }
                write!(f, "expected {expected}, found {found}")
            }
            Self::Language { operand, expected, found, nearest } => {
                write!(f, "{operand}: expected {expected}, found ")?;
                let listed = match found {
                    Some(code) => write!(f, "{code:?}").map(|()| "nearest")?,
                    None => f.write_str("none").map(|()| "some of them")?,
                };
                match &nearest[..] {
                    [] => Ok(()),
                    nearest => write!(f, "; {listed}: {}", nearest.join(", ")),
                }
            }
            Self::Incomplete(missing) => missing.fmt(f),
            Self::Io { action, path, error } => write!(f, "{path}: cannot be {action}: {error}"),
            Self::Cancelled => f.write_str("the call was cancelled"),
            Self::Model(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {
    /// The source of the cause; the text already contains the cause itself.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => error.source(),
            Self::Model(error) => error.source(),
            _ => None,
        }
    }
}

impl From<simdformer::Error> for Error {
    fn from(error: simdformer::Error) -> Self {
        match error {
            simdformer::Error::Cancelled { progress: None } => Self::Cancelled,
            error => Self::Model(error),
        }
    }
}

impl From<simdformer_tokenize::Error> for Error {
    fn from(error: simdformer_tokenize::Error) -> Self {
        use simdformer_tokenize::Error as E;
        match error {
            E::NotFound { operand, expected, found } => Self::NotFound { operand, expected, found },
            E::Unsupported { operand, expected, found } => {
                Self::Unsupported { operand, expected, found }
            }
            E::Corrupt { operand, expected, found } => Self::Corrupt { operand, expected, found },
            E::InvalidInput { operand, expected, found } => {
                Self::InvalidInput { operand, expected, found }
            }
            E::Language { operand, expected, found, nearest } => {
                Self::Language { operand, expected, found, nearest }
            }
            E::Io { action, path, error } => Self::Io { action, path, error },
        }
    }
}

impl From<Incomplete> for Error {
    fn from(missing: Incomplete) -> Self {
        Self::Incomplete(missing)
    }
}
