//! Self-attention and cross-attention (section 3.2 of the paper), and the kernel calls of a session.
//!
//! Self-attention of the encoder reads the concatenated tokens of all sentences; no other block of the encoder
//! depends on the boundaries of sentences. In the decoder a token attends to itself and to the earlier tokens in the
//! KV cache. The keys and values of the source are computed once per sentence, and all its hypotheses read them.

use super::{ExecContext, add_and_norm};
use crate::config::Side;
use crate::error::Error;
use crate::model::forward::{BlockId, BlockOps, ForwardMode};
use crate::model::pass_input::{Past, SourcePass, TargetPass, Workspace};
use crate::model::weights::{CrossAttention, Linear, Norm, SelfAttention};
use simdformer_kernels::{
    Activation, AttentionOptions, CacheMut, CachedSequence, Error as KernelError, Heads, HeadsMut,
    Qkv, Sequence, SlotTable, attention as attention_kernel, attention_cached, attention_decode,
};

/// Sentences per call of an attention kernel; their parameters fit on the stack.
const SENTENCES_PER_CALL: usize = 64;

/// Adds self-attention of layer `layer` to the residual stream, with its norm.
pub(crate) fn self_attention<M: ForwardMode>(
    run: &ExecContext<'_>,
    block: &SelfAttention,
    layer: usize,
    mode: &mut M,
) -> Result<(), Error> {
    let matrices = [&block.query_key_value, &block.output];
    attention(run, &block.norm, matrices, BlockId::SelfAttention(layer), mode)
}

/// Adds the attention of the target to the source to the residual stream, with its norm.
pub(crate) fn cross_attention<M: ForwardMode>(
    run: &ExecContext<'_>,
    block: &CrossAttention,
    layer: usize,
    mode: &mut M,
) -> Result<(), Error> {
    mode.project_source(block, layer)?;
    let matrices = [&block.query, &block.output];
    attention(run, &block.norm, matrices, BlockId::CrossAttention(layer), mode)
}

fn attention<M: ForwardMode>(
    run: &ExecContext<'_>,
    norm: &Norm,
    [projection, output]: [&Linear; 2],
    block: BlockId,
    mode: &mut M,
) -> Result<(), Error> {
    let (work, mut ops) = mode.block(block)?;
    let Workspace { x, h, context, qkv, scratch, rounded, .. } = work;
    let rows = x.len() / run.config.d_model;
    let projected = &mut qkv[..rows * projection.columns()];
    let context = &mut context[..rows * output.matrix.depth];
    add_and_norm(run, norm, [x, h], &mut ops, |ops, input, post_op, out| {
        run.project(projection, input, rounded, projected)?;
        ops.attend(projected, context, scratch)?;
        Ok(run.linear(output, context, rounded, (Activation::Identity, post_op), out)?)
    })?;
    drop(ops);
    mode.after_attention(block, output)
}

/// `context = attention of every sentence`, from one `[tokens, (query, key, value), heads, head_dim]` tensor.
pub(crate) fn attend_sentences(
    run: &ExecContext<'_>,
    pass: &SourcePass<'_>,
    layer: usize,
    qkv: &[f32],
    context: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let rows = pass.lengths.iter().map(|&len| len as usize).sum();
    let shape = run.heads(Side::Encoder, rows);
    let bias = pass.relative.of_layer(layer);
    let options = AttentionOptions { bias, ..run.encoder_attention() };
    let mut start = 0;
    for lengths in pass.lengths.chunks(SENTENCES_PER_CALL) {
        let mut sequences = [Sequence::default(); SENTENCES_PER_CALL];
        for (sequence, &len) in sequences.iter_mut().zip(lengths) {
            *sequence = Sequence::packed(start, len as usize);
            start += len as usize;
        }
        attention_kernel(
            run.exec(),
            Qkv::fused(qkv, shape)?,
            &sequences[..lengths.len()],
            &options,
            HeadsMut::new(context, shape)?.into(),
            scratch,
        )?;
    }
    Ok(())
}

/// Appends keys and values of the tokens to `cache`, and attends to all keys of their hypotheses.
pub(crate) fn attend_cached(
    run: &ExecContext<'_>,
    pass: &TargetPass<'_>,
    layer: usize,
    qkv: &[f32],
    cache: &mut CacheMut<'_>,
    context: &mut [f32],
) -> Result<(), KernelError> {
    let shape = run.heads(Side::Decoder, pass.tokens.ids.len());
    let Qkv { query, key, value } = Qkv::fused(qkv, shape)?;
    cache.append_with(pass.slots, pass.tokens.positions, key, value, run.parallelism)?;
    let context = HeadsMut::new(context, shape)?;
    let bias = pass.relative.of_layer(layer);
    let options = AttentionOptions { causal: true, bias, ..run.attention_options(Side::Decoder) };
    match pass.past {
        Past::SlotTable { lens, ancestry, stride } => attention_decode(
            query,
            &cache.as_view(),
            SlotTable { lens, slots: ancestry, stride },
            &options,
            context,
            run.parallelism,
        ),
        Past::Slot { slot, len } => {
            let query_len = query.tokens();
            attention_cached(
                query,
                &cache.as_view(),
                &[CachedSequence { query_start: 0, query_len, slot, key_len: len }],
                &options,
                context.into(),
                run.parallelism,
            )
        }
    }
}

/// Attends to the source. Adjacent rows of one sentence, its beams, read its keys and values together.
pub(crate) fn attend_source(
    run: &ExecContext<'_>,
    pass: &TargetPass<'_>,
    query: &[f32],
    cache: &CacheMut<'_>,
    context: &mut [f32],
) -> Result<(), KernelError> {
    let rows = pass.sentences.len();
    let shape = run.heads(Side::Decoder, rows);
    let options = run.attention_options(Side::Decoder);
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
            &cache.as_view(),
            &sequences[..count],
            &options,
            HeadsMut::new(context, shape)?.into(),
            run.parallelism,
        )?;
    }
    Ok(())
}

/// Stores the keys and values of sentence `i`, `lengths[i]` tokens, in slot `slots[i]`. `key_value` is
/// `[tokens, (key, value), heads, head_dim]`, the projection of the concatenated encoder outputs.
pub(crate) fn store_source(
    run: &ExecContext<'_>,
    key_value: &[f32],
    lengths: &[u32],
    slots: &[u32],
    cache: &mut CacheMut<'_>,
) -> Result<(), KernelError> {
    let d = run.config.attention_dim(Side::Decoder);
    let mut start = 0;
    for (&len, &slot) in lengths.iter().zip(slots) {
        let shape @ [len, _, head_dim] = run.heads(Side::Decoder, len as usize);
        let part = |i: usize| {
            let from = &key_value[start * 2 * d + i * d..];
            Heads::strided(from, shape, 2 * d, head_dim)
        };
        cache.write(slot as usize, 0, part(0)?, part(1)?)?;
        start += len;
    }
    Ok(())
}
