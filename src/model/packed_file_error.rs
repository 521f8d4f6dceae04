//! Errors of files with packed weights.

use crate::network::TensorId;
use crate::printable_text::quoted;
use core::fmt;
use simdformer_kernels::Isa;
use std::io;

/// The format that this version writes and reads. Format 1 had no checksums, format 2 no digest.
pub(super) const FORMAT: u32 = 3;

/// The first bytes of a file, including the format number.
pub(super) const MAGIC: &str = "simdformer packed 3 ";

/// Number of characters of a file that an error shows.
const SHOWN: usize = 120;

/// Why a file of packed weights cannot be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum PackedError {
    /// The operating system cannot read or write the file.
    File {
        /// Which file.
        file: String,
        /// Why.
        error: io::Error,
    },
    /// The file is not a file of packed weights.
    UnsupportedFormat {
        /// Which file.
        file: String,
        /// Its first bytes.
        begins: String,
    },
    /// The file has another version of the format.
    Format {
        /// Which file.
        file: String,
        /// The format that this version reads.
        expected: u32,
        /// The format of the file, in decimal digits.
        found: String,
    },
    /// The file was packed for an instruction set that is not available, or not the one that the environment names.
    Isa {
        /// Which file.
        file: String,
        /// The instruction set of the file.
        found: String,
        /// The instruction set that the model would use.
        expected: Isa,
    },
    /// The weights were packed in other dtypes than the caller wants.
    Dtypes {
        /// Which file.
        file: String,
        /// The dtypes that the caller wants.
        expected: String,
        /// The dtypes that were requested when the weights were packed.
        found: String,
    },
    /// The file contains the weights of another model, or of the same model in an order that this version does not
    /// support.
    Model {
        /// Which file.
        file: String,
        /// The first line of the header that differs: the expected line.
        expected: String,
        /// The line in the file.
        found: String,
    },
    /// The file is shorter or longer than its header says.
    Length {
        /// Which file.
        file: String,
        /// Expected bytes.
        expected: u64,
        /// Bytes in the file.
        found: u64,
    },
    /// The checksum does not match the contents.
    Checksum {
        /// Which file.
        file: String,
        /// `"header"` or `"weights"`.
        part: &'static str,
        /// The checksum in the file.
        expected: u64,
        /// The checksum of the contents.
        found: u64,
    },
    /// A weight is NaN or infinite (in the output bias: NaN or plus infinity).
    NotFinite {
        /// Which file.
        file: String,
        /// The tensor. If projections share a float matrix, the first of them; for a number between two tensors, the
        /// first of the two.
        role: TensorId,
        /// The weight, or the scale of an int8 column.
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
                "{file} must be packed for {expected}, found {}: pack the checkpoint again (simdformer pack --model DIR OUT \
                 --isa {expected})",
                quoted(found, SHOWN)
            ),
            Self::Dtypes { file, expected, found } => write!(
                f,
                "{file} must be packed in the dtypes {}, found {}: pack the checkpoint again",
                quoted(expected, SHOWN),
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
