//! From hidden states to the vocabulary: logits, or only the argmax.

use super::ExecContext;
use crate::model::weights::{Decoder, Weight};
use simdformer_kernels::{Error as KernelError, Matrix, pruned_argmax};

/// The best tokens of hidden states.
pub(crate) struct Best<'b> {
    /// `[rows]`: tokens, or [`pruned_argmax::UNDECIDED`].
    pub(crate) tokens: &'b mut [u32],
    /// `[rows]`.
    pub(crate) values: &'b mut [f32],
    /// [`pruned_argmax::argmax_scratch`] elements.
    pub(crate) scratch: &'b mut [f32],
}

impl Decoder {
    /// Logits of hidden states: `x` is `[rows, d_model]`, `out` `[rows, vocabulary]`; `scratch` is the buffer for
    /// quantized activations.
    pub(crate) fn logits(
        &self,
        run: &ExecContext<'_>,
        x: &[f32],
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        run.project(&self.output.linear, x, scratch, out)
    }

    /// Whether there is a pruning table for [`Decoder::best`].
    pub(crate) fn has_pruning_table(&self) -> bool {
        self.output.pruning_table.is_some()
    }

    /// For each row of `x`, `[rows, d_model]`, the token of the largest logit that is not banned, or
    /// [`pruned_argmax::UNDECIDED`] if the pruning table does not determine it. Without a pruning table all rows
    /// are undecided.
    pub(crate) fn best(
        &self,
        run: &ExecContext<'_>,
        x: &[f32],
        banned: &(dyn Fn(usize, u32) -> bool + Sync),
        out: &mut Best<'_>,
    ) -> Result<(), KernelError> {
        let (output, Best { tokens, values, scratch }) = (&self.output, out);
        let (Some(pruning_table), Weight::Floats(weight)) =
            (run.weights.pruning_table(output)?, run.weights.matrix(&output.linear)?)
        else {
            tokens.fill(pruned_argmax::UNDECIDED);
            return Ok(());
        };
        let product = pruned_argmax::Product {
            weight: &weight,
            pruning_table: &pruning_table,
            bias: run.weights.bias(&output.linear),
            by_column: output.by_column.as_ref().map(|t| run.weights.table(t)).transpose()?,
        };
        let x = Matrix::new(x, x.len() / weight.depth(), weight.depth())?;
        pruned_argmax::argmax(&product, x, banned, (tokens, values), scratch, run.parallelism)
    }
}
