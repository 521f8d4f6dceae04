//! The errors of attention.

use core::fmt;

/// Why a call was rejected. Nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttentionError {
    /// Query and output have different shapes `[tokens, heads, head_dim]`.
    OutputShape {
        /// Shape of the query.
        expected: [usize; 3],
        /// Shape of the output.
        found: [usize; 3],
    },
    /// Key and value must have the same heads and head size as the cache, or as each other.
    KeyValueShape {
        /// Heads and head size.
        expected: (usize, usize),
        /// Heads and head size.
        found: (usize, usize),
    },
    /// Key and value have different numbers of tokens.
    ValueTokens {
        /// Tokens of the key.
        expected: usize,
        /// Tokens of the value.
        found: usize,
    },
    /// The head sizes of query and key differ.
    HeadDim {
        /// Head size of the key.
        expected: usize,
        /// Head size of the query.
        found: usize,
    },
    /// The query's heads are not a multiple of the key's.
    HeadGroups {
        /// Heads of the query.
        query: usize,
        /// Heads of the key.
        key: usize,
    },
    /// A sequence ends after the last query.
    QueryRange {
        /// Index of the sequence.
        sequence: usize,
        /// Tokens of the query.
        tokens: usize,
        /// End of the sequence.
        found: usize,
    },
    /// Two sequences contain the same query rows.
    QueryOverlap {
        /// Index of the sequence that starts before the end of the previous one.
        sequence: usize,
    },
    /// A sequence ends after the last key.
    KeyRange {
        /// Index of the sequence.
        sequence: usize,
        /// Tokens of the key.
        tokens: usize,
        /// End of the sequence.
        found: usize,
    },
    /// A sequence has more valid keys than keys in total.
    KeyLength {
        /// Keys in total.
        sequence: usize,
        /// Valid keys.
        padded: usize,
        /// Keys said to be valid.
        found: usize,
    },
    /// This build has no kernels for [`CacheDtype::F16`](super::CacheDtype::F16).
    MissingFeature {
        /// The feature of this crate that adds them: `"f16"`.
        feature: &'static str,
    },
    /// The scratch is too short.
    Scratch {
        /// Floats needed.
        expected: usize,
        /// Floats in the buffer.
        found: usize,
    },
    /// The bias does not cover the queries, the heads or the keys.
    Bias {
        /// Floats needed.
        expected: usize,
        /// Floats in its slice.
        found: usize,
    },
    /// A relative bias has too few values for keys before the query.
    BiasZero {
        /// Values needed before the one for distance 0: the keys of the longest sequence minus one.
        expected: usize,
        /// The index of the value for distance 0.
        found: usize,
    },
    /// The slice of the weights is too short for the queries, the heads or the columns.
    Weights {
        /// Floats needed.
        expected: usize,
        /// Floats in the slice.
        found: usize,
    },
    /// The weights have too few columns for a sequence's keys.
    WeightsKeys {
        /// Keys of the longest sequence.
        expected: usize,
        /// Columns of the weights.
        found: usize,
    },
    /// The rows of the weights overlap.
    WeightsRows {
        /// Columns of a row.
        expected: usize,
        /// The query stride.
        found: usize,
    },
    /// The heads of the weights overlap.
    WeightsHeads {
        /// Floats from the first row of a head to the end of its last row, with a whole stride for each.
        expected: usize,
        /// The head stride.
        found: usize,
    },
    /// The weights of a head that does not exist were requested.
    WeightsHead {
        /// Heads of the query.
        heads: usize,
        /// The requested head.
        found: usize,
    },
    /// The weights of one head were requested twice.
    WeightsRepeated {
        /// The head.
        found: usize,
    },
    /// The cache does not have this head.
    CacheHead {
        /// Key-value heads of the cache.
        heads: usize,
        /// The requested head.
        found: usize,
    },
    /// The buffer for one key has the wrong length.
    KeyBuffer {
        /// Elements of a head.
        expected: usize,
        /// Floats in the buffer.
        found: usize,
    },
    /// The buffer of a cache is too short.
    CacheLength {
        /// Floats needed.
        expected: usize,
        /// Floats in the buffer.
        found: usize,
    },
    /// The cache does not have this slot.
    Slot {
        /// Slots of the cache.
        slots: usize,
        /// The requested slot.
        found: usize,
    },
    /// A position exceeds the capacity of the cache.
    Capacity {
        /// Positions of a slot.
        capacity: usize,
        /// The position after the last requested one.
        found: usize,
    },
    /// The number of slots, positions or lengths is not the number of tokens.
    Places {
        /// Tokens.
        expected: usize,
        /// Slots, positions or lengths in the call.
        found: usize,
    },
    /// The slot table is too short for the keys of a row.
    SlotTable {
        /// Entries needed.
        expected: usize,
        /// Entries in the table.
        found: usize,
    },
    /// `sums` does not have a maximum and a sum for each query token and head.
    Sums {
        /// Floats needed: two for each.
        expected: usize,
        /// Floats in the buffer.
        found: usize,
    },
    /// The dropout of weights does not have one sentence for each query token.
    Sentences {
        /// Query tokens.
        expected: usize,
        /// Sentences in the dropout.
        found: usize,
    },
    /// A gradient and its tensor have different shapes `[tokens, heads, head_dim]`.
    GradientShape {
        /// Shape of the tensor.
        expected: [usize; 3],
        /// Shape of the gradient.
        found: [usize; 3],
    },
    /// Two sequences share keys, so two tasks would write their gradient.
    KeyOverlap {
        /// Index of the sequence that shares keys with an earlier one.
        sequence: usize,
        /// Index of the earlier one.
        found: usize,
    },
    /// The gradient of a bias was requested, but there is no bias, or a dense one.
    BiasGradientForm,
    /// The gradient buffer of a bias is too short for the queries and keys.
    BiasGradient {
        /// Floats needed.
        expected: usize,
        /// Floats in the buffer.
        found: usize,
    },
    /// A size overflows.
    TooLarge,
}

impl fmt::Display for AttentionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingFeature { feature } => {
                write!(f, "the feature `{feature}` of simdformer-kernels is not enabled")
            }
            Self::OutputShape { expected, found } => {
                write!(f, "the output must have the query's shape {expected:?}; found {found:?}")
            }
            Self::KeyValueShape { expected, found } => write!(
                f,
                "keys and values must have {} heads of {}; found {} of {}",
                expected.0, expected.1, found.0, found.1
            ),
            Self::ValueTokens { expected, found } => {
                write!(f, "the value must have the key's {expected} tokens; found {found}")
            }
            Self::HeadDim { expected, found } => {
                write!(f, "the query must have the key's head size {expected}; found {found}")
            }
            Self::HeadGroups { query, key } => {
                write!(f, "{query} query heads are not a multiple of {key} key heads")
            }
            Self::QueryRange { sequence, tokens, found } => write!(
                f,
                "sequence {sequence} ends at query {found}, but there are {tokens} queries"
            ),
            Self::QueryOverlap { sequence } => write!(
                f,
                "sequence {sequence} starts before the end of the one before it: sequences must be in order and apart"
            ),
            Self::KeyRange { sequence, tokens, found } => {
                write!(f, "sequence {sequence} ends at key {found}, but there are {tokens} keys")
            }
            Self::KeyLength { sequence, padded, found } => {
                write!(f, "sequence {sequence} has {padded} keys, but {found} are said to be valid")
            }
            Self::Scratch { expected, found } => {
                write!(f, "attention needs {expected} floats of scratch; found {found}")
            }
            Self::Bias { expected, found } => {
                write!(f, "the bias must reach {expected} floats; its slice has {found}")
            }
            Self::Weights { expected, found } => {
                write!(f, "the weights need {expected} floats; found {found}")
            }
            Self::BiasZero { expected, found } => write!(
                f,
                "the relative bias must have {expected} values before the one for distance 0; found {found}"
            ),
            Self::WeightsKeys { expected, found } => {
                write!(f, "the weights need a column for each of {expected} keys; found {found}")
            }
            Self::WeightsRows { expected, found } => write!(
                f,
                "rows of weights have {expected} columns; a query stride of {found} makes them overlap"
            ),
            Self::WeightsHeads { expected, found } => write!(
                f,
                "heads of weights take {expected} floats; a head stride of {found} makes them overlap"
            ),
            Self::WeightsHead { heads, found } => {
                write!(f, "weights of head {found} were asked for, but the query has {heads} heads")
            }
            Self::WeightsRepeated { found } => {
                write!(f, "weights of head {found} were asked for twice")
            }
            Self::CacheHead { heads, found } => {
                write!(f, "head {found} was named, but the cache has {heads} key-value heads")
            }
            Self::KeyBuffer { expected, found } => {
                write!(f, "a key of the cache has {expected} elements; the buffer has {found}")
            }
            Self::CacheLength { expected, found } => {
                write!(f, "the cache takes {expected} floats; the buffer has {found}")
            }
            Self::Slot { slots, found } => {
                write!(f, "slot {found} was named, but the cache has {slots} slots")
            }
            Self::Capacity { capacity, found } => {
                write!(f, "{found} positions do not fit a slot of {capacity}")
            }
            Self::Places { expected, found } => {
                write!(
                    f,
                    "slots, positions or lengths must be as many as the tokens, {expected}; found {found}"
                )
            }
            Self::SlotTable { expected, found } => {
                write!(f, "the ancestry table must have {expected} entries; found {found}")
            }
            Self::Sums { expected, found } => {
                write!(f, "maxima and sums of the softmax take {expected} floats; found {found}")
            }
            Self::Sentences { expected, found } => write!(
                f,
                "weights are dropped by the sentence of each of {expected} query tokens; found {found}"
            ),
            Self::GradientShape { expected, found } => {
                write!(f, "a gradient must have its tensor's shape {expected:?}; found {found:?}")
            }
            Self::KeyOverlap { sequence, found } => write!(
                f,
                "sequence {sequence} shares keys with sequence {found}: expected each key in one sequence"
            ),
            Self::BiasGradientForm => f.write_str(
                "the gradient of a bias was asked for; expected a relative bias, found another or none",
            ),
            Self::BiasGradient { expected, found } => {
                write!(f, "the gradient of the bias takes {expected} floats; found {found}")
            }
            Self::TooLarge => f.write_str("a size overflows"),
        }
    }
}

impl core::error::Error for AttentionError {}
