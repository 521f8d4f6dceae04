//! What cannot be done, and what to call instead.

use candle_core::DType;
use std::fmt;

/// Why an op failed, as a [`candle_core::Error`] prints it. Nothing has been written.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OpError {
    /// An operand is not f32.
    DType {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// What it is.
        found: DType,
    },
    /// An operand has too few or too many dimensions.
    Rank {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// The dimensions that it should have.
        expected: &'static str,
        /// How many it has.
        found: usize,
    },
    /// A dimension has another length than the op needs.
    Dimension {
        /// The op.
        op: &'static str,
        /// Which dimension of which operand.
        dimension: &'static str,
        /// Its length, and why.
        expected: (usize, &'static str),
        /// The length found.
        found: usize,
    },
    /// The heads of the query are not a multiple of those of key and value.
    HeadGroups {
        /// Heads of the query.
        query: usize,
        /// Heads of key and value.
        key: usize,
    },
    /// There is not one length for each sequence.
    Lengths {
        /// Whose lengths.
        operand: &'static str,
        /// Sequences in the batch.
        expected: usize,
        /// Lengths given.
        found: usize,
    },
    /// A sequence is said to be longer than its tensor.
    Length {
        /// Whose length.
        operand: &'static str,
        /// The sequence.
        sequence: usize,
        /// Tokens of the tensor.
        expected: usize,
        /// The length given.
        found: usize,
    },
    /// Elements that are to be written share memory.
    Overlap {
        /// The op.
        op: &'static str,
    },
    /// A layout reaches beyond its storage.
    Storage {
        /// The op.
        op: &'static str,
        /// Elements that the layout reaches.
        expected: usize,
        /// Elements of the storage.
        found: usize,
    },
    /// A size overflows.
    TooLarge {
        /// The op.
        op: &'static str,
    },
    /// A model or layer has something that is not computed here.
    Unsupported {
        /// What it has.
        found: String,
        /// What is computed.
        expected: &'static str,
    },
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DType { op, operand, found } => write!(
                f,
                "{op}: the {operand} must be f32, found {}; convert it with `.to_dtype(DType::F32)`",
                found.as_str()
            ),
            Self::Rank { op, operand, expected, found } => write!(
                f,
                "{op}: the {operand} must be {expected}, found {found} dimensions; `.reshape(..)` it"
            ),
            Self::Dimension { op, dimension, expected: (expected, reason), found } => {
                write!(f, "{op}: {dimension} must be {expected}, {reason}, found {found}")
            }
            Self::HeadGroups { query, key } => write!(
                f,
                "attention: {query} query heads are not a multiple of {key} key heads; give key and \
                 value a number of heads that divides {query}"
            ),
            Self::Lengths { operand, expected, found } => write!(
                f,
                "attention: {found} {operand} lengths for {expected} sequences; give one for each"
            ),
            Self::Length { operand, sequence, expected, found } => write!(
                f,
                "attention: sequence {sequence} is said to have {found} {operand} tokens, but the \
                 tensor has {expected}; give a length from 0 to {expected}"
            ),
            Self::Overlap { op } => write!(
                f,
                "{op}: the destination is broadcast, so its elements share memory; call \
                 `.contiguous()` on it first"
            ),
            Self::Storage { op, expected, found } => write!(
                f,
                "{op}: the layout reaches {expected} elements, the storage has {found}; call \
                 `.contiguous()` on the tensor first"
            ),
            Self::TooLarge { op } => write!(f, "{op}: a size overflows; split the batch"),
            Self::Unsupported { found, expected } => {
                write!(f, "{found} is not computed here; expected {expected}")
            }
        }
    }
}

impl std::error::Error for OpError {}

impl From<OpError> for candle_core::Error {
    fn from(error: OpError) -> Self {
        Self::wrap(error)
    }
}
