//! Errors of a training run.

use super::error::TrainError;
use crate::checkpoint::CheckpointError;
use core::error::Error;
use core::fmt;
use std::io;
use std::path::Path;

/// Why a run cannot begin, resume or be saved. The files on disk are unchanged.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// An error of the trainer or its checkpoint.
    Train(TrainError),
    /// A file operation failed.
    Io {
        /// The path.
        path: String,
        /// The error of the system.
        error: io::Error,
    },
    /// A line of a corpus, or of a list of batches, is invalid.
    Line {
        /// The file.
        file: String,
        /// The line number, from 1.
        line: u64,
        /// What was expected and what was found.
        problem: String,
    },
    /// A corpus has no sentence for training.
    NoSentences {
        /// Its file.
        file: String,
        /// Sentences that were left out as too long.
        too_long: u64,
    },
    /// Words cannot be converted to ids: the vocabulary is missing or broken.
    Vocabulary {
        /// Its file.
        file: String,
        /// What was expected and what was found.
        problem: String,
    },
    /// A file of a saved run is corrupt.
    Broken {
        /// The file.
        file: String,
        /// The expected content.
        expected: String,
        /// The content that was found.
        found: String,
    },
    /// A saved run used a different setting, so it cannot be resumed with the same bits.
    OtherRun {
        /// The state file of the saved run.
        file: String,
        /// The setting.
        setting: &'static str,
        /// The saved value.
        expected: String,
        /// The present value.
        found: String,
    },
    /// Another run, in this process or in another one, has locked the directory. The lock is released when that run
    /// ends.
    DirectoryLocked {
        /// The directory.
        directory: String,
        /// The file that is locked.
        file: String,
    },
    /// A directory has checkpoints, and this run was not resumed from them.
    DirectoryHasCheckpoints {
        /// The directory.
        directory: String,
        /// The steps of its checkpoints, ascending.
        steps: Vec<u64>,
    },
    /// A run is resumed from a checkpoint that is not the latest in its directory. Continuing would mix checkpoints
    /// of two different continuations.
    LaterCheckpoints {
        /// The directory.
        directory: String,
        /// The step from which the run is resumed.
        resumed: u64,
        /// The steps of the later checkpoints, ascending.
        later: Vec<u64>,
    },
    /// The parameters of a trainer differ from those of the checkpoint from which its run is resumed.
    OtherParameters {
        /// The file of the checkpoint that has the checksum.
        file: String,
        /// The checksum of the saved parameters.
        expected: String,
        /// The checksum of the trainer's parameters.
        found: String,
    },
    /// A parameter is not finite. Nothing was written, because a checkpoint with such a value could not be opened.
    NotFinite {
        /// The name of the tensor in the checkpoint.
        tensor: String,
        /// The index of the element, in row order.
        index: usize,
        /// The value.
        found: f32,
    },
    /// A setting of the run is invalid.
    Setting {
        /// Its name.
        setting: &'static str,
        /// The valid values.
        expected: &'static str,
        /// The value of the setting.
        found: String,
    },
    /// The caller's judge failed.
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
            Self::DirectoryLocked { directory, file } => write!(
                f,
                "{directory} is locked by another run: expected no lock on {file}, found one; \
                 wait for the end of that run or choose another directory"
            ),
            Self::DirectoryHasCheckpoints { directory, steps } => write!(
                f,
                "{directory} belongs to another run: expected no checkpoint, found {}; \
                 resume from {} before the directory is set, or choose another directory",
                names(steps),
                names(&steps[steps.len().saturating_sub(1)..])
            ),
            Self::LaterCheckpoints { directory, resumed, later } => write!(
                f,
                "{directory}: expected step-{resumed}, from which the run is resumed, to be the latest checkpoint, \
                 found {} after it; remove what is later, resume from the latest, or choose another directory",
                names(later)
            ),
            Self::OtherParameters { file, expected, found } => write!(
                f,
                "{file}: expected a trainer with the parameters of this checkpoint, checksum {expected}, \
                 found checksum {found}; open the trainer from the same directory"
            ),
            Self::NotFinite { tensor, index, found } => write!(
                f,
                "{tensor}: element {index} must be finite to be saved, found {found}; \
                 nothing was written, and earlier checkpoints are as they were"
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
        // The text of an error includes that of its source, so skip the source.
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

/// The names of the checkpoints of `steps`: all if they are few, otherwise the first and the last.
fn names(steps: &[u64]) -> String {
    const ALL: usize = 6;
    match steps {
        [first, .., last] if steps.len() > ALL => {
            format!("{} checkpoints from step-{first} to step-{last}", steps.len())
        }
        _ => steps.iter().map(|step| format!("step-{step}")).collect::<Vec<_>>().join(", "),
    }
}

/// Converts an I/O error of `path`.
pub(super) fn about(path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.display().to_string();
    move |error| RunError::Io { path, error }
}
