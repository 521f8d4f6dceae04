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
    /// Another run has locked the directory, in this process or in another one. The lock goes when that run ends.
    DirectoryLocked {
        /// The directory.
        directory: String,
        /// The file that is locked.
        file: String,
    },
    /// A directory has checkpoints of which this run is not the continuation.
    DirectoryHasCheckpoints {
        /// The directory.
        directory: String,
        /// The steps of its checkpoints, ascending.
        steps: Vec<u64>,
    },
    /// A run is resumed from a checkpoint that is not the latest in its directory. Going on would leave checkpoints of two
    /// courses of the run beside each other.
    LaterCheckpoints {
        /// The directory.
        directory: String,
        /// The step from which the run is resumed.
        resumed: u64,
        /// The steps of the later checkpoints, ascending.
        later: Vec<u64>,
    },
    /// The parameters of a trainer are not those of the checkpoint from which its run is resumed.
    OtherParameters {
        /// The file of the checkpoint that has the checksum.
        file: String,
        /// The checksum of the parameters that were saved.
        expected: String,
        /// The checksum of those of the trainer.
        found: String,
    },
    /// A parameter is not finite. Nothing was written: a checkpoint with it could not be opened.
    NotFinite {
        /// The name of the tensor in the checkpoint.
        tensor: String,
        /// Which of its elements, row after row.
        index: usize,
        /// What it is.
        found: f32,
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

/// The names of the checkpoints of `steps`: all of a few, or the first and the last.
fn names(steps: &[u64]) -> String {
    const ALL: usize = 6;
    match steps {
        [first, .., last] if steps.len() > ALL => {
            format!("{} checkpoints from step-{first} to step-{last}", steps.len())
        }
        _ => steps.iter().map(|step| format!("step-{step}")).collect::<Vec<_>>().join(", "),
    }
}

/// The system's complaint about `path`.
pub(super) fn about(path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.display().to_string();
    move |error| RunError::Io { path, error }
}
