//! The size of a pass of a trainer.

use super::activation_checkpointing::SavedActivations;

/// The largest pass of a trainer, forward and backward: numbers of sentences and tokens, each at least 1. A larger
/// batch takes several passes, with the same result bit for bit ([`Trainer::step`](super::Trainer::step)).
///
/// ```
/// use simdformer::train::{SavedActivations, TrainLimits};
///
/// let limits = TrainLimits { keep: SavedActivations::Projections, ..TrainLimits::new(4096, 128) };
/// assert_eq!((limits.source_tokens, limits.target_length), (4096, 128));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainLimits {
    /// Sentences per pass; at least as many as fit a [reduction chunk](super::REDUCTION_CHUNK).
    pub sentences: usize,
    /// Source tokens per pass, over all sentences; at least a [reduction chunk](super::REDUCTION_CHUNK). If the
    /// encoder reads features, positions: half the number of frames, rounded up.
    pub source_tokens: usize,
    /// Target tokens per pass, with the same minimum.
    pub target_tokens: usize,
    /// The longest source, in tokens or in positions of features.
    pub source_length: usize,
    /// The longest target in tokens, including its end token.
    pub target_length: usize,
    /// The activations that the forward pass saves.
    pub keep: SavedActivations,
    /// Whether memory for an exponential moving average of the parameters is planned.
    pub average: bool,
}

impl TrainLimits {
    /// Limits of `tokens` per side in a pass, in sentences of at most `length` tokens per side.
    pub const fn new(tokens: usize, length: usize) -> Self {
        Self {
            sentences: tokens,
            source_tokens: tokens,
            target_tokens: tokens,
            source_length: length,
            target_length: length,
            keep: SavedActivations::Everything,
            average: false,
        }
    }
}
