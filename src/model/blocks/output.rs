//! From hidden states to the vocabulary: logits, or only the argmax.

use super::ExecContext;
use crate::model::weights::{Output, Weight};
use simdformer_kernels::{Error as KernelError, Matrix, pruned_argmax};

/// `x` is `[rows, d_model]`, `logits` `[rows, vocabulary]`; `scratch` is the buffer for quantized activations.
pub(crate) fn logits(
    run: &ExecContext<'_>,
    block: &Output,
    x: &[f32],
    scratch: &mut [f32],
    logits: &mut [f32],
) -> Result<(), KernelError> {
    run.project(&block.linear, x, scratch, logits)
}

/// The best tokens of hidden states.
pub(crate) struct Best<'b> {
    /// `[rows]`: tokens, or [`pruned_argmax::UNDECIDED`].
    pub(crate) tokens: &'b mut [u32],
    /// `[rows]`.
    pub(crate) values: &'b mut [f32],
    /// [`pruned_argmax::scratch`] elements.
    pub(crate) scratch: &'b mut [f32],
}

/// For each row of `x`, `[rows, d_model]`, the token of the largest logit that is not banned, or
/// [`pruned_argmax::UNDECIDED`] if the pruning table does not determine it. Without a pruning table all rows
/// are undecided.
pub(crate) fn best(
    run: &ExecContext<'_>,
    block: &Output,
    x: &[f32],
    banned: &(dyn Fn(usize, u32) -> bool + Sync),
    best: &mut Best<'_>,
) -> Result<(), KernelError> {
    let Best { tokens, values, scratch } = best;
    let (Some(pruning_table), Weight::Floats(weight)) =
        (run.weights.pruning_table(block)?, run.weights.matrix(&block.linear)?)
    else {
        tokens.fill(pruned_argmax::UNDECIDED);
        return Ok(());
    };
    let product = pruned_argmax::Product {
        weight: &weight,
        screen: &pruning_table,
        bias: run.weights.bias(&block.linear),
        by_column: block.by_column.as_ref().map(|table| run.weights.table(table)).transpose()?,
    };
    let x = Matrix::new(x, x.len() / weight.depth(), weight.depth())?;
    pruned_argmax::argmax(&product, x, banned, (tokens, values), scratch, run.parallelism)
}
