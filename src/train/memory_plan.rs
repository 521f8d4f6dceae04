//! Computes, before the first batch, all memory that a trainer uses in addition to its model.

use super::activation_checkpointing::SavedActivations;
use super::faults::no_decoder;
use super::limits::TrainLimits;
use super::packed_batch::{Batch, REDUCTION_CHUNK, SENTENCES_PER_CALL};
use super::params;
use crate::config::{Config, Side, Stack};
use crate::error::Error;
use crate::input_features::Features;
use crate::memory::{ByteTable, Planner};
use crate::model::blocks::{CONV_ROWS, reach};
use crate::model::positions::RelativePlan;
use crate::model::weights::{Backward, refresh_floats};
use core::fmt;
use core::ops::Range;
use simdformer_kernels::train::{
    RowLoss, attention_backward_scratch_bound, embedding_gradient_scratch, sum_of_squares_scratch,
    weight_gradient_scratch,
};
use simdformer_kernels::{AttentionOptions, Isa};

/// Saved values of a norm: standard scores, `[rows, d_model]`, and the reciprocal of the deviation of each row.
#[derive(Clone, Debug)]
pub(super) struct NormSaved {
    pub(super) standard: Range<usize>,
    pub(super) scale: Range<usize>,
}

/// Saved values of an attention block.
#[derive(Clone, Debug)]
pub(super) struct AttentionSaved {
    pub(super) norm: NormSaved,
    /// Query, key and value side by side; in cross-attention the query alone.
    pub(super) projected: Range<usize>,
    /// Key and value of the encoder output; empty in self-attention.
    pub(super) key_value: Range<usize>,
    pub(super) context: Range<usize>,
    /// `[rows, heads, 2]`: see [`simdformer_kernels::train::attention_forward_save`].
    pub(super) sums: Range<usize>,
}

/// Saved values of a feed-forward block.
#[derive(Clone, Debug)]
pub(super) struct FeedForwardSaved {
    pub(super) norm: NormSaved,
    /// The input of the activation in a gated block; empty in other blocks.
    pub(super) gate: Range<usize>,
    /// The input of the activation; in a gated block, the values that the gate multiplies.
    pub(super) up: Range<usize>,
}

/// Saved values of a layer. Ranges that the backward pass recomputes are shared by all layers.
#[derive(Clone, Debug)]
pub(super) struct LayerSaved {
    /// The input of the layer, for [`SavedActivations::Inputs`]; empty otherwise.
    pub(super) input: Range<usize>,
    pub(super) self_attention: AttentionSaved,
    pub(super) cross_attention: Option<AttentionSaved>,
    pub(super) feed_forward: FeedForwardSaved,
}

/// Saved values of a stack, and the gradient that the backward pass propagates through it.
#[derive(Clone, Debug)]
pub(super) struct StackSaved {
    /// The table of positions that is added to embeddings.
    pub(super) positions: Range<usize>,
    pub(super) relative: RelativePlan,
    pub(super) relative_tables: Range<usize>,
    /// Gradients of the tables of relative positions, layer by layer.
    pub(super) d_relative: Range<usize>,
    /// Floats of one such gradient.
    pub(super) d_relative_stride: usize,
    /// The input of the first layer.
    pub(super) embedded: Range<usize>,
    pub(super) embedding_norm: NormSaved,
    pub(super) layers: Vec<LayerSaved>,
    pub(super) final_norm: NormSaved,
    /// `[rows, d_model]`: the residual stream, then the stack's output.
    pub(super) x: Range<usize>,
    /// `[rows, d_model]`: the gradient of the residual stream, then of the embeddings.
    pub(super) d_x: Range<usize>,
}

/// Saved values and scratch of the convolutions of an encoder that reads features; all empty for an encoder that
/// reads ids.
#[derive(Clone, Debug)]
pub(super) struct ConvSaved {
    /// Whether the input of the second convolution's activation is saved.
    pub(super) saves_second: bool,
    /// Frames of some positions, `[frames, bins]`. `hidden` follows: the forward pass uses both as one range.
    pub(super) window: Range<usize>,
    /// `[rows, d_model]`: the output of the first convolution, and the input of its activation.
    pub(super) hidden: Range<usize>,
    pub(super) first: Range<usize>,
    /// `[rows, d_model]`: the input of the second convolution's activation, of all positions if saved, otherwise of
    /// some.
    pub(super) second: Range<usize>,
    /// Gradients of `second` and `first`, of some positions.
    pub(super) d_second: Range<usize>,
    pub(super) d_first: Range<usize>,
    /// The matrices of the second convolution's taps, packed for the gradient of its input.
    pub(super) taps: [Range<usize>; 3],
    /// Scratch for rows that are reordered into windows after an update.
    pub(super) reorder_scratch: Range<usize>,
}

/// The sizes from which the state is planned.
pub(super) struct StateSizes {
    /// Floats of all parameters.
    parameters: usize,
    /// The same, if an average is planned.
    average: usize,
    /// The shape of the table that is also the output matrix, if there is one.
    tied: [usize; 2],
}

crate::memory::arena! {
    /// The values that a trainer keeps between steps, all in the layout of the parameters.
    pub(super) struct StateRanges, StateBuffers(size: &StateSizes) {
        "parameters" {
            /// The parameters.
            values: f32 = [size.parameters];
        }
        "gradients" {
            /// The accumulated gradients.
            gradients: f32 = [size.parameters];
            /// Gradients from lookups of the table that is also the output matrix.
            lookups: f32 = size.tied;
        }
        "moments" {
            /// Adam's running average of gradients.
            first: f32 = [size.parameters];
            /// Adam's running average of squared gradients.
            second: f32 = [size.parameters];
        }
        "average" {
            /// The moving average of the parameters.
            average: f32 = [size.average];
        }
    }
}

/// The range of every buffer in a trainer's memory. `Display` prints the bytes of each part.
///
/// ```
/// use simdformer::config::{Config, Dimensions};
/// use simdformer::kernels::Isa;
/// use simdformer::train::{SavedActivations, TrainLimits, TrainPlan};
///
/// let config = Config::base(32_000);
/// let limits = TrainLimits::new(4096, 128);
/// let all = TrainPlan::new(&config, Isa::best(), limits)?;
/// let least = TrainPlan::new(&config, Isa::best(), TrainLimits { keep: SavedActivations::Inputs, ..limits })?;
/// assert!(least.bytes() < all.bytes());
/// println!("{all}");
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TrainPlan {
    pub(super) limits: TrainLimits,
    pub(super) parameters: usize,
    pub(super) work_floats: usize,
    /// Bytes of ids, positions and reduction chunk ends.
    pub(super) batch_bytes: usize,
    /// Bytes of losses and of partial sums.
    pub(super) sums_bytes: usize,
    pub(super) partials: usize,
    pub(super) order: usize,

    pub(super) state: StateRanges,

    // Ranges of the workspace.
    pub(super) encoder: StackSaved,
    pub(super) conv: ConvSaved,
    pub(super) decoder: Option<StackSaved>,
    /// `[source tokens, d_model]`: the encoder output and its gradient.
    pub(super) memory: Range<usize>,
    pub(super) d_memory: Range<usize>,
    /// `[tokens, d_model]`, of the longer side: the second buffer of "Add & Norm", the output of a sublayer, the
    /// recomputed input of a sublayer, and the gradient of that input.
    pub(super) h: Range<usize>,
    pub(super) branch: Range<usize>,
    pub(super) input: Range<usize>,
    pub(super) d_input: Range<usize>,
    pub(super) d_projected: Range<usize>,
    pub(super) d_key_value: Range<usize>,
    pub(super) d_context: Range<usize>,
    /// `[reduction chunk, ffn_dim]`.
    pub(super) hidden: Range<usize>,
    pub(super) d_hidden: Range<usize>,
    /// `[reduction chunk, vocabulary]`.
    pub(super) logits: Range<usize>,
    pub(super) attention: Range<usize>,
    pub(super) d_attention: Range<usize>,
    pub(super) weight_gradient: Range<usize>,
    /// Matrices packed for the gradients of their inputs; a feed-forward block has up to three.
    pub(super) packed: [Range<usize>; 3],
}

impl TrainPlan {
    /// Computes the memory of a trainer of `config` within `limits`. Allocates none of it.
    ///
    /// # Errors
    /// A limit is zero or larger than the model's number of positions, or the memory does not fit the address space.
    pub fn new(config: &Config, isa: Isa, limits: TrainLimits) -> Result<Self, Error> {
        config.validate()?;
        let placed = params::place(config)?;
        Self::from_placed(config, isa, limits, &placed)
    }

    pub(super) fn from_placed(
        config: &Config,
        isa: Isa,
        limits: TrainLimits,
        placed: &params::Placed,
    ) -> Result<Self, Error> {
        let limits = checked(config, limits)?;
        let decodes = config.decoder.is_some();
        let [source, target] =
            [limits.source_tokens, if decodes { limits.target_tokens } else { 0 }];
        let rows = source.max(target);
        let d = config.d_model;
        let decoder = config.decoder.unwrap_or(Stack::new(0, 1, 0));
        let ffn = config.encoder.ffn_dim.max(decoder.ffn_dim);
        let attention_dim =
            config.attention_dim(Side::Encoder).max(config.attention_dim(Side::Decoder));
        let vocabulary = if decodes { config.target_vocab } else { 0 };

        let n = placed.floats;
        let tied = decodes && config.ties.target_output;
        let state = StateRanges::new(&StateSizes {
            parameters: n,
            average: if limits.average { n } else { 0 },
            tied: if tied { [vocabulary, d] } else { [0; 2] },
        })?;

        let mut work = Planner::default();
        let encoder = stack(config, Side::Encoder, source, 0, &limits, &mut work)?;
        let conv = conv(config, isa, &limits, placed, &mut work)?;
        let decoder_saved = match config.decoder {
            Some(_) => Some(stack(config, Side::Decoder, target, source, &limits, &mut work)?),
            None => None,
        };
        // A kernel is called with at most this many sentences.
        let sentences = limits.sentences.min(SENTENCES_PER_CALL);
        let (mut attention, mut d_attention) = (0, 0);
        for (side, queries, keys) in [
            (Side::Encoder, source, source),
            (Side::Decoder, target, target),
            (Side::Decoder, target, source),
        ] {
            let Some(stack) = config.stack(side) else { continue };
            let (heads, width) = (stack.heads, config.head_dim(side));
            let longest = match side {
                Side::Encoder => limits.source_length,
                Side::Decoder => limits.target_length.max(limits.source_length),
            };
            let options = AttentionOptions::new(width);
            attention = attention.max(options.scratch_bound(isa, sentences, keys, heads, width)?);
            d_attention = d_attention.max(attention_backward_scratch_bound(
                isa,
                sentences,
                [queries, keys],
                longest,
                [heads, heads],
                width,
            )?);
        }
        // The matrices that multiply output gradients to give input gradients, and the shapes of weight gradients.
        let shapes =
            [(3 * attention_dim, d), (d, attention_dim), (ffn, d), (d, ffn), (vocabulary, d)];
        let mut packed = 0;
        let mut weight_gradient = 0;
        for (outputs, inputs) in shapes {
            packed = packed.max(Backward::floats(isa, outputs, inputs)?);
            weight_gradient = weight_gradient.max(weight_gradient_scratch(
                isa,
                REDUCTION_CHUNK,
                outputs,
                inputs,
            )?);
        }
        if let Some(bins) = config.bins {
            let most = CONV_ROWS.min(limits.source_length);
            for (rows, inputs) in [(most, d), (Features::STRIDE * most, bins)] {
                let floats = weight_gradient_scratch(isa, rows, d, inputs)?;
                weight_gradient = weight_gradient.max(floats);
            }
        }
        let packed_ffn = Backward::floats(isa, ffn, d)?;
        let partials = sum_of_squares_scratch(n)?;
        let tables =
            [config.source_vocab, config.target_vocab, limits.source_length, limits.target_length];
        let order = embedding_gradient_scratch(tables.into_iter().max().unwrap_or(0), rows)?;
        let batch_bytes = Batch::with_capacity(&limits).bytes();
        let sums_bytes = target * size_of::<RowLoss>() + partials * 8 + order * 4;
        Ok(Self {
            limits,
            parameters: n,
            batch_bytes,
            sums_bytes,
            partials,
            order,
            state,
            encoder,
            conv,
            decoder: decoder_saved,
            memory: work.take_product(source, d)?,
            d_memory: work.take_product(if decodes { source } else { 0 }, d)?,
            h: work.take_product(rows, d)?,
            branch: work.take_product(rows, d)?,
            input: work.take_product(rows, d)?,
            d_input: work.take_product(rows, d)?,
            d_projected: work.take_product(rows, 3 * attention_dim)?,
            d_key_value: work.take_product(if decodes { source } else { 0 }, 2 * attention_dim)?,
            d_context: work.take_product(rows, attention_dim)?,
            hidden: work.take_product(REDUCTION_CHUNK, ffn)?,
            d_hidden: work.take_product(REDUCTION_CHUNK, ffn)?,
            logits: work.take_product(if decodes { REDUCTION_CHUNK } else { 0 }, vocabulary)?,
            attention: work.take(attention)?,
            d_attention: work.take(d_attention)?,
            weight_gradient: work.take(weight_gradient)?,
            packed: [
                work.take(packed)?,
                work.take(packed_ffn)?,
                work.take(if config.gated { packed_ffn } else { 0 })?,
            ],
            work_floats: work.floats(),
        })
    }

    /// The saved values of one side.
    pub(super) fn stack(&self, side: Side) -> Result<&StackSaved, Error> {
        match side {
            Side::Encoder => Ok(&self.encoder),
            Side::Decoder => self.decoder.as_ref().ok_or_else(no_decoder),
        }
    }

    /// The limits of this plan, raised to at least one reduction chunk.
    pub const fn limits(&self) -> TrainLimits {
        self.limits
    }

    /// Bytes of all memory that a trainer holds in addition to the [`Model`](crate::Model).
    pub const fn bytes(&self) -> usize {
        4 * (self.state.len() + self.work_floats) + self.batch_bytes + self.sums_bytes
    }

    /// Floats of all parameters, including frozen parameters and the padding between them.
    pub const fn parameters(&self) -> usize {
        self.parameters
    }
}

fn checked(config: &Config, limits: TrainLimits) -> Result<TrainLimits, Error> {
    let decodes = config.decoder.is_some();
    let TrainLimits {
        sentences, source_tokens, target_tokens, source_length, target_length, ..
    } = limits;
    for (limit, value) in [
        ("sentences", sentences),
        ("source_tokens", source_tokens),
        ("target_tokens", target_tokens),
        ("source_length", source_length),
        ("target_length", target_length),
    ] {
        if value == 0 {
            return Err(Error::invalid_option(limit, "at least 1", "0"));
        }
        if value >= u32::MAX as usize / 2 {
            return Err(Error::too_large("the planned memory"));
        }
    }
    for (limit, found, side) in [
        ("source_length", source_length, Side::Encoder),
        ("target_length", target_length, Side::Decoder),
    ] {
        let most =
            if side == Side::Decoder && !decodes { None } else { config.max_positions(side) };
        if let Some(expected_at_most) = most
            && found > expected_at_most
        {
            let expected = format!("at most {expected_at_most}, the model's positions");
            return Err(Error::invalid_option(limit, expected, found.to_string()));
        }
    }
    Ok(TrainLimits {
        sentences: sentences.max(REDUCTION_CHUNK),
        source_tokens: source_tokens.max(REDUCTION_CHUNK).max(source_length),
        target_tokens: target_tokens.max(REDUCTION_CHUNK).max(target_length),
        ..limits
    })
}

/// Ranges of the encoder's convolutions; empty if the encoder has none.
fn conv(
    config: &Config,
    isa: Isa,
    limits: &TrainLimits,
    placed: &params::Placed,
    work: &mut Planner,
) -> Result<ConvSaved, Error> {
    let d = config.d_model;
    let saves_second = limits.keep == SavedActivations::Everything;
    let most = CONV_ROWS.min(limits.source_length);
    // Some positions and the position after them.
    let (rows, frames) = reach(most + 1);
    let (bins, there) = config.bins.map_or((0, false), |bins| (bins, true));
    let of = |rows: usize| if there { rows } else { 0 };
    let taps = if there { Backward::floats(isa, d, d)? } else { 0 };
    let shapes = placed.tensors.iter().map(|tensor| &tensor.shape[..]);
    Ok(ConvSaved {
        saves_second,
        second: work
            .take_product(of(if saves_second { limits.source_tokens } else { most + 1 }), d)?,
        window: work.take_product(of(frames), bins)?,
        hidden: work.take_product(of(rows), d)?,
        first: work.take_product(of(rows), d)?,
        d_second: work.take_product(of(most + 1), d)?,
        d_first: work.take_product(of(Features::STRIDE * most), d)?,
        taps: [work.take(taps)?, work.take(taps)?, work.take(taps)?],
        reorder_scratch: work.take(refresh_floats(shapes))?,
    })
}

/// Ranges of a stack of `rows` tokens, whose cross-attention, if any, reads `keys` keys.
fn stack(
    config: &Config,
    side: Side,
    rows: usize,
    keys: usize,
    limits: &TrainLimits,
    work: &mut Planner,
) -> Result<StackSaved, Error> {
    let d = config.d_model;
    let Some(shape) = config.stack(side).copied() else { return Err(no_decoder()) };
    let (length, types) = match side {
        Side::Encoder => (limits.source_length, config.token_types.max(1)),
        Side::Decoder => (limits.target_length, 1),
    };
    let norm = |work: &mut Planner, there: bool| {
        let rows = if there { rows } else { 0 };
        Ok::<_, Error>(NormSaved { standard: work.take_product(rows, d)?, scale: work.take(rows)? })
    };
    let positions = work.take_product(types * length, d)?;
    let relative = RelativePlan::new(config, side, length)?;
    let relative_tables = work.take(relative.floats)?;
    let d_relative_stride = match relative.buckets {
        Some((buckets, positions)) => buckets.table_len(shape.heads, positions)?,
        None => 0,
    };
    let d_relative = work.take_product(d_relative_stride, shape.layers)?;
    let embedded = work.take_product(rows, d)?;
    let embedding_norm = norm(work, shape.embedding_norm.is_some())?;

    let keep = limits.keep;
    let attention_dim = config.attention_dim(side);
    let sums = shape.heads * 2;
    let attention = |work: &mut Planner, width: usize, keys: usize| {
        Ok::<_, Error>(AttentionSaved {
            norm: norm(work, true)?,
            projected: work.take_product(rows, width * attention_dim)?,
            key_value: work.take_product(keys, 2 * attention_dim)?,
            context: work.take_product(rows, attention_dim)?,
            sums: work.take_product(rows, sums)?,
        })
    };
    let layer = |work: &mut Planner| {
        Ok::<_, Error>(LayerSaved {
            input: 0..0,
            self_attention: attention(work, 3, 0)?,
            cross_attention: match side {
                Side::Encoder => None,
                Side::Decoder => Some(attention(work, 1, keys)?),
            },
            feed_forward: FeedForwardSaved {
                norm: norm(work, true)?,
                gate: work.take_product(if config.gated { rows } else { 0 }, shape.ffn_dim)?,
                up: work.take_product(rows, shape.ffn_dim)?,
            },
        })
    };
    let mut layers: Vec<LayerSaved> = Vec::with_capacity(shape.layers);
    match keep {
        SavedActivations::Everything => {
            for _ in 0..shape.layers {
                layers.push(layer(work)?);
            }
        }
        SavedActivations::Inputs => {
            let shared = layer(work)?;
            for _ in 0..shape.layers {
                layers.push(LayerSaved { input: work.take_product(rows, d)?, ..shared.clone() });
            }
        }
        SavedActivations::Projections | SavedActivations::Context => {
            let shared = shared_of(config, side, rows, keys, keep, work)?;
            for _ in 0..shape.layers {
                let mut saved = shared.clone();
                let norms = [Some(&mut saved.self_attention), saved.cross_attention.as_mut()];
                for attention in norms.into_iter().flatten() {
                    attention.norm = norm(work, true)?;
                    attention.context = work.take_product(rows, attention_dim)?;
                    attention.sums = work.take_product(rows, sums)?;
                }
                saved.feed_forward.norm = norm(work, true)?;
                if keep == SavedActivations::Projections {
                    saved.self_attention.projected = work.take_product(rows, 3 * attention_dim)?;
                    if let Some(cross) = &mut saved.cross_attention {
                        cross.projected = work.take_product(rows, attention_dim)?;
                        cross.key_value = work.take_product(keys, 2 * attention_dim)?;
                    }
                }
                layers.push(saved);
            }
        }
    }
    Ok(StackSaved {
        positions,
        relative,
        relative_tables,
        d_relative,
        d_relative_stride,
        embedded,
        embedding_norm,
        layers,
        final_norm: norm(work, shape.final_norm)?,
        x: work.take_product(rows, d)?,
        d_x: work.take_product(rows, d)?,
    })
}

/// Buffers that all layers share because no layer saves them; the other ranges are empty.
fn shared_of(
    config: &Config,
    side: Side,
    rows: usize,
    keys: usize,
    keep: SavedActivations,
    work: &mut Planner,
) -> Result<LayerSaved, Error> {
    let attention_dim = config.attention_dim(side);
    let ffn = config.stack(side).map_or(0, |stack| stack.ffn_dim);
    let nothing = NormSaved { standard: 0..0, scale: 0..0 };
    let projections = keep == SavedActivations::Context;
    let mut attention = |width: usize, keys: usize| {
        let (rows, keys) = if projections { (rows, keys) } else { (0, 0) };
        Ok::<_, Error>(AttentionSaved {
            norm: nothing.clone(),
            projected: work.take_product(rows, width * attention_dim)?,
            key_value: work.take_product(keys, 2 * attention_dim)?,
            context: 0..0,
            sums: 0..0,
        })
    };
    let self_attention = attention(3, 0)?;
    let cross_attention = match side {
        Side::Encoder => None,
        Side::Decoder => Some(attention(1, keys)?),
    };
    Ok(LayerSaved {
        input: 0..0,
        self_attention,
        cross_attention,
        feed_forward: FeedForwardSaved {
            norm: nothing.clone(),
            gate: work.take_product(if config.gated { rows } else { 0 }, ffn)?,
            up: work.take_product(rows, ffn)?,
        },
    })
}

impl fmt::Display for TrainPlan {
    /// One line for each part that takes memory, and the sum.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |range: &Range<usize>| 4 * range.len();
        let stacks = [Some(&self.encoder), self.decoder.as_ref()];
        let saved_bytes = stacks.into_iter().flatten().map(|s| 4 * (s.x.start - s.positions.start));
        let conv_bytes = if self.conv.saves_second { bytes(&self.conv.second) } else { 0 };
        let saved_bytes = saved_bytes.sum::<usize>() + conv_bytes;
        let mut lines: Vec<_> = self.state.parts().collect();
        lines.push(("saved for the backward pass", saved_bytes));
        lines.push(("logits of a reduction chunk", bytes(&self.logits)));
        let counted: usize = lines.iter().map(|(_, bytes)| bytes).sum();
        lines.push(("gradients of activations, scratch, ids", self.bytes() - counted));
        ByteTable { lines: &lines }.fmt(f)
    }
}
