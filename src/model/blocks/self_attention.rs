//! Self-attention of the encoder (section 3.2 of the paper) over the concatenated tokens of all sentences. It
//! is the only block of the encoder that depends on the boundaries of sentences.

use super::{ExecContext, add_and_norm};
use crate::config::Side;
use crate::model::pass::{SourcePass, Workspace};
use crate::model::weights::SelfAttention;
use simdformer_kernels::{
    Activation, AttentionOptions, Error as KernelError, HeadsMut, Qkv, Sequence, attention,
};

/// Sentences per call of the attention kernel; their parameters fit on the stack.
const SENTENCES_PER_CALL: usize = 64;

/// Adds the attention of the tokens within their sentences to `work.x`, with its norm.
pub(crate) fn self_attention(
    run: &ExecContext<'_>,
    block: &SelfAttention,
    pass: &SourcePass<'_>,
    layer: usize,
    work: &mut Workspace<'_>,
) -> Result<(), KernelError> {
    let Workspace { x, h, context, qkv, scratch, rounded, .. } = work;
    let rows = x.len() / run.config.d_model;
    let qkv = &mut qkv[..rows * block.query_key_value.columns()];
    add_and_norm(run, &block.norm, x, h, |input, residual, out| {
        run.project(&block.query_key_value, input, rounded, qkv)?;
        attend(run, rows, pass, layer, qkv, context, scratch)?;
        run.linear(&block.output, context, rounded, (Activation::Identity, residual), out)
    })
}

/// `context = attention of every sentence`, from one `[tokens, (query, key, value), heads, head_dim]` tensor.
fn attend(
    run: &ExecContext<'_>,
    rows: usize,
    pass: &SourcePass<'_>,
    layer: usize,
    qkv: &[f32],
    context: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let shape = run.heads(Side::Encoder, rows);
    let bias = pass.relative.of_layer(layer);
    let options = AttentionOptions { bias, ..run.attention_options(Side::Encoder) };
    let mut start = 0;
    for lengths in pass.lengths.chunks(SENTENCES_PER_CALL) {
        let mut sequences = [Sequence::default(); SENTENCES_PER_CALL];
        for (sequence, &len) in sequences.iter_mut().zip(lengths) {
            *sequence = Sequence::packed(start, len as usize);
            start += len as usize;
        }
        attention(
            run.isa(),
            Qkv::fused(qkv, shape)?,
            &sequences[..lengths.len()],
            &options,
            HeadsMut::new(context, shape)?.into(),
            scratch,
            run.parallelism,
        )?;
    }
    Ok(())
}
