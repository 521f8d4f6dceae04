//! Why a run cannot begin, go on or be saved.

use super::error::TrainError;
use crate::checkpoint::CheckpointError;
use core::error::Error;
use core::fmt;
use std::io;
use std::path::Path;

/// Why a run cannot begin, go on or be saved. What is on disk is as it was.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The trainer, or its checkpoint, refuses.
    Train(TrainError),
    /// The system refuses a file.
    Io {
        /// Which.
        path: String,
        /// What it says.
        error: io::Error,
    },
    /// A line of a corpus, or of a list of batches, is not what it should be.
    Line {
        /// Of which file.
        file: String,
        /// Counted from 1.
        line: u64,
        /// What was expected, and found.
        problem: String,
    },
    /// A corpus has no sentence that can be learned from.
    NoSentences {
        /// Its file.
        file: String,
        /// Sentences that were left out as too long.
        too_long: u64,
    },
    /// Words cannot be made ids: there is no vocabulary, or a broken one.
    Vocabulary {
        /// Its file.
        file: String,
        /// What was expected, and found.
        problem: String,
    },
    /// A file of a saved run is not as it was written.
    Broken {
        /// The file.
        file: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A saved run was made with another setting, with which it cannot be gone on with to the same bits.
    OtherRun {
        /// Where it is saved.
        file: String,
        /// The setting.
        setting: &'static str,
        /// As saved.
        expected: String,
        /// As now.
        found: String,
    },
    /// A setting of the run is not usable.
    Setting {
        /// Its name.
        setting: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// The caller's own measure of a model failed.
    Judge(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Train(error) => error.fmt(f),
            Self::Io { path, error } => write!(f, "{path}: {error}"),
            Self::Line { file, line, problem } => write!(f, "{file}, line {line}: {problem}"),
            Self::NoSentences { file, too_long: 0 } => write!(f, "{file} has no sentence"),
            Self::NoSentences { file, too_long } => {
                write!(f, "{file} has no sentence to learn from: all {too_long} are too long")
            }
            Self::Vocabulary { file, problem } => write!(f, "{file}: {problem}"),
            Self::Broken { file, expected, found } => {
                write!(f, "{file} is broken: expected {expected}, found {found}")
            }
            Self::OtherRun { file, setting, expected, found } => write!(
                f,
                "{file} was saved by a run with another {setting}: expected {expected}, found {found}"
            ),
            Self::Setting { setting, expected, found } => {
                write!(f, "{setting} must be {expected}, found {found}")
            }
            Self::Judge(error) => error.fmt(f),
        }
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // What the text of an error has said, its source does not say again.
        match self {
            Self::Train(error) => error.source(),
            Self::Judge(error) => error.source(),
            _ => None,
        }
    }
}

impl From<TrainError> for RunError {
    fn from(error: TrainError) -> Self {
        Self::Train(error)
    }
}

impl From<CheckpointError> for RunError {
    fn from(error: CheckpointError) -> Self {
        Self::Train(TrainError::Checkpoint(error))
    }
}

/// The system's complaint about `path`.
pub(super) fn about(path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.display().to_string();
    move |error| RunError::Io { path, error }
}
