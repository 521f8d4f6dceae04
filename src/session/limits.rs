//! The limits that a caller plans for.

use simdformer_kernels::Dtype;

/// The largest requests that a session must serve: counts of sentences, tokens and hypotheses, each at least 1 except
/// for draft tokens; and the dtype of the KV cache. [`Plan::new`](crate::Plan::new) checks them.
///
/// ```
/// use simdformer::Limits;
///
/// let limits = Limits { beams: 4, ..Limits::new(8, 128, 128) };
/// assert_eq!(limits.batch_tokens, 8 * 128);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sentences at a time.
    pub sentences: usize,
    /// Tokens of one source. For an encoder that reads features: its positions, one for two frames.
    pub source_tokens: usize,
    /// Source tokens encoded in one call, over all sentences. At least `source_tokens`.
    pub batch_tokens: usize,
    /// Tokens that can be fed to one hypothesis, including the decoder start and a prefix; 0 for a model that only
    /// encodes. The last token of a target is chosen and never fed, so without a prefix a target has up to this many
    /// new tokens.
    pub target_tokens: usize,
    /// Hypotheses of one sentence at a time: beams or samples. This number is available in any order of start, fork,
    /// feed and release. `beams` KV slots per sentence are enough: the cell of a token is chosen when it is fed, and at
    /// one position the other hypotheses read fewer cells than there are slots.
    pub beams: usize,
    /// Maximum number of end tokens of a search.
    pub end_tokens: usize,
    /// Draft tokens that one step can verify, over all hypotheses; 0 without drafts
    /// ([`Session::verify`](crate::Session::verify), [`Session::generate_drafted`](crate::Session::generate_drafted)).
    /// Each needs a row of logits and of activations. For one hypothesis at a time, 8 to 32 is a reasonable value.
    pub draft_tokens: usize,
    /// The dtype of the KV caches of sources and targets. `None` selects [`Model::cache_storage`](crate::Model::cache_storage): f16 if the decoder's
    /// attention weights are `int8`, else f32. [`Dtype::F16`](simdformer_kernels::Dtype::F16) needs half the
    /// memory. It also halves the time of a step that is limited by reading the cache: with many or long sentences.
    /// Each key and value is rounded to 11 bits, so logits differ from those with f32. All guarantees about equal bits
    /// hold among sessions with the same dtype.
    pub cache: Option<Dtype>,
}

impl Limits {
    /// Limits for `sentences` sentences of `source_tokens` at a time, all encoded in one call, with one hypothesis of
    /// `target_tokens` each, up to 4 end tokens, no drafts, and the default dtype of the KV cache.
    pub const fn new(sentences: usize, source_tokens: usize, target_tokens: usize) -> Self {
        Self {
            sentences,
            source_tokens,
            batch_tokens: sentences.saturating_mul(source_tokens),
            target_tokens,
            beams: 1,
            end_tokens: 4,
            draft_tokens: 0,
            cache: None,
        }
    }

    /// Limits for `sentences` sentences of `source_tokens` at a time, for a model that only encodes.
    pub const fn encoder(sentences: usize, source_tokens: usize) -> Self {
        Self::new(sentences, source_tokens, 0)
    }
}
