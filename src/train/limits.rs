//! How much a trainer takes at a time, and what it keeps of the forward pass.

/// What the forward pass keeps for the backward pass; what it does not keep is computed again, from the same
/// operands in the same order, so all four give the same bits.
///
/// Per token and layer of Transformer-base (d_model 512, feed-forward 2048), floats kept and work added:
///
/// | | encoder | decoder | more work |
/// |---|---|---|---|
/// | [`Everything`](SavedActivations::Everything) | 5,130 | 6,680 and 1,024 for each source token | under 1 % |
/// | [`Projections`](SavedActivations::Projections) | 3,082 | 4,632 and 1,024 | 7 % |
/// | [`Context`](SavedActivations::Context) | 1,546 | 2,584 | 15 % |
/// | [`Inputs`](SavedActivations::Inputs) | 512 | 512 | 24 % to 33 % |
///
/// An encoder that reads features also keeps under `Everything` what its second convolution's activation is applied to,
/// `d_model` floats a position. What its first one makes is always made again, from the features.
///
/// Source: Chen et al. 2016 (arXiv 1604.06174) for the last, Korthikanti et al. 2022 (2205.05198) for those between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SavedActivations {
    /// Norms' standard scores, projections, contexts and what activations are applied to. Their results are
    /// made again, elementwise.
    #[default]
    Everything,
    /// As `Everything` but for the hidden layers of the feed-forward blocks, whose first product is computed
    /// again.
    Projections,
    /// Norms' standard scores and contexts: queries, keys and values are projected again too.
    Context,
    /// The input of each layer: the layer runs again.
    Inputs,
}

/// The largest pass of a trainer, forward and backward: counts of sentences and tokens, each at least 1. A larger
/// batch goes in several passes, with the same result to the last bit ([`Trainer::step`](super::Trainer::step)).
///
/// ```
/// use simdformer::train::{SavedActivations, TrainLimits};
///
/// let limits = TrainLimits { keep: SavedActivations::Projections, ..TrainLimits::new(4096, 128) };
/// assert_eq!((limits.source_tokens, limits.target_length), (4096, 128));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainLimits {
    /// Sentences of a pass. There is always room for a [leaf](super::REDUCTION_CHUNK) of the shortest.
    pub sentences: usize,
    /// Source tokens of a pass, of all sentences together; at least those of a [leaf](super::REDUCTION_CHUNK). Where the encoder reads
    /// features, positions: half as many as frames, rounded up.
    pub source_tokens: usize,
    /// Target tokens of a pass, alike.
    pub target_tokens: usize,
    /// Tokens of one source, or positions of its features.
    pub source_length: usize,
    /// Tokens of one target, its end token included.
    pub target_length: usize,
    /// What is kept from forward to backward.
    pub keep: SavedActivations,
    /// Whether an exponential average of the parameters is kept.
    pub average: bool,
}

impl TrainLimits {
    /// `tokens` of each side in a pass, in sentences of at most `length` on each side.
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
