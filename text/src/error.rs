//! The error of this crate: few kinds that a caller can act on, each with the operand, what was expected and what was
//! found. The kinds of [`simdformer::Error`](https://docs.rs/simdformer) have the same names and fields here.

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
/// use simdformer_text::{Error, Tokenizer};
///
/// let error: Error = Tokenizer::from_dir("no/such/directory").unwrap_err().into();
/// assert!(matches!(&error, Error::NotFound { operand, .. } if **operand == *"no/such/directory"));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file or a directory does not exist, or a directory lacks files of its family.
    NotFound {
        /// Its path.
        operand: Box<str>,
        /// What should be there; alternatives are separated by "or".
        expected: Box<str>,
        /// What is there.
        found: Box<str>,
    },
    /// A valid file, family or format that this build does not support.
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
    /// A valid file or directory belongs to something else: to another process, to another run, or to what was there
    /// before.
    Conflict {
        /// The file or the directory.
        operand: Box<str>,
        /// What this call needs.
        expected: Box<str>,
        /// What was found, and what can be done.
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
        /// Which text or segment of the call, from 0. The operand names it, too.
        index: Option<usize>,
        /// The argument, and the line in it.
        operand: Box<str>,
        /// What the call needs.
        expected: Box<str>,
        /// What was found.
        found: Box<str>,
    },
    /// The model lacks a language, has none to choose from, or needs one.
    Language {
        /// Which: `"language"`, `"source language"` or `"target language"`.
        operand: &'static str,
        /// What the model has.
        expected: Cow<'static, str>,
        /// The code that was asked for, if one was.
        found: Option<Box<str>>,
        /// Languages of the model; if a code was asked for, the most similar ones.
        nearest: Vec<String>,
    },
    /// A sentence has no translation, in a call that gives nothing but text.
    FailedSentence {
        /// The index of its text, which is a paragraph of a document.
        index: usize,
        /// Its index among the sentences of the text that the model read.
        sentence: usize,
        /// The sentence.
        source: String,
        /// Why it has none.
        failure: crate::translator::Failure,
    },
    /// The operating system cannot read or write a file or a stream.
    Io {
        /// `"read"`, `"written"` or another participle.
        action: &'static str,
        /// The file or the stream.
        path: Box<str>,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A flag of the caller ended the call. What it has handed out stays valid.
    Cancelled,
    /// The [`Batcher`](crate::translator::Batcher) or the engine accepts no more sentences, or its thread has ended.
    Closed,
    /// A function of the caller failed.
    Caller {
        /// What the function was to do.
        operand: Box<str>,
        /// Its error.
        error: Box<dyn core::error::Error + Send + Sync>,
    },
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

    /// The operating system cannot read `path`.
    pub(crate) fn unreadable(path: &Path, error: io::Error) -> Self {
        Self::Io { action: "read", path: path_text(path), error }
    }

    /// The operating system cannot write `path`.
    pub(crate) fn unwritable(path: &Path, error: io::Error) -> Self {
        Self::Io { action: "written", path: path_text(path), error }
    }

    /// The stream `name` cannot be read or written.
    pub(crate) fn of_stream(action: &'static str, name: &str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Io { action, path: name.into(), error }
    }

    /// The same error for another sentence. One that cannot be copied keeps its text.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Model(error) => Self::Model(error.clone()),
            Self::Cancelled => Self::Cancelled,
            Self::Closed => Self::Closed,
            other => Self::Caller { operand: "the batch".into(), error: other.to_string().into() },
        }
    }
}

/// A path as the operand of an error.
pub(crate) fn path_text(path: &Path) -> Box<str> {
    path.display().to_string().into()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { operand, expected, found }
            | Self::Unsupported { operand, expected, found }
            | Self::Corrupt { operand, expected, found }
            | Self::Conflict { operand, expected, found }
            | Self::InvalidOption { operand, expected, found }
            | Self::InvalidInput { operand, expected, found, .. } => {
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
            Self::FailedSentence { index, sentence, source, failure } => {
                let short: String = source.chars().take(60).collect();
                write!(f, "text {index}, sentence {sentence}, {short:?}: {failure}")
            }
            Self::Io { action, path, error } => write!(f, "{path}: cannot be {action}: {error}"),
            Self::Cancelled => f.write_str("the call was cancelled"),
            Self::Closed => f.write_str("the batcher is closed"),
            Self::Caller { operand, error } => write!(f, "{operand}: {error}"),
            Self::Model(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {
    /// The source of the cause; the text already contains the cause itself.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => error.source(),
            Self::Caller { error, .. } => error.source(),
            Self::Model(error) => error.source(),
            _ => None,
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
                Self::InvalidInput { index: None, operand, expected, found }
            }
            E::Language { operand, expected, found, nearest } => {
                Self::Language { operand, expected, found, nearest }
            }
            E::Io { action, path, error } => Self::Io { action, path, error },
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

impl From<simdformer_documents::Error> for Error {
    fn from(error: simdformer_documents::Error) -> Self {
        use simdformer_documents::Error as Documents;
        match error {
            Documents::Unsupported { operand, expected, found } => {
                Self::Unsupported { operand, expected, found }
            }
            Documents::Corrupt { operand, expected, found } => {
                Self::Corrupt { operand, expected, found }
            }
            Documents::Conflict { operand, expected, found } => {
                Self::Conflict { operand, expected, found }
            }
            Documents::InvalidOption { operand, expected, found } => {
                Self::InvalidOption { operand, expected, found }
            }
            Documents::InvalidInput { index, operand, expected, found } => {
                Self::InvalidInput { index, operand, expected, found }
            }
            Documents::Io { action, path, error } => Self::Io { action, path, error },
            Documents::Cancelled => Self::Cancelled,
            Documents::Caller { operand, error } => Self::Caller { operand, error },
            // A kind that a later version has: its text says everything.
            other => Self::Caller { operand: "documents".into(), error: other.into() },
        }
    }
}
