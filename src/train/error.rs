//! Errors of training.

use crate::checkpoint::{CheckpointError, TensorId};
use crate::config::{ConfigError, Side};
use crate::memory::MemoryError;
use crate::model::ModelError;
use crate::session::SourceError;
use core::fmt;
use simdformer_kernels::Error as KernelError;

/// Why a trainer could not be created or a batch could not be used. A batch is checked before any computation, so
/// after such an error the trainer is unchanged.
#[derive(Debug)]
#[non_exhaustive]
pub enum TrainError {
    /// The checkpoint is missing, broken or of another architecture.
    Checkpoint(CheckpointError),
    /// The config is invalid.
    Config(ConfigError),
    /// The model could not be created.
    Model(ModelError),
    /// A limit is zero.
    ZeroLimit {
        /// Its name.
        limit: &'static str,
    },
    /// A limit is larger than the model's number of positions.
    LimitBeyondModel {
        /// Its name.
        limit: &'static str,
        /// The number of positions of the model.
        expected_at_most: usize,
        /// The requested limit.
        found: usize,
    },
    /// The memory does not fit the address space.
    TooLarge,
    /// The system cannot allocate the memory.
    OutOfMemory {
        /// Requested bytes.
        bytes: usize,
    },
    /// A source is of another kind, ids or features, than the encoder reads, or its features are invalid.
    Source {
        /// The index of the example in the batch.
        sentence: usize,
        /// The problem.
        error: SourceError,
    },
    /// A sentence has no token on one side.
    Empty {
        /// The index of the example in the batch.
        sentence: usize,
        /// The side.
        side: Side,
    },
    /// A sentence is longer than planned.
    TooLong {
        /// The index of the example in the batch.
        sentence: usize,
        /// The side.
        side: Side,
        /// The planned number of tokens, or of positions of features.
        expected_at_most: usize,
        /// The number of tokens of the sentence.
        found: usize,
    },
    /// A token is outside its vocabulary.
    Token {
        /// The index of the example in the batch.
        sentence: usize,
        /// The side.
        side: Side,
        /// The index of the token in the sentence.
        index: usize,
        /// The vocabulary size; ids must be below it.
        vocabulary: usize,
        /// The id.
        found: u32,
    },
    /// More sentences, or tokens of one side, than planned for one pass.
    BeyondPlan {
        /// The exceeded limit.
        limit: &'static str,
        /// The planned number.
        expected_at_most: usize,
        /// The number in the batch.
        found: usize,
    },
    /// A batch without a sentence.
    NoSentences,
    /// The model has no decoder, so the caller computes the loss:
    /// [`Trainer::accumulate_with`](super::Trainer::accumulate_with).
    NoDecoder,
    /// The model has a decoder, so the loss is computed from its target.
    HasDecoder,
    /// A setting is invalid.
    Setting {
        /// Its name.
        setting: &'static str,
        /// The valid values.
        expected: &'static str,
        /// The value of the setting.
        found: f64,
    },
    /// An update without a gradient: nothing was accumulated since the last one.
    NothingAccumulated,
    /// A panic in a thread of the caller ended an update: some parameters are updated and others are not.
    Interrupted,
    /// The saved state belongs to another model: the tensor has another length or is missing.
    State {
        /// The tensor.
        role: TensorId,
        /// Expected number of values.
        expected: usize,
        /// Number of values found.
        found: usize,
    },
    /// A kernel rejected its operands: a bug in this crate.
    Kernel(KernelError),
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Model(error) => error.fmt(f),
            Self::ZeroLimit { limit } => write!(f, "{limit} must be at least 1"),
            Self::LimitBeyondModel { limit, expected_at_most, found } => write!(
                f,
                "{limit} must be at most {expected_at_most}, the model's positions; found {found}"
            ),
            Self::TooLarge => f.write_str("the memory for training does not fit the address space"),
            Self::OutOfMemory { bytes } => write!(f, "the system does not give {bytes} bytes"),
            Self::Source { sentence, error } => write!(f, "sentence {sentence}: {error}"),
            Self::Empty { sentence, side } => {
                write!(f, "sentence {sentence}: the {} has no token", text(*side))
            }
            Self::TooLong { sentence, side, expected_at_most, found } => write!(
                f,
                "sentence {sentence}: the {} may have {expected_at_most} tokens, found {found}",
                text(*side)
            ),
            Self::Token { sentence, side, index, vocabulary, found } => write!(
                f,
                "sentence {sentence}: token {index} of the {} must be below {vocabulary}, found {found}",
                text(*side)
            ),
            Self::BeyondPlan { limit, expected_at_most, found } => {
                write!(f, "{limit} of a pass: planned for {expected_at_most}, found {found}")
            }
            Self::NoSentences => f.write_str("a batch needs at least one sentence"),
            Self::NoDecoder => {
                f.write_str("a model without a decoder learns from a loss of the caller's")
            }
            Self::HasDecoder => {
                f.write_str("a model with a decoder learns from the loss of its targets")
            }
            Self::Setting { setting, expected, found } => {
                write!(f, "{setting} must be {expected}, found {found}")
            }
            Self::NothingAccumulated => {
                f.write_str("no gradient was accumulated since the last update")
            }
            Self::Interrupted => f.write_str(
                "a panic has ended an update, and its parameters are partly updated: \
                 expected a trainer that is opened anew from a checkpoint",
            ),
            Self::State { role, expected, found } => {
                write!(f, "saved state of {role}: expected {expected} numbers, found {found}")
            }
            Self::Kernel(error) => error.fmt(f),
        }
    }
}

fn text(side: Side) -> &'static str {
    match side {
        Side::Encoder => "source",
        Side::Decoder => "target",
    }
}

impl core::error::Error for TrainError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        // The text of an error includes that of its source, so skip the source.
        match self {
            Self::Checkpoint(error) => error.source(),
            Self::Config(error) => error.source(),
            Self::Model(error) => error.source(),
            Self::Kernel(error) => error.source(),
            _ => None,
        }
    }
}

impl From<CheckpointError> for TrainError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

impl From<ConfigError> for TrainError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<ModelError> for TrainError {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

impl From<MemoryError> for TrainError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::TooLarge => Self::TooLarge,
            MemoryError::OutOfMemory { bytes } => Self::OutOfMemory { bytes },
        }
    }
}

impl From<KernelError> for TrainError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}
