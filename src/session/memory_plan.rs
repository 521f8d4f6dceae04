//! Computes all memory of a session from its limits, before the first request. Each buffer of a session and of its
//! decoding loop is declared once, with its type and its size.

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
use simdformer_kernels::{Dtype, pruned_argmax};

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
            attention_scratch: model.encoder_attention().scratch_bound(
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

/// The sizes from which the buffers are planned.
pub(crate) struct Sizes {
    pub(crate) limits: Limits,
    /// Hypotheses of all sentences.
    pub(crate) rows: usize,
    /// Tokens of one step, with draft tokens.
    pub(crate) fed: usize,
    /// Tokens of one pass.
    pub(crate) pass: usize,
    pub(crate) d_model: usize,
    /// Width of all heads.
    pub(crate) attention: usize,
    pub(crate) ffn: usize,
    pub(crate) vocabulary: usize,
    /// Rows of the position tables.
    pub(crate) source_positions: usize,
    pub(crate) target_positions: usize,
    /// Floats of the tables of relative positions.
    pub(crate) source_relative: usize,
    pub(crate) target_relative: usize,
    /// Floats of the caches of all layers.
    pub(crate) own_cache: usize,
    pub(crate) cross_cache: usize,
    /// Floats of other buffers.
    pub(crate) frames: usize,
    pub(crate) rounded: usize,
    pub(crate) attention_scratch: usize,
    pub(crate) best_scratch: usize,
    /// Rows of logits.
    pub(crate) logits: usize,
    /// Words of the search.
    pub(crate) search: usize,
    /// Draft tokens of one step, and the sentences that can have drafts.
    pub(crate) drafted: usize,
    pub(crate) drafting: usize,
}

crate::memory::arena! {
    /// The buffers in which a session computes.
    pub(crate) struct SessionRanges, SessionBuffers(size: &Sizes) {
        "keys and values of the targets" {
            /// See [`Caches`](crate::kv::Caches).
            own_cache: f32 = [size.own_cache];
        }
        "keys and values of the sources" {
            /// See [`Caches`](crate::kv::Caches).
            cross_cache: f32 = [size.cross_cache];
        }
        "positions" {
            /// `[positions, d_model]`.
            source_positions: f32 = [size.source_positions, size.d_model];
            /// `[positions, d_model]`.
            target_positions: f32 = [size.target_positions, size.d_model];
            /// `[layers or 1, heads, distances]`: the biases of relative positions.
            source_relative: f32 = [size.source_relative];
            /// As `source_relative`.
            target_relative: f32 = [size.target_relative];
        }
        "activations of one pass" {
            /// `[pass, d_model]`; these five are described in [`Workspace`](crate::model::pass_input::Workspace).
            x: f32 = [size.pass, size.d_model];
            /// `[pass, d_model]`.
            h: f32 = [size.pass, size.d_model];
            /// `[pass, attention]`.
            context: f32 = [size.pass, size.attention];
            /// `[pass, 3 attention]`.
            qkv: f32 = [size.pass, 3, size.attention];
            /// `[min(pass, FEED_FORWARD_ROWS), ffn]`.
            hidden: f32 = [size.pass.min(FEED_FORWARD_ROWS), size.ffn];
        }
        "frames of features" {
            /// The input of the convolutions.
            frames: f32 = [size.frames];
        }
        "quantized activations" {
            /// Quantized input rows of int8 products.
            rounded: f32 = [size.rounded];
        }
        "scratch of attention" {
            /// Of the encoder.
            attention_scratch: f32 = [size.attention_scratch];
        }
        "logits" {
            /// `[fed, vocabulary]`.
            logits: f32 = [size.logits, size.vocabulary];
        }
        "pruned argmax" {
            /// `[fed]`: the best token of each row.
            best_tokens: u32 = [size.fed];
            /// `[fed]`: its logit.
            best_values: f32 = [size.fed];
            /// Scratch of the kernel.
            best_scratch: f32 = [size.best_scratch];
        }
        "tokens, slots and lengths" {
            /// `[pass]`: the tokens of a pass.
            tokens: u32 = [size.pass];
            /// `[pass]`: the position of each token.
            positions: u32 = [size.pass];
            /// `[pass]`: the slot of the hypothesis that each token continues.
            hypotheses: u32 = [size.pass];
            /// `[pass]`: the KV slot of each token; in the encoder, the length of each source.
            slots: u32 = [size.pass];
            /// `[pass]`: the sentence slot of each token.
            sentences: u32 = [size.pass];
            /// `[pass]`: the number of keys that each token sees.
            key_counts: u32 = [size.pass];
            /// `[fed, target_tokens]`: the slots of these keys.
            key_slots: u32 = [size.fed, size.limits.target_tokens];
            /// `[rows]` and `[rows, target_tokens]`: see [`KvSlots`](crate::kv::KvSlots).
            hypothesis_lens: u32 = [size.rows];
            /// See `hypothesis_lens`.
            slot_table: u32 = [size.rows, size.limits.target_tokens];
            /// `[rows, 2]`: the generation numbers of hypotheses.
            hypothesis_generations: u32 = [size.rows, 2];
            /// `[sentences]`: the length of the source, 0 for a free slot.
            source_lens: u32 = [size.limits.sentences];
            /// `[sentences, 2]`: the generation numbers of sentences.
            sentence_generations: u32 = [size.limits.sentences, 2];
        }
    }
}

/// Words of the state of a draft length, see `generate/speculative/draft_length.rs`.
pub(crate) const DRAFT_LENGTH_WORDS: usize = 3;

crate::memory::arena! {
    /// The buffers of the decoding loop. A slot of the search is `[sentences]`, a hypothesis slot of the session
    /// `[rows]`.
    pub(crate) struct LoopRanges, LoopBuffers(size: &Sizes) {
        /// The memory of the search.
        search: u32 = [size.search];
        /// `[rows]`: the hypothesis slots of the search's rows in this step.
        now: u32 = [size.rows];
        /// `[rows]`: the same for the last step.
        before: u32 = [size.rows];
        /// `[rows]`: for each row of the last step, the number of its children.
        children: u32 = [size.rows];
        /// `[sentences]`: for each slot of the search, the index of its source.
        source_of: u32 = [size.limits.sentences];
        /// `[sentences]`: in a call that serves a queue, the lower half of the number of the request in each slot.
        request_of: u32 = [size.limits.sentences];
        /// `[sentences]`: the sentence slot of that source.
        sentence_of: u32 = [size.limits.sentences];
        /// `[sentences]`: the hypothesis slot of its first row.
        first_row: u32 = [size.limits.sentences];
        /// `[draft_tokens]`: the tokens of new drafts.
        draft: u32 = [size.drafted];
        /// `[sentences]`, if there are drafts: the length of the draft of each slot of the search in this step.
        draft_lens: u32 = [size.drafting];
        /// `[sentences, DRAFT_LENGTH_WORDS]`, if there are drafts.
        draft_length_states: u32 = [size.drafting, DRAFT_LENGTH_WORDS];
    }
}
