//! Why there is no tokenizer, or no ids.

use crate::spm::SpmError;
use core::fmt;
use std::path::PathBuf;

/// What went wrong between a directory and ids.
#[derive(Debug)]
#[non_exhaustive]
pub enum TextError {
    /// A file cannot be read.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file is not what its name says: JSON that is none, a key of another type, an id outside.
    File {
        /// Which.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// A SentencePiece file that cannot be read.
    Spm {
        /// Which.
        path: PathBuf,
        /// Why.
        error: SpmError,
    },
    /// A directory without the tokenizer files of its family.
    Missing {
        /// Which.
        directory: PathBuf,
        /// What would do, each a file or several that belong together.
        expected: Vec<String>,
    },
    /// A `model_type` or `tokenizer_class` that is not known.
    Family {
        /// What the directory says.
        found: String,
        /// What is known.
        known: Vec<&'static str>,
    },
    /// A language that the model does not have.
    Language {
        /// The code.
        code: String,
        /// The most similar ones that it has.
        nearest: Vec<String>,
    },
    /// A language for a model of one direction, which has none to choose from.
    NoLanguages {
        /// The code.
        code: String,
    },
    /// A model that must be told a language and was not.
    LanguageNeeded {
        /// `source` or `target`.
        side: &'static str,
        /// How many languages it has.
        languages: usize,
        /// Some of them.
        some: Vec<String>,
    },
    /// Two texts for a family that takes one.
    NoPairs {
        /// The family.
        found: String,
    },
    /// A text that cannot be segmented.
    Text {
        /// Why.
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
