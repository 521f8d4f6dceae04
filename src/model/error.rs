//! Why a model could not be created.

use super::packed_file_error::PackedError;
use super::weight_dtypes::{WeightDtype, WeightDtypesError};
use crate::checkpoint::{CheckpointError, TensorId};
use crate::config::ConfigError;
use crate::memory::MemoryError;
use core::fmt;
use simdformer_kernels::Error as KernelError;

/// Why a model could not be created. All its memory is freed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModelError {
    /// The checkpoint is missing, invalid or of an unsupported architecture.
    Checkpoint(CheckpointError),
    /// The configuration of a model without a checkpoint is invalid.
    Config(ConfigError),
    /// The environment ([`simdformer_kernels::ISA_VARIABLE`]) names an instruction set that is unavailable or
    /// unknown.
    Isa(KernelError),
    /// The function that writes the weights failed; see [`crate::Model::from_fn`].
    Weights {
        /// The tensor that it was writing.
        role: TensorId,
        /// Its error.
        error: Box<dyn core::error::Error + Send + Sync>,
    },
    /// A written weight is NaN or infinite (in the output bias: NaN or plus infinity).
    NotFinite {
        /// The tensor.
        role: TensorId,
        /// Row-major index of the number in the tensor.
        index: usize,
        /// The number.
        found: f32,
    },
    /// The callback of [`crate::LoadOptions::on_progress`] ended the load.
    Stopped {
        /// Bytes of the checkpoint that were read.
        done: u64,
        /// Total bytes to read.
        total: u64,
    },
    /// A file of packed weights cannot be written or read; see [`crate::Model::open_packed`].
    Packed(PackedError),
    /// The selected dtypes are not valid for the model.
    WeightDtypes(WeightDtypesError),
    /// The matrix of a linear map cannot be stored in its selected dtype.
    Unfit {
        /// The dtype.
        dtype: WeightDtype,
        /// The reason.
        error: KernelError,
    },
    /// A checkpoint cannot have the numbers of a quantized matrix; see [`crate::Model::save`].
    Quantized {
        /// The tensor.
        role: TensorId,
        /// Its dtype.
        dtype: WeightDtype,
    },
    /// The weights do not fit in the address space.
    TooLarge,
    /// The system cannot allocate the packed weights or the staging buffer.
    OutOfMemory {
        /// Bytes requested.
        bytes: usize,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Isa(error) => write!(f, "{}: {error}", simdformer_kernels::ISA_VARIABLE),
            Self::Weights { role, error } => write!(f, "the weights of {role}: {error}"),
            Self::NotFinite { role, index, found } => {
                write!(f, "the weights of {role}: element {index} must be finite, found {found}")
            }
            Self::Stopped { done, total } => {
                write!(f, "loading was stopped after {done} of {total} bytes")
            }
            Self::Packed(error) => error.fmt(f),
            Self::WeightDtypes(error) => error.fmt(f),
            Self::Unfit { dtype, error } => {
                write!(f, "a weight cannot be stored as {dtype}: {error}")
            }
            Self::Quantized { role, dtype } => {
                write!(
                    f,
                    "the weights of {role} must be f32, bf16 or f16 to be saved, found {dtype}"
                )
            }
            Self::TooLarge => f.write_str("the weights do not fit the address space"),
            Self::OutOfMemory { bytes } => {
                write!(f, "the system does not give {bytes} bytes for the weights")
            }
        }
    }
}

impl core::error::Error for ModelError {
    /// The source of the cause; the message already contains the cause itself.
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Checkpoint(error) => error.source(),
            Self::Config(error) => error.source(),
            Self::Isa(error) => error.source(),
            Self::Packed(error) => error.source(),
            Self::Weights { error, .. } => error.source(),
            Self::NotFinite { .. }
            | Self::Stopped { .. }
            | Self::WeightDtypes(_)
            | Self::Unfit { .. }
            | Self::Quantized { .. }
            | Self::TooLarge
            | Self::OutOfMemory { .. } => None,
        }
    }
}

impl From<CheckpointError> for ModelError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

impl From<PackedError> for ModelError {
    fn from(error: PackedError) -> Self {
        Self::Packed(error)
    }
}

impl From<WeightDtypesError> for ModelError {
    fn from(error: WeightDtypesError) -> Self {
        Self::WeightDtypes(error)
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

impl From<KernelError> for ModelError {
    fn from(_: KernelError) -> Self {
        Self::TooLarge
    }
}
