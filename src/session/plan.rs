//! Computes all memory of a session from its limits, before the first request.

use super::draft_length::DraftLength;
use super::error::SessionError;
use crate::config::{Positions, Side, Stack};
use crate::memory::{CachesShape, Planner};
use crate::model::Model;
use crate::model::blocks::{FEED_FORWARD_ROWS, stem_floats, stem_rows};
use crate::model::relative::RelativePlan;
use crate::model::weights::Decoder;
use crate::network::{FeedForward, LayerPart, TensorId};
use crate::search::{self, SearchLimits};
use core::ops::Range;
use simdformer_kernels::{CacheShape, Dtype, attention_scratch_bound, pruned_argmax};

/// The largest requests that a session must serve: counts of sentences, tokens and hypotheses, each at least 1 except
/// for draft tokens; and the dtype of the KV cache. [`Plan::new`] checks them.
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
    /// The dtype of the KV caches of sources and targets. `None` selects [`Model::cache_storage`]: f16 if the decoder's
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

/// The ranges of all buffers in a session's memory, in floats. `Display` prints the bytes of each part.
#[derive(Clone)]
pub struct Plan {
    pub(crate) limits: Limits,
    /// Row slots: hypotheses of all sentences.
    pub(crate) rows: usize,
    /// Tokens of one step: one for each row, and the draft tokens.
    pub(crate) fed: usize,
    pub(crate) d_model: usize,
    /// The widest vector that is copied for a probe.
    pub(crate) trace_width: usize,
    /// Width of all heads of a decoder layer.
    pub(crate) decoder_attention: usize,
    /// Whether the model has a decoder.
    pub(crate) decodes: bool,
    pub(crate) source_vocabulary: usize,
    /// Numbers in a frame, if the encoder reads features.
    pub(crate) bins: Option<usize>,
    /// Tokens in one pass through the encoder or the decoder.
    pub(crate) pass: usize,
    pub(crate) caches: CachesShape,
    pub(crate) search: SearchLimits,
    pub(crate) floats: usize,

    pub(crate) source_positions: Range<usize>,
    pub(crate) target_positions: Range<usize>,
    /// `[layers or 1, heads, distances]`: the biases of relative positions, see `relative.rs`.
    pub(crate) source_relative: RelativePlan,
    pub(crate) target_relative: RelativePlan,
    pub(crate) x: Range<usize>,
    pub(crate) h: Range<usize>,
    pub(crate) context: Range<usize>,
    pub(crate) qkv: Range<usize>,
    pub(crate) hidden: Range<usize>,
    pub(crate) scratch: Range<usize>,
    pub(crate) frames: Range<usize>,
    /// Quantized input rows of int8 products.
    pub(crate) rounded: Range<usize>,
    pub(crate) logits: Range<usize>,
    /// `[fed]`: the best token of each row, its value, and the scratch of the pruned argmax.
    pub(crate) best_tokens: Range<usize>,
    pub(crate) best_values: Range<usize>,
    pub(crate) best_scratch: Range<usize>,
    pub(crate) own_cache: Range<usize>,
    pub(crate) cross_cache: Range<usize>,

    /// Token, position, hypothesis, slot and sentence of each token of a pass.
    pub(crate) pass_tokens: Range<usize>,
    pub(crate) pass_positions: Range<usize>,
    pub(crate) pass_hypotheses: Range<usize>,
    pub(crate) pass_slots: Range<usize>,
    pub(crate) pass_sentences: Range<usize>,
    /// `[pass]` and `[fed, target_tokens]`: number of visible keys of each token, and their slots.
    pub(crate) step_lens: Range<usize>,
    pub(crate) step_ancestry: Range<usize>,
    /// `[rows, 2]`: the generation numbers of hypotheses.
    pub(crate) row_generation: Range<usize>,
    /// `[rows]` and `[rows, target_tokens]`: lengths and slot table of hypotheses, see `kv_slots.rs`.
    pub(crate) row_len: Range<usize>,
    pub(crate) row_ancestry: Range<usize>,
    /// `[sentences]`: source length, 0 for a free slot; `[sentences, 2]`: generation number.
    pub(crate) sentence_len: Range<usize>,
    pub(crate) sentence_generation: Range<usize>,

    /// The memory of the decoding loop is a second part of the buffer, of `search_floats` floats. Its ranges start at
    /// 0.
    pub(crate) search_floats: usize,
    pub(crate) search_words: Range<usize>,
    /// `[rows]`.
    pub(crate) search_now: Range<usize>,
    pub(crate) search_before: Range<usize>,
    pub(crate) search_children: Range<usize>,
    /// `[sentences]`.
    pub(crate) search_source: Range<usize>,
    pub(crate) search_sentence: Range<usize>,
    pub(crate) search_first_row: Range<usize>,
    /// `[draft_tokens]`: the tokens of drafts. With drafts: `[sentences]`, the draft lengths of a step, and
    /// `[sentences, DraftLength::WORDS]`.
    pub(crate) draft: Range<usize>,
    pub(crate) draft_lens: Range<usize>,
    pub(crate) draft_length_states: Range<usize>,
}

impl Plan {
    /// Plans the memory of a session of `model` within `limits`. Allocates nothing.
    ///
    /// # Errors
    /// A limit is [zero](SessionError::ZeroLimit) or beyond the [positions of the
    /// model](SessionError::LimitBeyondModel); `batch_tokens` is [below](SessionError::LimitBelow) `source_tokens`; the
    /// memory does [not fit](SessionError::TooLarge) the address space.
    ///
    /// ```
    /// use simdformer::config::{Config, Dimensions};
    /// use simdformer::{Limits, Model, Plan};
    ///
    /// let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 256, vocabulary: 1000 };
    /// let model = Model::from_fn(Config::transformer(small), |_, _, _| Ok(()))?;
    /// let one = Plan::new(&model, Limits::new(8, 64, 64))?;
    /// let four = Plan::new(&model, Limits { beams: 4, ..one.limits() })?;
    /// assert_eq!(one.bytes(), 4 * one.floats());
    /// assert!(one.bytes() < four.bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(model: &Model, limits: Limits) -> Result<Self, SessionError> {
        let config = model.config();
        let decodes = config.decoder.is_some();
        for (limit, value) in [
            ("sentences", limits.sentences),
            ("source_tokens", limits.source_tokens),
            ("batch_tokens", limits.batch_tokens),
            ("target_tokens", if decodes { limits.target_tokens } else { 1 }),
            ("beams", limits.beams),
            ("end_tokens", limits.end_tokens),
        ] {
            if value == 0 {
                return Err(SessionError::ZeroLimit { limit });
            }
            if value >= u32::MAX as usize {
                return Err(SessionError::TooLarge);
            }
        }
        if limits.batch_tokens < limits.source_tokens {
            return Err(SessionError::LimitBelow {
                limit: "batch_tokens",
                other: "source_tokens",
                expected_at_least: limits.source_tokens,
                found: limits.batch_tokens,
            });
        }
        let max_positions = |side| config.max_positions(side).unwrap_or(usize::MAX);
        let target = if decodes { max_positions(Side::Decoder) } else { 0 };
        for (limit, expected_at_most, found) in [
            ("source_tokens", max_positions(Side::Encoder), limits.source_tokens),
            ("target_tokens", target, limits.target_tokens),
        ] {
            if found > expected_at_most {
                return Err(SessionError::LimitBeyondModel { limit, expected_at_most, found });
            }
        }
        let isa = model.isa();
        let d = config.d_model;
        let rows = limits.sentences.checked_mul(limits.beams).ok_or(SessionError::TooLarge)?;
        // Slot numbers are u32.
        if rows >= u32::MAX as usize {
            return Err(SessionError::TooLarge);
        }
        let drafted = if decodes { limits.draft_tokens } else { 0 };
        let drafting = if drafted > 0 { limits.sentences } else { 0 };
        let fed = rows.checked_add(drafted).ok_or(SessionError::TooLarge)?;
        if fed >= u32::MAX as usize {
            return Err(SessionError::TooLarge);
        }
        let pass = limits.batch_tokens.max(fed);
        let decoder = config.decoder.unwrap_or(Stack::new(0, 0, 0));
        let ffn = config.encoder.ffn_dim.max(decoder.ffn_dim);
        let decoder_attention = config.attention_dim(Side::Decoder);
        let inner = config.attention_dim(Side::Encoder).max(decoder_attention);
        let (heads, head_dim) = (decoder.heads, config.head_dim(Side::Decoder));
        let dtype = limits.cache.unwrap_or_else(|| model.cache_storage());
        let of = |slots, capacity| CacheShape {
            dtype,
            ..CacheShape::new(slots, capacity, heads, head_dim)
        };
        let caches = CachesShape {
            isa,
            layers: decoder.layers,
            own: of(rows, limits.target_tokens),
            cross: of(limits.sentences, limits.source_tokens),
        };
        let (own, cross) = if decodes { caches.floats()? } else { (0, 0) };
        let scratch = attention_scratch_bound(
            isa,
            limits.sentences,
            limits.batch_tokens,
            config.encoder.heads,
            config.head_dim(Side::Encoder),
        )?;
        let frames = stem_floats(config, limits.source_tokens).ok_or(SessionError::TooLarge)?;
        let rounded = model.rounded(&|role| match role {
            TensorId::Layer(_, _, LayerPart::FeedForward(FeedForward::Outer, _)) => {
                pass.min(FEED_FORWARD_ROWS)
            }
            TensorId::Convolution(..) => stem_rows(limits.source_tokens),
            _ => pass,
        });
        let rounded = rounded.map_err(|_| SessionError::TooLarge)?;
        let best_scratch = match model.decoder().is_some_and(Decoder::has_screen) {
            true => pruned_argmax::scratch(fed, d).map_err(|_| SessionError::TooLarge)?,
            false => 0,
        };
        let search = SearchLimits {
            sentences: limits.sentences,
            sequences: limits.beams,
            max_target_length: limits.target_tokens + 1,
            vocabulary: config.target_vocab,
            end_tokens: limits.end_tokens,
            source_tokens: limits.source_tokens,
        };
        let search_words = if decodes { search::words(&search)? } else { 0 };
        let (source_positions, target_positions) = match (config.positions, config.token_types) {
            (Positions::None, 0) => (0, 0),
            (positions, types) => {
                let source = limits.source_tokens.checked_mul(types.max(1));
                // Row numbers are u32.
                let source = source.filter(|&rows| rows < u32::MAX as usize);
                let target = limits.target_tokens;
                let target = if positions == Positions::None { 0 } else { target };
                (source.ok_or(SessionError::TooLarge)?, target)
            }
        };
        let ancestry_len = rows.checked_mul(limits.target_tokens).ok_or(SessionError::TooLarge)?;
        let step_ancestry_len =
            fed.checked_mul(limits.target_tokens).ok_or(SessionError::TooLarge)?;
        let (mut planner, mut loop_planner) = (Planner::default(), Planner::default());
        let mut plan = Self {
            limits,
            rows,
            fed,
            d_model: d,
            trace_width: [Side::Encoder, Side::Decoder]
                .into_iter()
                .fold(d, |widest, side| widest.max(config.head_dim(side))),
            decoder_attention,
            decodes,
            source_vocabulary: config.source_vocab,
            bins: config.stem.map(|stem| stem.bins),
            pass,
            caches,
            search,
            floats: 0,
            source_positions: planner.take_product(source_positions, d)?,
            target_positions: planner.take_product(target_positions, d)?,
            source_relative: RelativePlan::new(
                config,
                Side::Encoder,
                limits.source_tokens,
                &mut planner,
            )?,
            target_relative: RelativePlan::new(
                config,
                Side::Decoder,
                limits.target_tokens,
                &mut planner,
            )?,
            x: planner.take_product(pass, d)?,
            h: planner.take_product(pass, d)?,
            context: planner.take_product(pass, inner)?,
            qkv: planner.take_product(pass, 3 * inner)?,
            hidden: planner.take_product(pass.min(FEED_FORWARD_ROWS), ffn)?,
            scratch: planner.take(scratch)?,
            frames: planner.take(frames)?,
            rounded: planner.take(rounded)?,
            logits: planner.take_product(if decodes { fed } else { 0 }, config.target_vocab)?,
            best_tokens: planner.take(fed)?,
            best_values: planner.take(fed)?,
            best_scratch: planner.take(best_scratch)?,
            own_cache: planner.take(own)?,
            cross_cache: planner.take(cross)?,
            pass_tokens: planner.take(pass)?,
            pass_positions: planner.take(pass)?,
            pass_hypotheses: planner.take(pass)?,
            pass_slots: planner.take(pass)?,
            pass_sentences: planner.take(pass)?,
            step_lens: planner.take(pass)?,
            step_ancestry: planner.take(step_ancestry_len)?,
            row_generation: planner.take_product(rows, 2)?,
            row_len: planner.take(rows)?,
            row_ancestry: planner.take(ancestry_len)?,
            sentence_len: planner.take(limits.sentences)?,
            sentence_generation: planner.take_product(limits.sentences, 2)?,
            search_floats: 0,
            search_words: loop_planner.take(search_words)?,
            search_now: loop_planner.take(rows)?,
            search_before: loop_planner.take(rows)?,
            search_children: loop_planner.take(rows)?,
            search_source: loop_planner.take(limits.sentences)?,
            search_sentence: loop_planner.take(limits.sentences)?,
            search_first_row: loop_planner.take(limits.sentences)?,
            draft: loop_planner.take(drafted)?,
            draft_lens: loop_planner.take(drafting)?,
            draft_length_states: loop_planner.take_product(drafting, DraftLength::WORDS)?,
        };
        plan.search_floats = loop_planner.floats();
        plan.floats =
            planner.floats().checked_add(plan.search_floats).ok_or(SessionError::TooLarge)?;
        Ok(plan)
    }

    /// Size of the memory in floats: the length of the buffer for [`crate::Session::with_buffer`].
    pub const fn floats(&self) -> usize {
        self.floats
    }

    /// Size of the memory in bytes.
    pub const fn bytes(&self) -> usize {
        self.floats * size_of::<f32>()
    }

    /// Floats of scratch for a probe, see [`crate::Session::traced`]: enough for the scores of one head of the longest
    /// sentence, for one row of logits, and for the embeddings of a sentence.
    pub const fn trace_floats(&self) -> usize {
        let Limits { source_tokens, target_tokens, .. } = self.limits;
        let longest = if source_tokens > target_tokens { source_tokens } else { target_tokens };
        let scores = longest.saturating_add(self.trace_width).saturating_mul(longest);
        let scores = scores.saturating_add(self.trace_width);
        if scores > self.search.vocabulary { scores } else { self.search.vocabulary }
    }

    /// The limits of the plan.
    pub const fn limits(&self) -> Limits {
        self.limits
    }
}
