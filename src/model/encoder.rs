//! The encoder stack over the tokens of all sentences laid end to end: no row is padding, and
//! attention is the only place where sentences are told apart.

use crate::config::{NormPlacement, Side};
use crate::error::KernelError;
use crate::model::blocks::{Embedding, FeedForward, Linear, Norm, Run, embed, look, sublayer};
use crate::trace::{At, Block, Rows, Stage, Strided, Tap};
use simdformer_kernels::{
    Activation, AttentionOptions, Heads, HeadsMut, Qkv, Residual, Sequence, attention,
};

/// Sentences whose descriptions fit on the stack for one call of the attention kernel.
const SENTENCES_PER_CALL: usize = 64;

/// Weights of the encoder.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    pub(crate) embedding: Embedding,
    pub(crate) layers: Vec<EncoderLayer>,
    pub(crate) final_norm: Option<Norm>,
}

/// Weights of one encoder layer.
#[derive(Clone, Debug)]
pub(crate) struct EncoderLayer {
    /// Query, key and value side by side.
    pub(crate) qkv: Linear,
    pub(crate) out: Linear,
    pub(crate) attention_norm: Norm,
    pub(crate) feed_forward: FeedForward,
    pub(crate) feed_forward_norm: Norm,
}

/// Memory of the encoder for `rows` tokens.
pub(crate) struct Workspace<'w> {
    /// `[rows, d_model]`: the residual stream, and in the end the memory.
    pub(crate) x: &'w mut [f32],
    /// `[rows, d_model]`.
    pub(crate) h: &'w mut [f32],
    /// `[rows, d_model]`: what the heads found, side by side.
    pub(crate) context: &'w mut [f32],
    /// `[rows, 3 d_model]`.
    pub(crate) qkv: &'w mut [f32],
    /// `[min(rows, FEED_FORWARD_ROWS), encoder_ffn]`.
    pub(crate) hidden: &'w mut [f32],
    /// For the attention kernel.
    pub(crate) scratch: &'w mut [f32],
}

impl Encoder {
    /// Encodes `tokens`, those of all sentences laid end to end; sentence `i` has `lengths[i]` of
    /// them, and token `t` is at position `at[t]` of its sentence, row `at[t]` of `positions`. The
    /// memory is left in `work.x`. `tap` is told that sentence `i` is in slot `slots[i]`.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn run<T: Tap>(
        &self,
        run: &Run<'_>,
        positions: &[f32],
        tokens: &[u32],
        at: &[u32],
        lengths: &[u32],
        slots: Option<&[u32]>,
        work: Workspace<'_>,
        tap: &mut T,
    ) -> Result<(), KernelError> {
        let Workspace { x, h, context, qkv, hidden, scratch } = work;
        let config = run.model.config();
        let (d, pre) = (config.d_model, config.norm == NormPlacement::Pre);
        let place = At::outside(Rows::Source { lengths, slots }, Side::Encoder);
        embed(run, &self.embedding, positions, tokens, at, x, tap, &place)?;
        for (index, layer) in self.layers.iter().enumerate() {
            let own = place.block(index, Block::Own);
            sublayer(
                run,
                &layer.attention_norm,
                pre,
                x,
                h,
                tap,
                &own,
                |tap, input, residual, out| {
                    run.linear(&layer.qkv, input, Activation::Identity, Residual::None, qkv)?;
                    self_attention(run, config.encoder.heads, lengths, qkv, context, scratch)?;
                    look_at_attention(run, config.encoder.heads, qkv, context, tap, &own)?;
                    run.linear(
                        &layer.out,
                        &context[..tokens.len() * d],
                        Activation::Identity,
                        residual,
                        out,
                    )
                },
            )?;
            let inner = place.block(index, Block::FeedForward);
            let norm = &layer.feed_forward_norm;
            sublayer(run, norm, pre, x, h, tap, &inner, |tap, input, residual, out| {
                layer.feed_forward.run(run, input, residual, hidden, out, |first, hidden| {
                    if let Some(mut watch) = tap.watch() {
                        let columns = layer.feed_forward.inner.columns;
                        let matrix = Strided { data: hidden, columns, stride: columns };
                        watch.strided(Stage::FeedForward, &inner, first, matrix);
                    }
                })
            })?;
        }
        if let Some(norm) = &self.final_norm {
            run.norm_in_place(norm, x)?;
        }
        look(tap, Stage::Memory, &place, x, d);
        Ok(())
    }
}

/// Shows query, key, value, scores, weights and context to the probe, if there is one.
#[inline(always)]
fn look_at_attention<T: Tap>(
    run: &Run<'_>,
    heads: usize,
    qkv: &[f32],
    context: &[f32],
    tap: &mut T,
    at: &At<'_>,
) -> Result<(), KernelError> {
    let Some(mut watch) = tap.watch() else { return Ok(()) };
    let d = run.model.config().d_model;
    for (index, stage) in [Stage::Query, Stage::Key, Stage::Value].into_iter().enumerate() {
        let matrix = Strided { data: &qkv[index * d..], columns: d, stride: 3 * d };
        watch.strided(stage, at, 0, matrix);
    }
    let (tokens, head_dim) = (qkv.len() / (3 * d), d / heads);
    let shape = [tokens, heads, head_dim];
    let query = Heads::strided(qkv, shape, 3 * d, head_dim)?;
    let keys = Heads::strided(&qkv[d..], shape, 3 * d, head_dim)?;
    watch.attention(
        run.isa(),
        at,
        query,
        false,
        |run| run.len,
        |run, j, head, out| {
            out.copy_from_slice(keys.row(run.start + j, head).unwrap_or(&[]));
            Ok(())
        },
    )?;
    watch.rows(Stage::Context, at, &context[..tokens * d], d);
    Ok(())
}

/// `context = attention of every sentence`, from one `[tokens, (q, k, v), heads, head_dim]`.
fn self_attention(
    run: &Run<'_>,
    heads: usize,
    lengths: &[u32],
    qkv: &[f32],
    context: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let d = run.model.config().d_model;
    let (tokens, head_dim) = (qkv.len() / (3 * d), d / heads);
    let shape = [tokens, heads, head_dim];
    let mut start = 0;
    for lengths in lengths.chunks(SENTENCES_PER_CALL) {
        let mut sequences = [Sequence::default(); SENTENCES_PER_CALL];
        for (sequence, &len) in sequences.iter_mut().zip(lengths) {
            *sequence = Sequence::packed(start, len as usize);
            start += len as usize;
        }
        attention(
            run.isa(),
            Qkv::fused(qkv, shape)?,
            &sequences[..lengths.len()],
            &AttentionOptions::new(head_dim),
            HeadsMut::new(context, shape)?.into(),
            scratch,
            run.parallelism,
        )?;
    }
    Ok(())
}
