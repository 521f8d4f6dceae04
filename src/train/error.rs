//! Why a model cannot be trained.

use crate::checkpoint::{CheckpointError, TensorId};
use crate::config::{ConfigError, Side};
use crate::error::KernelError;
use crate::memory::MemoryError;
use crate::model::ModelError;
use crate::session::SourceError;
use core::fmt;
use simdformer_kernels as kernels;

/// Why a trainer could not be made, or a batch not be learned from. What a batch was refused for is found before
/// anything is computed: the trainer is as it was.
#[derive(Debug)]
#[non_exhaustive]
pub enum TrainError {
    /// The checkpoint is missing, broken or of another architecture.
    Checkpoint(CheckpointError),
    /// The configuration describes no model.
    Config(ConfigError),
    /// The model could not be made.
    Model(ModelError),
    /// A limit is zero.
    ZeroLimit {
        /// Its name.
        limit: &'static str,
    },
    /// A limit is more than the positions of the model.
    LimitBeyondModel {
        /// Its name.
        limit: &'static str,
        /// What the model has.
        expected_at_most: usize,
        /// What was asked for.
        found: usize,
    },
    /// The memory does not fit the address space.
    TooLarge,
    /// The system does not give the memory.
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// A source is not what the encoder reads, ids or features, or its features are not usable.
    Source {
        /// Its number in the batch.
        sentence: usize,
        /// What is wrong with it.
        error: SourceError,
    },
    /// A sentence has no token on one side.
    Empty {
        /// Its number in the batch.
        sentence: usize,
        /// Which side.
        side: Side,
    },
    /// A sentence is longer than planned.
    TooLong {
        /// Its number in the batch.
        sentence: usize,
        /// Which side.
        side: Side,
        /// Tokens planned for a sentence, or positions of features.
        expected_at_most: usize,
        /// Its tokens.
        found: usize,
    },
    /// A token is outside its vocabulary.
    Token {
        /// The sentence's number in the batch.
        sentence: usize,
        /// Which side.
        side: Side,
        /// Which of its tokens.
        index: usize,
        /// Ids are below this.
        vocabulary: usize,
        /// The id given.
        found: u32,
    },
    /// More sentences, or tokens of one side, than planned for one pass.
    BeyondPlan {
        /// Of what.
        limit: &'static str,
        /// As many as planned.
        expected_at_most: usize,
        /// As many as given.
        found: usize,
    },
    /// A batch without a sentence.
    NoSentences,
    /// The model has no decoder, so the loss is the caller's: [`Trainer::accumulate_with`](super::Trainer::accumulate_with).
    NoDecoder,
    /// The model has a decoder, so the loss is that of its target.
    HasDecoder,
    /// A setting is not a usable number.
    Setting {
        /// Its name.
        setting: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: f64,
    },
    /// An update without a gradient: nothing was accumulated since the last one.
    NothingAccumulated,
    /// A panic in a thread of the caller's has ended an update: some of the parameters are updated and some are not.
    Interrupted,
    /// State that was saved belongs to another model: the tensor has another length, or is not there.
    State {
        /// The tensor.
        role: TensorId,
        /// Numbers expected.
        expected: usize,
        /// Numbers found.
        found: usize,
    },
    /// A kernel refused its operands: a mistake in this crate.
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
        // What the text of an error has said, its source does not say again.
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

macro_rules! from_kernel {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for TrainError {
            fn from(error: $error) -> Self {
                Self::Kernel(error.into())
            }
        }
    )*};
}

from_kernel!(
    KernelError,
    kernels::ViewError,
    kernels::GemmError,
    kernels::AttentionError,
    kernels::norm::NormError,
    kernels::embedding::EmbeddingError,
    kernels::relative::RelativeError,
    kernels::activation::ActivationError,
    kernels::train::LossError,
    kernels::train::OptimizerError,
    kernels::train::DropoutError,
    kernels::train::ReductionChunksError,
);
