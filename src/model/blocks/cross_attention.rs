//! Attention of the target to the source. Keys and values are computed once per sentence; all its hypotheses
//! read them.

use super::{ExecContext, add_and_norm};
use crate::config::Side;
use crate::model::pass::{TargetPass, Workspace};
use crate::model::weights::CrossAttention;
use simdformer_kernels::{
    Activation, CacheMut, CachedSequence, Error as KernelError, Heads, HeadsMut, attention_cached,
};

/// Sentences per call of the attention kernel; their parameters fit on the stack.
const SENTENCES_PER_CALL: usize = 64;

/// Adds the attention of the tokens to the source to `work.x`, with its norm.
pub(crate) fn cross_attention(
    run: &ExecContext<'_>,
    block: &CrossAttention,
    pass: &TargetPass<'_>,
    cache: &CacheMut<'_>,
    work: &mut Workspace<'_>,
) -> Result<(), KernelError> {
    let Workspace { x, h, context, qkv, rounded, .. } = work;
    let query = &mut qkv[..pass.tokens.ids.len() * block.query.columns()];
    add_and_norm(run, &block.norm, x, h, |input, residual, out| {
        run.project(&block.query, input, rounded, query)?;
        attend(run, pass, query, cache, context)?;
        run.linear(&block.output, context, rounded, (Activation::Identity, residual), out)
    })
}

/// Adjacent rows of one sentence, its beams, read its keys and values together.
fn attend(
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
            &cache.read(),
            &sequences[..count],
            &options,
            HeadsMut::new(context, shape)?.into(),
            run.parallelism,
        )?;
    }
    Ok(())
}

/// Projects the concatenated encoder outputs of several sentences, `[tokens, d_model]`, to the keys and values
/// of a layer, `[tokens, (key, value), d_model]`.
pub(crate) fn project_memory(
    run: &ExecContext<'_>,
    block: &CrossAttention,
    memory: &[f32],
    scratch: &mut [f32],
    key_value: &mut [f32],
) -> Result<(), KernelError> {
    run.project(&block.key_value, memory, scratch, key_value)
}

/// Stores the keys and values of sentence `i` from [`project_memory`], `lengths[i]` tokens, in slot `slots[i]`.
pub(crate) fn keep_memory(
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
