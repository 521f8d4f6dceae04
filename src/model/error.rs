//! Why a model could not be made.

use crate::checkpoint::CheckpointError;
use crate::memory::MemoryError;
use core::fmt;
use simdformer_kernels::GemmError;

/// Why a model could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModelError {
    /// The checkpoint is missing, broken or of another architecture.
    Checkpoint(CheckpointError),
    /// The environment names an instruction set that is not here.
    Isa(simdformer_kernels::IsaError),
    /// The weights do not fit the address space.
    TooLarge,
    /// The system does not give the memory for the packed weights.
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(error) => error.fmt(f),
            Self::Isa(error) => write!(f, "{}: {error}", simdformer_kernels::ISA_VARIABLE),
            Self::TooLarge => f.write_str("the weights do not fit the address space"),
            Self::OutOfMemory { bytes } => {
                write!(f, "the system does not give {bytes} bytes for the packed weights")
            }
        }
    }
}

impl core::error::Error for ModelError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Checkpoint(error) => Some(error),
            Self::Isa(error) => Some(error),
            Self::TooLarge | Self::OutOfMemory { .. } => None,
        }
    }
}

impl From<CheckpointError> for ModelError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

impl From<MemoryError> for ModelError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::TooLarge => Self::TooLarge,
            MemoryError::OutOfMemory { bytes } => Self::OutOfMemory { bytes },
        }
    }
}

impl From<GemmError> for ModelError {
    fn from(_: GemmError) -> Self {
        Self::TooLarge
    }
}
