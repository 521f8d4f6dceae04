//! Why hidden states cannot be turned into anything.

use crate::checkpoint::CheckpointError;
use core::fmt;

/// Why a head could not be read, or not be applied.
#[derive(Debug)]
#[non_exhaustive]
pub enum HeadError {
    /// A file of the directory is not what it should be.
    File {
        /// Its path.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// A module, a pooling or an activation that this crate does not know.
    Unknown {
        /// The file that names it.
        file: String,
        /// What it is.
        what: &'static str,
        /// As written.
        found: String,
        /// Those that are known.
        known: &'static str,
    },
    /// A module reads vectors of another length than the one before it gives.
    Width {
        /// The module, or `pooling` for the model's own width.
        module: String,
        /// What it is given.
        expected: usize,
        /// What it reads.
        found: usize,
    },
    /// A tensor of another shape than its neighbors need.
    Shape {
        /// Its name.
        tensor: String,
        /// The shape that fits.
        expected: Vec<usize>,
        /// The shape found.
        found: Vec<usize>,
    },
    /// Hidden states that are no whole vectors, or none.
    Hidden {
        /// Length of one vector.
        width: usize,
        /// Floats given.
        found: usize,
    },
    /// A slice of the wrong length.
    Length {
        /// Which.
        what: &'static str,
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// Tensors could not be read.
    Checkpoint(CheckpointError),
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, message } => write!(f, "{file}: {message}"),
            Self::Unknown { file, what, found, known } => {
                write!(
                    f,
                    "{file}: {what} \"{found}\" is not supported; the supported ones are {known}"
                )
            }
            Self::Width { module, expected, found } => {
                write!(f, "{module} reads vectors of {found} numbers, but is given {expected}")
            }
            Self::Shape { tensor, expected, found } => {
                write!(f, "{tensor} must be of shape {expected:?}, found {found:?}")
            }
            Self::Hidden { width, found } => write!(
                f,
                "hidden states must be one or more vectors of {width} numbers, found {found} numbers"
            ),
            Self::Length { what, expected, found } => {
                write!(f, "{what} must have {expected} floats, found {found}")
            }
            Self::Checkpoint(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for HeadError {
    /// What lies behind the cause, which the message has already said.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Checkpoint(error) => error.source(),
            _ => None,
        }
    }
}

impl From<CheckpointError> for HeadError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}
