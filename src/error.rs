//! Errors of kernels.

use core::fmt;
#[cfg(feature = "train")]
use simdformer_kernels::activation::ActivationError;
use simdformer_kernels::embedding::EmbeddingError;
use simdformer_kernels::norm::NormError;
use simdformer_kernels::position::PositionError;
use simdformer_kernels::pruned_argmax::PrunedArgmaxError;
use simdformer_kernels::relative::RelativeError;
use simdformer_kernels::softmax::SoftmaxError;
#[cfg(feature = "train")]
use simdformer_kernels::train::{DropoutError, LossError, OptimizerError, ReductionChunksError};
use simdformer_kernels::{AttentionError, GemmError, ViewError};

/// An error of a kernel, or a scratch of a probe that is too short ([`KernelError::TraceScratch`]).
///
/// Requests are checked before kernels are called, so an error of a kernel is a bug in this crate. It is an error and
/// not a panic, so that a service keeps running.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum KernelError {
    /// A view does not fit its slice.
    View(ViewError),
    /// GEMM.
    Gemm(GemmError),
    /// Attention.
    Attention(AttentionError),
    /// LayerNorm.
    Norm(NormError),
    /// Embedding lookup.
    Embedding(EmbeddingError),
    /// Position encoding.
    Position(PositionError),
    /// The table of relative positions.
    Relative(RelativeError),
    /// Softmax.
    Softmax(SoftmaxError),
    /// The pruned argmax.
    PruningTable(PrunedArgmaxError),
    /// The loss.
    #[cfg(feature = "train")]
    Loss(LossError),
    /// An activation, or its derivative.
    #[cfg(feature = "train")]
    Activation(ActivationError),
    /// An optimizer.
    #[cfg(feature = "train")]
    Optimizer(OptimizerError),
    /// Dropout.
    #[cfg(feature = "train")]
    Dropout(DropoutError),
    /// Reduction chunks.
    #[cfg(feature = "train")]
    ReductionChunks(ReductionChunksError),
    /// The scratch of a probe is too short. The caller must pass a longer one.
    TraceScratch {
        /// Floats needed, see [`crate::Plan::trace_floats`].
        expected: usize,
        /// Floats given.
        found: usize,
    },
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::View(error) => error.fmt(f),
            Self::Gemm(error) => error.fmt(f),
            Self::Attention(error) => error.fmt(f),
            Self::Norm(error) => error.fmt(f),
            Self::Embedding(error) => error.fmt(f),
            Self::Position(error) => error.fmt(f),
            Self::Relative(error) => error.fmt(f),
            Self::Softmax(error) => error.fmt(f),
            Self::PruningTable(error) => error.fmt(f),
            #[cfg(feature = "train")]
            Self::Loss(error) => error.fmt(f),
            #[cfg(feature = "train")]
            Self::Activation(error) => error.fmt(f),
            #[cfg(feature = "train")]
            Self::Optimizer(error) => error.fmt(f),
            #[cfg(feature = "train")]
            Self::Dropout(error) => error.fmt(f),
            #[cfg(feature = "train")]
            Self::ReductionChunks(error) => error.fmt(f),
            Self::TraceScratch { expected, found } => {
                write!(f, "the probe needs {expected} floats of scratch; found {found}")
            }
        }
    }
}

impl core::error::Error for KernelError {}

macro_rules! from_kernel {
    ($($error:ident => $variant:ident),*) => {$(
        impl From<$error> for KernelError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}

from_kernel!(
    ViewError => View,
    GemmError => Gemm,
    AttentionError => Attention,
    NormError => Norm,
    EmbeddingError => Embedding,
    PositionError => Position,
    RelativeError => Relative,
    SoftmaxError => Softmax,
    PrunedArgmaxError => PruningTable
);

#[cfg(feature = "train")]
from_kernel!(
    LossError => Loss,
    ActivationError => Activation,
    OptimizerError => Optimizer,
    DropoutError => Dropout,
    ReductionChunksError => ReductionChunks
);
