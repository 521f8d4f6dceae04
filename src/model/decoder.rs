//! The decoder stack: one row per hypothesis in a step, or many rows of one hypothesis when a prefix
//! is filled in. Both go through the same kernels and give the same bits.

use crate::config::{NormPlacement, Side};
use crate::error::KernelError;
use crate::memory::Caches;
use crate::model::blocks::{Embedding, FeedForward, Linear, Norm, Run, embed, look, sublayer};
use crate::trace::{At, Block, Rows, Stage, Strided, Tap};
use core::ops::Range;
use simdformer_kernels::screen::{self, Screen};
use simdformer_kernels::{
    Activation, Ancestry, AttentionOptions, CachedSequence, Heads, HeadsMut, Matrix, Residual,
    attention_cached, attention_step,
};

/// Sentences whose descriptions fit on the stack for one call of the attention kernel.
const SENTENCES_PER_CALL: usize = 64;

/// Weights of the decoder.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    pub(crate) embedding: Embedding,
    pub(crate) layers: Vec<DecoderLayer>,
    pub(crate) final_norm: Option<Norm>,
    /// To the vocabulary.
    pub(crate) output: Linear,
    /// The bytes of `output`, where they pay.
    pub(crate) screen: Option<Range<usize>>,
}

/// Weights of one decoder layer.
#[derive(Clone, Debug)]
pub(crate) struct DecoderLayer {
    /// Query, key and value of self-attention side by side.
    pub(crate) qkv: Linear,
    pub(crate) out: Linear,
    pub(crate) attention_norm: Norm,
    pub(crate) cross_query: Linear,
    /// Key and value of cross-attention side by side, applied to the encoder's memory once.
    pub(crate) cross_key_value: Linear,
    pub(crate) cross_out: Linear,
    pub(crate) cross_norm: Norm,
    pub(crate) feed_forward: FeedForward,
    pub(crate) feed_forward_norm: Norm,
}

/// Memory of the decoder for `rows` tokens; the shapes of [`crate::model::encoder::Workspace`].
pub(crate) struct Workspace<'w> {
    pub(crate) x: &'w mut [f32],
    pub(crate) h: &'w mut [f32],
    pub(crate) context: &'w mut [f32],
    pub(crate) qkv: &'w mut [f32],
    pub(crate) hidden: &'w mut [f32],
}

/// The tokens of one pass, and what they see.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'p> {
    /// Row `p` belongs to position `p`.
    pub(crate) position_table: &'p [f32],
    pub(crate) tokens: &'p [u32],
    pub(crate) positions: &'p [u32],
    /// Row slot that keeps each token's key and value.
    pub(crate) slots: &'p [u32],
    /// Sentence slot of each token.
    pub(crate) sentences: &'p [u32],
    /// Source length of each sentence slot.
    pub(crate) source_lens: &'p [u32],
    pub(crate) past: Past<'p>,
}

/// Where the past of the tokens of a pass is.
#[derive(Clone, Copy)]
pub(crate) enum Past<'p> {
    /// Each token is a hypothesis of its own: `lens[r]` keys, key `j` in slot
    /// `ancestry[r * stride + j]`.
    Ancestry { lens: &'p [u32], ancestry: &'p [u32], stride: usize },
    /// The tokens follow each other in one slot that holds their whole past.
    Slot { slot: usize, len: usize },
}

impl Pass<'_> {
    /// Without its first `tokens` tokens.
    pub(crate) fn skip(&self, tokens: usize) -> Self {
        let &Self { tokens: all, positions, slots, sentences, .. } = self;
        Self {
            tokens: &all[tokens..],
            positions: &positions[tokens..],
            slots: &slots[tokens..],
            sentences: &sentences[tokens..],
            ..*self
        }
    }

    /// What a probe is told about the tokens.
    pub(crate) fn at(&self) -> At<'_> {
        let &Self { slots, sentences, positions, .. } = self;
        At::outside(Rows::Target { slots, sentences, positions }, Side::Decoder)
    }
}

impl Decoder {
    /// Runs all layers over the tokens of `pass`, appends their keys and values to the cache, and
    /// leaves the last hidden states, `[tokens, d_model]`, in `work.x`.
    pub(crate) fn run<T: Tap>(
        &self,
        run: &Run<'_>,
        pass: &Pass<'_>,
        caches: &mut Caches<'_>,
        work: &mut Workspace<'_>,
        tap: &mut T,
    ) -> Result<(), KernelError> {
        let Workspace { x, h, context, qkv, hidden } = work;
        let config = run.model.config();
        let (d, heads, pre) =
            (config.d_model, config.decoder.heads, config.norm == NormPlacement::Pre);
        let (rows, head_dim) = (pass.tokens.len(), d / heads);
        let shape = [rows, heads, head_dim];
        let options = AttentionOptions { causal: true, ..AttentionOptions::new(head_dim) };
        let place = pass.at();
        embed(
            run,
            &self.embedding,
            pass.position_table,
            pass.tokens,
            pass.positions,
            x,
            tap,
            &place,
        )?;
        for (index, layer) in self.layers.iter().enumerate() {
            let at = place.block(index, Block::Own);
            let norm = &layer.attention_norm;
            sublayer(run, norm, pre, x, h, tap, &at, |tap, input, residual, out| {
                run.linear(&layer.qkv, input, Activation::Identity, Residual::None, qkv)?;
                let part = |i: usize| Heads::strided(&qkv[i * d..], shape, 3 * d, head_dim);
                let mut cache = caches.own(index)?;
                cache.append(pass.slots, pass.positions, part(1)?, part(2)?)?;
                let out_heads = HeadsMut::new(context, shape)?;
                match pass.past {
                    Past::Ancestry { lens, ancestry, stride } => attention_step(
                        part(0)?,
                        &cache.read(),
                        Ancestry { lens, slots: ancestry, stride },
                        &options,
                        out_heads,
                        run.parallelism,
                    )?,
                    Past::Slot { slot, len } => attention_cached(
                        part(0)?,
                        &cache.read(),
                        &[CachedSequence { query_start: 0, query_len: rows, slot, key_len: len }],
                        &options,
                        out_heads.into(),
                        run.parallelism,
                    )?,
                }
                look_at_own(run, pass, index, qkv, caches, context, tap, &at)?;
                run.linear(&layer.out, context, Activation::Identity, residual, out)
            })?;
            let at = place.block(index, Block::Cross);
            sublayer(run, &layer.cross_norm, pre, x, h, tap, &at, |tap, input, residual, out| {
                let query = &mut qkv[..rows * d];
                run.linear(&layer.cross_query, input, Activation::Identity, Residual::None, query)?;
                self.cross_attention(run, index, pass, query, caches, context)?;
                look_at_cross(run, pass, index, query, caches, context, tap, &at)?;
                run.linear(&layer.cross_out, context, Activation::Identity, residual, out)
            })?;
            let at = place.block(index, Block::FeedForward);
            let norm = &layer.feed_forward_norm;
            sublayer(run, norm, pre, x, h, tap, &at, |tap, input, residual, out| {
                layer.feed_forward.run(run, input, residual, hidden, out, |first, hidden| {
                    if let Some(mut watch) = tap.watch() {
                        let columns = layer.feed_forward.inner.columns;
                        let matrix = Strided { data: hidden, columns, stride: columns };
                        watch.strided(Stage::FeedForward, &at, first, matrix);
                    }
                })
            })?;
        }
        if let Some(norm) = &self.final_norm {
            run.norm_in_place(norm, x)?;
        }
        look(tap, Stage::Output, &place, x, d);
        Ok(())
    }

    /// Attends to the source. Rows of one sentence that lie side by side, its beams, read its keys
    /// and values together.
    fn cross_attention(
        &self,
        run: &Run<'_>,
        layer: usize,
        pass: &Pass<'_>,
        query: &[f32],
        caches: &mut Caches<'_>,
        context: &mut [f32],
    ) -> Result<(), KernelError> {
        let config = run.model.config();
        let (heads, rows) = (config.decoder.heads, pass.sentences.len());
        let head_dim = config.d_model / heads;
        let shape = [rows, heads, head_dim];
        let cache = caches.cross(layer)?;
        let mut next = 0;
        while next < rows {
            let mut sequences = [CachedSequence::default(); SENTENCES_PER_CALL];
            let mut count = 0;
            while next < rows && count < SENTENCES_PER_CALL {
                let sentence = pass.sentences[next];
                let len = pass.sentences[next..].iter().take_while(|&&s| s == sentence).count();
                sequences[count] = CachedSequence {
                    query_start: next,
                    query_len: len,
                    slot: sentence as usize,
                    key_len: pass.source_lens[sentence as usize] as usize,
                };
                count += 1;
                next += len;
            }
            attention_cached(
                Heads::new(query, shape)?,
                &cache.read(),
                &sequences[..count],
                &AttentionOptions::new(head_dim),
                HeadsMut::new(context, shape)?.into(),
                run.parallelism,
            )?;
        }
        Ok(())
    }

    /// Projects the encoder's memory of several sentences laid end to end, `[tokens, d_model]`, to the
    /// keys and values of every layer, and keeps sentence `i`, `lengths[i]` tokens, in slot `slots[i]`.
    /// `key_value` has room for `[tokens, 2 d_model]`.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn keep_memory<T: Tap>(
        &self,
        run: &Run<'_>,
        memory: &[f32],
        lengths: &[u32],
        slots: &[u32],
        caches: &mut Caches<'_>,
        key_value: &mut [f32],
        tap: &mut T,
    ) -> Result<(), KernelError> {
        let config = run.model.config();
        let (d, heads) = (config.d_model, config.decoder.heads);
        let head_dim = d / heads;
        let key_value = &mut key_value[..memory.len() * 2];
        for (index, layer) in self.layers.iter().enumerate() {
            run.linear(
                &layer.cross_key_value,
                memory,
                Activation::Identity,
                Residual::None,
                key_value,
            )?;
            if let Some(mut watch) = tap.watch() {
                let rows = Rows::Source { lengths, slots: Some(slots) };
                let at = At::outside(rows, Side::Decoder).block(index, Block::Cross);
                for (part, stage) in [Stage::Key, Stage::Value].into_iter().enumerate() {
                    let matrix =
                        Strided { data: &key_value[part * d..], columns: d, stride: 2 * d };
                    watch.strided(stage, &at, 0, matrix);
                }
            }
            let mut cache = caches.cross(index)?;
            let mut start = 0;
            for (&len, &slot) in lengths.iter().zip(slots) {
                let len = len as usize;
                let part = |i: usize| {
                    let from = &key_value[start * 2 * d + i * d..];
                    Heads::strided(from, [len, heads, head_dim], 2 * d, head_dim)
                };
                cache.write(slot as usize, 0, part(0)?, part(1)?)?;
                start += len;
            }
        }
        Ok(())
    }

    /// Logits of hidden states: `x` is `[rows, d_model]`, `logits` `[rows, vocabulary]`.
    pub(crate) fn logits(
        &self,
        run: &Run<'_>,
        x: &[f32],
        logits: &mut [f32],
    ) -> Result<(), KernelError> {
        run.linear(&self.output, x, Activation::Identity, Residual::None, logits)
    }
}

/// The best tokens of hidden states.
pub(crate) struct Best<'b> {
    /// `[rows]`: tokens, or [`screen::UNDECIDED`].
    pub(crate) tokens: &'b mut [u32],
    /// `[rows]`.
    pub(crate) values: &'b mut [f32],
    /// Of [`screen::scratch`] floats.
    pub(crate) scratch: &'b mut [f32],
}

impl Decoder {
    /// For each row of `x`, `[rows, d_model]`, the token of the largest logit that is not banned, where
    /// it can be told from the screen.
    pub(crate) fn best(
        &self,
        run: &Run<'_>,
        screen: &Range<usize>,
        x: &[f32],
        banned: &(dyn Fn(usize, u32) -> bool + Sync),
        best: &mut Best<'_>,
    ) -> Result<(), KernelError> {
        let (model, Linear { depth, columns, .. }) = (run.model, &self.output);
        let (depth, columns) = (*depth, *columns);
        let config = model.config();
        let rows = x.len() / depth;
        // Tied to the output, the embedding is its weight by columns.
        let table = model.weights(self.embedding.table.clone());
        let by_column = config.ties.target_output.then(|| Matrix::new(table, columns, depth));
        let bias = self.output.bias.clone().map(|range| model.weights(range));
        let product = screen::Product {
            weight: &self.output.packed(model)?,
            screen: &Screen::from_built(depth, columns, model.weights(screen.clone()))?,
            bias,
            by_column: by_column.transpose()?,
        };
        let Best { tokens, values, scratch } = best;
        let x = Matrix::new(x, rows, depth)?;
        screen::largest(&product, x, banned, (tokens, values), scratch, run.parallelism)?;
        Ok(())
    }
}

/// Shows query, key, value, scores, weights and context of self-attention to the probe, if there is
/// one.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn look_at_own<T: Tap>(
    run: &Run<'_>,
    pass: &Pass<'_>,
    layer: usize,
    qkv: &[f32],
    caches: &mut Caches<'_>,
    context: &[f32],
    tap: &mut T,
    at: &At<'_>,
) -> Result<(), KernelError> {
    let Some(mut watch) = tap.watch() else { return Ok(()) };
    let config = run.model.config();
    let (d, heads) = (config.d_model, config.decoder.heads);
    for (index, stage) in [Stage::Query, Stage::Key, Stage::Value].into_iter().enumerate() {
        let matrix = Strided { data: &qkv[index * d..], columns: d, stride: 3 * d };
        watch.strided(stage, at, 0, matrix);
    }
    let query = Heads::strided(qkv, [pass.tokens.len(), heads, d / heads], 3 * d, d / heads)?;
    let cache = caches.own(layer)?;
    let cache = cache.read();
    watch.attention(
        run.isa(),
        at,
        query,
        true,
        |rows| rows.position + rows.len,
        |rows, j, head, out| {
            let slot = match pass.past {
                Past::Ancestry { ancestry, stride, .. } => {
                    ancestry[rows.start * stride + j] as usize
                }
                Past::Slot { slot, .. } => slot,
            };
            Ok(cache.read_key(slot, j, head, out)?)
        },
    )?;
    watch.rows(Stage::Context, at, context, d);
    Ok(())
}

/// Shows query, scores, weights and context of cross-attention to the probe, if there is one.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn look_at_cross<T: Tap>(
    run: &Run<'_>,
    pass: &Pass<'_>,
    layer: usize,
    query: &[f32],
    caches: &mut Caches<'_>,
    context: &[f32],
    tap: &mut T,
    at: &At<'_>,
) -> Result<(), KernelError> {
    let Some(mut watch) = tap.watch() else { return Ok(()) };
    let config = run.model.config();
    let (d, heads) = (config.d_model, config.decoder.heads);
    watch.rows(Stage::Query, at, query, d);
    let query = Heads::new(query, [pass.tokens.len(), heads, d / heads])?;
    let cache = caches.cross(layer)?;
    let cache = cache.read();
    watch.attention(
        run.isa(),
        at,
        query,
        false,
        |rows| pass.source_lens[rows.sentence as usize] as usize,
        |rows, j, head, out| Ok(cache.read_key(rows.sentence as usize, j, head, out)?),
    )?;
    watch.rows(Stage::Context, at, context, d);
    Ok(())
}
