//! Errors of task heads.

use crate::checkpoint::CheckpointError;
use core::fmt;

/// Why a head could not be read or applied.
#[derive(Debug)]
#[non_exhaustive]
pub enum HeadError {
    /// A file of the directory is invalid.
    File {
        /// The path of the file.
        file: String,
        /// The error.
        message: String,
    },
    /// A module, a pooling or an activation that this crate does not support.
    Unknown {
        /// The file that contains the name.
        file: String,
        /// The kind: module, pooling or activation.
        what: &'static str,
        /// The name as written.
        found: String,
        /// The supported names.
        known: &'static str,
    },
    /// A module reads vectors of another length than the output of the module before it.
    Width {
        /// The module, or `pooling` for the model's own width.
        module: String,
        /// Length of the vectors that it gets.
        expected: usize,
        /// Length of the vectors that it reads.
        found: usize,
    },
    /// A tensor has a shape that does not match the tensors around it.
    Shape {
        /// The name of the tensor.
        tensor: String,
        /// The shape that matches.
        expected: Vec<usize>,
        /// The shape found.
        found: Vec<usize>,
    },
    /// Hidden states are empty or contain an incomplete vector.
    Hidden {
        /// Length of one vector.
        width: usize,
        /// Floats given.
        found: usize,
    },
    /// A text has no tokens beside its prompt, which is not pooled.
    OnlyPrompt {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens of the whole text.
        tokens: usize,
    },
    /// A slice of the wrong length.
    Length {
        /// The name of the slice.
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
            Self::OnlyPrompt { prompt, tokens } => write!(
                f,
                "the prompt has {prompt} tokens, which the pooling leaves out, found {tokens} in all"
            ),
            Self::Length { what, expected, found } => {
                write!(f, "{what} must have {expected} floats, found {found}")
            }
            Self::Checkpoint(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for HeadError {
    /// The source of a [`CheckpointError`]; its own text is part of the message.
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
