//! What can be wrong with a file of packed weights.

use crate::shown::shown;
use core::fmt;
use simdformer_kernels::Isa;
use std::io;

/// How a file begins; the number of the format is part of it.
pub(super) const MAGIC: &str = "simdformer packed 1 ";

/// Characters of a file that an error shows.
const SHOWN: usize = 120;

/// Why a file of packed weights cannot be written or taken.
#[derive(Debug)]
#[non_exhaustive]
pub enum PackedError {
    /// The system does not let it be read or written.
    File {
        /// Which file.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// It is no such file, or one of a format that this version does not know.
    Foreign {
        /// Which file.
        file: String,
        /// How it begins.
        begins: String,
    },
    /// It was packed for an instruction set that is not here, or not the one that the environment names.
    Isa {
        /// Which file.
        file: String,
        /// What it was packed for.
        found: String,
        /// What the model would run on here.
        expected: Isa,
    },
    /// It holds the weights of another model, or of the same in an order that this version does not know.
    Model {
        /// Which file.
        file: String,
        /// The first line of the header that differs, as it is expected.
        expected: String,
        /// The line that was found.
        found: String,
    },
    /// It is shorter or longer than its header says.
    Length {
        /// Which file.
        file: String,
        /// Bytes expected.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
}

impl fmt::Display for PackedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, error } => write!(f, "{file}: {error}"),
            Self::Foreign { file, begins } => {
                write!(f, "{file} must begin as {MAGIC:?}, found {:?}", shown(begins, SHOWN))
            }
            Self::Isa { file, found, expected } => write!(
                f,
                "{file} must be packed for {expected}, found {}: pack the checkpoint again",
                shown(found, SHOWN)
            ),
            Self::Model { file, expected, found } => write!(
                f,
                "{file} holds another model: expected {:?}, found {:?}",
                shown(expected, SHOWN),
                shown(found, SHOWN)
            ),
            Self::Length { file, expected, found } => {
                write!(f, "{file} must have {expected} bytes, found {found}")
            }
        }
    }
}

impl core::error::Error for PackedError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::File { error, .. } => error.source(),
            _ => None,
        }
    }
}
