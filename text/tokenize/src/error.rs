//! The error of this crate: few kinds that a caller can act on, each with the operand, what was expected and what was
//! found.

use core::fmt;
use std::borrow::Cow;
use std::io;
use std::path::Path;

/// Why a call failed. A caller that has errors of its own can name every kind.
///
/// Each text is one sentence: the operand, what was expected and what was found. The operand of an error in a file
/// begins with the path of the file.
///
/// ```
/// use simdformer_tokenize::{Error, Tokenizer};
///
/// let error = Tokenizer::from_dir("no/such/directory").unwrap_err();
/// assert!(matches!(&error, Error::NotFound { operand, .. } if **operand == *"no/such/directory"));
/// ```
#[derive(Debug)]
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
    /// A valid file or family that this build does not support.
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
    /// An argument that does not fit the tokenizer.
    InvalidInput {
        /// The argument.
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
    /// The operating system cannot read a file.
    Io {
        /// `"read"`.
        action: &'static str,
        /// The file.
        path: Box<str>,
        /// The error of the operating system.
        error: io::Error,
    },
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

    pub(crate) fn invalid_input(
        operand: impl Into<Box<str>>,
        expected: impl Into<Box<str>>,
        found: impl fmt::Display,
    ) -> Self {
        let [operand, expected, found] = texts(operand, expected, found);
        Self::InvalidInput { operand, expected, found }
    }

    /// A text that is too long to be segmented, `found` bytes.
    pub(crate) fn too_long(most: usize, found: impl fmt::Display) -> Self {
        let expected = format!("at most {most} bytes after normalization");
        Self::invalid_input("text", expected, format_args!("{found}: it cannot be segmented"))
    }

    /// The model lacks the language `code`.
    pub(crate) fn no_language(code: &str, nearest: Vec<String>) -> Self {
        let expected = Cow::Borrowed("one of the model's languages");
        Self::Language { operand: "language", expected, found: Some(code.into()), nearest }
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

    /// The model has several languages, and no code was given.
    pub(crate) fn language_needed(
        operand: &'static str,
        expected: String,
        some: Vec<String>,
    ) -> Self {
        Self::Language { operand, expected: expected.into(), found: None, nearest: some }
    }

    /// The operating system cannot read `path`.
    pub(crate) fn unreadable(path: &Path, error: io::Error) -> Self {
        Self::Io { action: "read", path: path_text(path), error }
    }

    /// The same error in the file or the part `outer`.
    pub(crate) fn inside(self, outer: impl fmt::Display) -> Self {
        let inside = |operand: Box<str>| match &*operand {
            "" => outer.to_string().into(),
            operand => format!("{outer}: {operand}").into_boxed_str(),
        };
        match self {
            Self::Unsupported { operand, expected, found } => {
                Self::Unsupported { operand: inside(operand), expected, found }
            }
            Self::Corrupt { operand, expected, found } => {
                Self::Corrupt { operand: inside(operand), expected, found }
            }
            other => other,
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
            Self::Io { action, path, error } => write!(f, "{path}: cannot be {action}: {error}"),
        }
    }
}

impl core::error::Error for Error {
    /// The source of the cause; the text already contains the cause itself.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => error.source(),
            _ => None,
        }
    }
}
