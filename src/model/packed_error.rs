//! What can be wrong with a file of packed weights.

use crate::network::TensorId;
use crate::sanitize::quoted;
use core::fmt;
use simdformer_kernels::Isa;
use std::io;

/// The format that is written and read. Format 1 had no checksums.
pub(super) const FORMAT: u32 = 2;

/// How a file begins; the number of the format is part of it.
pub(super) const MAGIC: &str = "simdformer packed 2 ";

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
    /// It is no such file.
    UnsupportedFormat {
        /// Which file.
        file: String,
        /// How it begins.
        begins: String,
    },
    /// It is such a file, of another version of the format.
    Format {
        /// Which file.
        file: String,
        /// The format that this version reads.
        expected: u32,
        /// The format of the file, in decimal digits.
        found: String,
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
    /// Its bytes are not those that were written.
    Checksum {
        /// Which file.
        file: String,
        /// `"header"` or `"weights"`.
        part: &'static str,
        /// The checksum that was written.
        expected: u64,
        /// The checksum of the bytes that are there.
        found: u64,
    },
    /// A weight is NaN or infinite (in the output bias: NaN or plus infinity).
    NotFinite {
        /// Which file.
        file: String,
        /// The tensor. Where projections share a matrix of floats, the first of them; of what lies between two tensors,
        /// the one before.
        role: TensorId,
        /// The weight, or the scale of a column of bytes.
        found: f32,
    },
}

impl fmt::Display for PackedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, error } => write!(f, "{file}: {error}"),
            Self::UnsupportedFormat { file, begins } => {
                write!(f, "{file} must begin as {MAGIC:?}, found {}", quoted(begins, SHOWN))
            }
            Self::Format { file, expected, found } => write!(
                f,
                "{file} must be packed weights of format {expected}, found format {found}: save it again from the \
                 checkpoint"
            ),
            Self::Isa { file, found, expected } => write!(
                f,
                "{file} must be packed for {expected}, found {}: pack the checkpoint again",
                quoted(found, SHOWN)
            ),
            Self::Model { file, expected, found } => write!(
                f,
                "{file} holds another model: expected {}, found {}",
                quoted(expected, SHOWN),
                quoted(found, SHOWN)
            ),
            Self::Length { file, expected, found } => {
                write!(f, "{file} must have {expected} bytes, found {found}")
            }
            Self::Checksum { file, part, expected, found } => write!(
                f,
                "{file} is damaged: the checksum of its {part} must be {expected:016x}, found {found:016x}"
            ),
            Self::NotFinite { file, role, found } => {
                write!(f, "{file}: a weight of {role} must be finite, found {found}")
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
