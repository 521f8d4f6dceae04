//! Self-attention of the decoder: a token attends to itself and to the earlier tokens in the KV cache.

use super::{ExecContext, add_and_norm};
use crate::config::Side;
use crate::model::pass::{Past, TargetPass, Workspace};
use crate::model::weights::SelfAttention;
use simdformer_kernels::{
    Activation, AttentionOptions, CacheMut, CachedSequence, Error as KernelError, Heads, HeadsMut,
    Qkv, SlotTable, attention_cached, attention_decode,
};

/// Appends keys and values of the tokens to `cache`, and adds their attention to `work.x`, with its norm.
pub(crate) fn cached_attention(
    run: &ExecContext<'_>,
    block: &SelfAttention,
    pass: &TargetPass<'_>,
    layer: usize,
    cache: &mut CacheMut<'_>,
    work: &mut Workspace<'_>,
) -> Result<(), KernelError> {
    let rows = pass.tokens.ids.len();
    let shape = run.heads(Side::Decoder, rows);
    let Workspace { x, h, context, qkv, rounded, .. } = work;
    let qkv = &mut qkv[..rows * block.query_key_value.columns()];
    add_and_norm(run, &block.norm, x, h, |input, residual, out| {
        run.project(&block.query_key_value, input, rounded, qkv)?;
        let Qkv { query, key, value } = Qkv::fused(qkv, shape)?;
        cache.append_with(pass.slots, pass.tokens.positions, key, value, run.parallelism)?;
        attend(run, pass, layer, query, cache, HeadsMut::new(context, shape)?)?;
        run.linear(&block.output, context, rounded, (Activation::Identity, residual), out)
    })
}

fn attend(
    run: &ExecContext<'_>,
    pass: &TargetPass<'_>,
    layer: usize,
    query: Heads<'_>,
    cache: &CacheMut<'_>,
    context: HeadsMut<'_>,
) -> Result<(), KernelError> {
    let bias = pass.relative.of_layer(layer);
    let options = AttentionOptions { causal: true, bias, ..run.attention_options(Side::Decoder) };
    match pass.past {
        Past::SlotTable { lens, ancestry, stride } => attention_decode(
            query,
            &cache.read(),
            SlotTable { lens, slots: ancestry, stride },
            &options,
            context,
            run.parallelism,
        )?,
        Past::Slot { slot, len } => {
            let query_len = query.tokens();
            attention_cached(
                query,
                &cache.read(),
                &[CachedSequence { query_start: 0, query_len, slot, key_len: len }],
                &options,
                context.into(),
                run.parallelism,
            )?;
        }
    }
    Ok(())
}
