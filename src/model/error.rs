//! Why a model could not be made.

use super::packed_error::PackedError;
use super::weight_dtypes::{WeightDtype, WeightDtypesError};
use crate::checkpoint::{CheckpointError, TensorId};
use crate::config::ConfigError;
use crate::memory::MemoryError;
use core::fmt;
use simdformer_kernels::GemmError;

/// Why a model could not be made. Nothing is left of it then.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModelError {
    /// The checkpoint is missing, broken or of another architecture.
    Checkpoint(CheckpointError),
    /// The configuration of a model whose weights are in no checkpoint does not describe one.
    Config(ConfigError),
    /// The environment ([`simdformer_kernels::ISA_VARIABLE`]) names an instruction set that is not here, or none.
    Isa(simdformer_kernels::IsaError),
    /// Whoever writes the weights gave up, see [`crate::Model::from_fn`].
    Weights {
        /// At which tensor.
        role: TensorId,
        /// Why.
        error: Box<dyn core::error::Error + Send + Sync>,
    },
    /// A weight that was written is NaN or infinite (in the output bias: NaN or plus infinity).
    NotFinite {
        /// The tensor.
        role: TensorId,
        /// Index of the number in the tensor, row after row.
        index: usize,
        /// The number.
        found: f32,
    },
    /// The callback of [`crate::Model::load_with`] ended the load.
    Stopped {
        /// Bytes of the checkpoint that had been read.
        done: u64,
        /// Bytes that there were to read.
        total: u64,
    },
    /// A file of packed weights cannot be written or taken, see [`crate::Model::open_packed`].
    Packed(PackedError),
    /// The forms that were chosen for the weights are not those of a model.
    WeightDtypes(WeightDtypesError),
    /// The matrix of a linear map cannot be stored in the form that was chosen for it.
    Unfit {
        /// The form.
        form: WeightDtype,
        /// Why not.
        error: GemmError,
    },
    /// The weights do not fit the address space.
    TooLarge,
    /// The system does not give the memory for the packed weights, or for what is read or written at a time.
    OutOfMemory {
        /// Bytes asked for.
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
            Self::Unfit { form, error } => {
                write!(f, "a weight cannot be stored as {form}: {error}")
            }
            Self::TooLarge => f.write_str("the weights do not fit the address space"),
            Self::OutOfMemory { bytes } => {
                write!(f, "the system does not give {bytes} bytes for the weights")
            }
        }
    }
}

impl core::error::Error for ModelError {
    /// What lies behind the cause, which the message has already said.
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

impl From<GemmError> for ModelError {
    fn from(_: GemmError) -> Self {
        Self::TooLarge
    }
}
