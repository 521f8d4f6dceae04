//! Errors of the tokenizer.

use crate::spm::SpmError;
use core::fmt;
use std::path::PathBuf;

/// An error of reading a tokenizer or of encoding a text.
#[derive(Debug)]
#[non_exhaustive]
pub enum TextError {
    /// A file cannot be read.
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The content of a file is invalid: not JSON, a key of another type, an id out of range.
    File {
        /// The path.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// A SentencePiece file is invalid.
    Spm {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: SpmError,
    },
    /// A tokenizer cannot change, because another one shares its vocabulary.
    Shared,
    /// A directory has no tokenizer files of its family.
    Missing {
        /// The directory.
        directory: PathBuf,
        /// The alternatives, each a file or several files that belong together.
        expected: Vec<String>,
    },
    /// A `model_type` or `tokenizer_class` is unknown.
    Family {
        /// The name in the directory.
        found: String,
        /// The known names.
        known: Vec<&'static str>,
    },
    /// The model does not have the language.
    Language {
        /// The code.
        code: String,
        /// The most similar languages of the model.
        nearest: Vec<String>,
    },
    /// A language was given for a model of one direction.
    NoLanguages {
        /// The code.
        code: String,
    },
    /// The model requires a language.
    LanguageNeeded {
        /// `source` or `target`.
        side: &'static str,
        /// The number of languages of the model.
        languages: usize,
        /// Some of the languages.
        some: Vec<String>,
    },
    /// Two texts were given to a family that encodes single texts.
    NoPairs {
        /// The family.
        found: String,
    },
    /// A text cannot be segmented.
    Text {
        /// The cause.
        reason: String,
    },
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            Self::File { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Spm { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Missing { directory, expected } => {
                write!(f, "{}: expected {}, found none", directory.display(), expected.join(" or "))
            }
            Self::Family { found, known } => {
                write!(f, "expected a tokenizer of {}, found {found:?}", known.join(", "))
            }
            Self::Shared => f.write_str(
                "expected a tokenizer of its own, found one that a translator with another prefix shares",
            ),
            Self::Language { code, nearest } => {
                write!(f, "the model has no language {code:?}; nearest: {}", nearest.join(", "))
            }
            Self::NoLanguages { code } => {
                write!(f, "the model has no languages to choose from, asked for was {code:?}")
            }
            Self::LanguageNeeded { side, languages, some } => write!(
                f,
                "the model has {languages} languages and needs to know the {side} language: {}, ...",
                some.join(", ")
            ),
            Self::NoPairs { found } => write!(
                f,
                "expected a tokenizer of pairs (BERT, DistilBERT, MPNet, RoBERTa, XLM-R), found {found}"
            ),
            Self::Text { reason } => write!(f, "the text cannot be segmented: {reason}"),
        }
    }
}

impl core::error::Error for TextError {}
