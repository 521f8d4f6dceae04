//! Computes all memory of a session from its limits, before the first request.

use super::buffers::{LoopRanges, SessionRanges, Sizes};
use super::limits::Limits;
use crate::config::{Positions, Side};
use crate::error::{Error, ErrorValue};
use crate::kv::CachesShape;
use crate::memory::ByteTable;
use crate::model::Model;
use crate::model::blocks::{FEED_FORWARD_ROWS, conv_floats, conv_rows};
use crate::model::positions::RelativePlan;
use crate::model::weights::Decoder;
use crate::network::{FeedForward, LayerPart, TensorId};
use crate::search::{self, SearchLimits};
use core::fmt;
use simdformer_kernels::{Dtype, attention_scratch_bound, pruned_argmax};

/// The sizes of all buffers of a session, and where they are in its memory. `Display` prints the bytes of each part.
#[derive(Clone)]
pub struct Plan {
    pub(crate) limits: Limits,
    /// Hypotheses of all sentences.
    pub(crate) rows: usize,
    /// Tokens of one step: one for each hypothesis, and the draft tokens.
    pub(crate) fed: usize,
    pub(crate) d_model: usize,
    /// The widest vector that is copied for a probe.
    trace_width: usize,
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
    /// See `relative.rs`.
    pub(crate) source_relative: RelativePlan,
    pub(crate) target_relative: RelativePlan,
    pub(crate) buffers: SessionRanges,
    /// The memory of the decoding loop is a second part of the buffer.
    pub(crate) decode_loop: LoopRanges,
    floats: usize,
}

impl Plan {
    /// Plans the memory of a session of `model` within `limits`. Allocates nothing.
    ///
    /// # Errors
    /// A limit is [zero](Error::BeyondLimit) or beyond the [positions of the
    /// model](Error::BeyondLimit); `batch_tokens` is [below](Error::BeyondLimit) `source_tokens`; the
    /// memory does [not fit](Error::OutOfMemory) the address space.
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
    pub fn new(model: &Model, limits: Limits) -> Result<Self, Error> {
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
                return Err(Error::beyond_limit(limit, ErrorValue::at_least(1), 0));
            }
            if value >= u32::MAX as usize {
                return Err(Error::PLAN_TOO_LARGE);
            }
        }
        if limits.batch_tokens < limits.source_tokens {
            let least = ErrorValue::new(&"at least `source_tokens`, {}", [limits.source_tokens, 0]);
            return Err(Error::beyond_limit("batch_tokens", least, limits.batch_tokens));
        }
        let max_positions = |side| config.max_positions(side).unwrap_or(usize::MAX);
        let target = if decodes { max_positions(Side::Decoder) } else { 0 };
        for (limit, most, found) in [
            ("source_tokens", max_positions(Side::Encoder), limits.source_tokens),
            ("target_tokens", target, limits.target_tokens),
        ] {
            if found > most {
                let most = ErrorValue::at_most_of_model(most);
                return Err(Error::beyond_limit(limit, most, found));
            }
        }
        let isa = model.isa();
        let d_model = config.d_model;
        let rows = limits.sentences.checked_mul(limits.beams).ok_or(Error::PLAN_TOO_LARGE)?;
        let drafted = if decodes { limits.draft_tokens } else { 0 };
        let fed = rows.checked_add(drafted).ok_or(Error::PLAN_TOO_LARGE)?;
        // Slot numbers are u32.
        if fed >= u32::MAX as usize {
            return Err(Error::PLAN_TOO_LARGE);
        }
        let pass = limits.batch_tokens.max(fed);
        let decoder_attention = config.attention_dim(Side::Decoder);
        let caches = CachesShape::new(
            config,
            (isa, limits.cache.unwrap_or_else(|| model.cache_storage())),
            [rows, limits.target_tokens],
            [limits.sentences, limits.source_tokens],
        );
        let (own_cache, cross_cache) = if decodes { caches.floats()? } else { (0, 0) };
        let rounded = model.rounded(&|role| match role {
            TensorId::Layer(_, _, LayerPart::FeedForward(FeedForward::Outer, _)) => {
                pass.min(FEED_FORWARD_ROWS)
            }
            TensorId::Convolution(..) => conv_rows(limits.source_tokens),
            _ => pass,
        });
        let best_scratch = match model.decoder().is_some_and(Decoder::has_pruning_table) {
            true => {
                pruned_argmax::argmax_scratch(fed, d_model).map_err(|_| Error::PLAN_TOO_LARGE)?
            }
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
        let (source_positions, target_positions) = match (config.positions, config.token_types) {
            (Positions::None, 0) => (0, 0),
            (positions, types) => {
                let source = limits.source_tokens.checked_mul(types.max(1));
                // Row numbers are u32.
                let source = source.filter(|&rows| rows < u32::MAX as usize);
                let target = limits.target_tokens;
                let target = if positions == Positions::None { 0 } else { target };
                (source.ok_or(Error::PLAN_TOO_LARGE)?, target)
            }
        };
        let source_relative = RelativePlan::new(config, Side::Encoder, limits.source_tokens)?;
        let target_relative = RelativePlan::new(config, Side::Decoder, limits.target_tokens)?;
        let sizes = Sizes {
            limits,
            rows,
            fed,
            pass,
            d_model,
            attention: config.attention_dim(Side::Encoder).max(decoder_attention),
            ffn: config.encoder.ffn_dim.max(config.decoder.map_or(0, |decoder| decoder.ffn_dim)),
            vocabulary: config.target_vocab,
            source_positions,
            target_positions,
            source_relative: source_relative.floats,
            target_relative: target_relative.floats,
            own_cache,
            cross_cache,
            frames: conv_floats(config, limits.source_tokens).ok_or(Error::PLAN_TOO_LARGE)?,
            rounded: rounded.map_err(|_| Error::PLAN_TOO_LARGE)?,
            attention_scratch: attention_scratch_bound(
                isa,
                limits.sentences,
                limits.batch_tokens,
                config.encoder.heads,
                config.head_dim(Side::Encoder),
            )?,
            logits: if decodes { fed } else { 0 },
            best_scratch,
            search: if decodes { search::words(&search)? } else { 0 },
            drafted,
            drafting: if drafted > 0 { limits.sentences } else { 0 },
        };
        let (buffers, decode_loop) = (SessionRanges::new(&sizes)?, LoopRanges::new(&sizes)?);
        let floats = buffers.len().checked_add(decode_loop.len());
        Ok(Self {
            limits,
            rows,
            fed,
            d_model,
            trace_width: [Side::Encoder, Side::Decoder]
                .into_iter()
                .fold(d_model, |widest, side| widest.max(config.head_dim(side))),
            decoder_attention,
            decodes,
            source_vocabulary: config.source_vocab,
            bins: config.bins,
            pass,
            caches,
            search,
            source_relative,
            target_relative,
            buffers,
            decode_loop,
            floats: floats.ok_or(Error::PLAN_TOO_LARGE)?,
        })
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

    /// The limits of a [`Search`](crate::search::Search) beside a session of this plan.
    pub const fn search_limits(&self) -> SearchLimits {
        self.search
    }

    /// Returns an error if the model has no decoder.
    pub(crate) fn check_decodes(&self) -> Result<(), Error> {
        if self.decodes { Ok(()) } else { Err(Error::NO_DECODER) }
    }
}

impl fmt::Display for Plan {
    /// The limits, then a table of bytes whose sum is [`Plan::bytes`].
    ///
    /// ```
    /// # use simdformer::config::{Config, Dimensions};
    /// use simdformer::{Limits, Model, Plan};
    ///
    /// # let small = Dimensions { d_model: 64, heads: 4, layers: 2, ffn_dim: 256, vocabulary: 1000 };
    /// # let model = Model::from_fn(Config::transformer(small), |_, _, _| Ok(()))?;
    /// let plan = Plan::new(&model, Limits { beams: 4, ..Limits::new(8, 64, 64) })?;
    /// println!("{plan}");
    /// assert!(plan.to_string().ends_with("bytes"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.limits();
        writeln!(
            f,
            "{} sentences of {} source tokens, {} in one call; {} hypotheses each, of {} target tokens",
            limits.sentences,
            limits.source_tokens,
            limits.batch_tokens,
            limits.beams,
            limits.target_tokens
        )?;
        if limits.draft_tokens > 0 {
            writeln!(f, "{} tokens of drafts in one step", limits.draft_tokens)?;
        }
        if self.decodes && self.caches.own.dtype == Dtype::F16 {
            writeln!(f, "keys and values in f16")?;
        }
        let decode_loop = ("search", self.decode_loop.len() * size_of::<f32>());
        let lines: Vec<_> = self.buffers.parts().chain([decode_loop]).collect();
        ByteTable { lines: &lines }.fmt(f)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("limits", &self.limits())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
