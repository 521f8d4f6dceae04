//! The position-wise feed-forward block, `FFN(x) = activation(x W1 + b1) W2 + b2` (equation 2 of
//! the paper); with a gate, `(activation(x Wg + bg) * (x W1 + b1)) W2 + b2`.

use super::{ExecContext, add_and_norm};
use crate::model::pass::Workspace;
use crate::model::weights::FeedForward;
use simdformer_kernels::{Activation, Error as KernelError, Residual};

/// Rows whose hidden activations are stored at a time. This bounds the planned memory: 128 rows of 2048 are 1
/// MiB, which stays in the second-level caches between the two projections.
pub(crate) const FEED_FORWARD_ROWS: usize = 128;

/// The number of rows if one thread computes all of them: their hidden activations take a little more than half
/// of a second-level cache.
const ROWS_ALONE: usize = 72;

/// Adds `FFN(x)` to `work.x`, with its norm. After each chunk of rows it calls `each(first, input, hidden)`
/// with the index of the first row of the chunk, the input of all rows, and the hidden activations of the
/// chunk.
pub(crate) fn feed_forward(
    run: &ExecContext<'_>,
    block: &FeedForward,
    work: &mut Workspace<'_>,
    mut each: impl FnMut(usize, &[f32], &[f32]),
) -> Result<(), KernelError> {
    let Workspace { x, h, hidden, rounded, .. } = work;
    let (d, inner) = (run.config.d_model, block.inner.columns());
    let most = if run.parallelism.threads() == 1 { ROWS_ALONE } else { FEED_FORWARD_ROWS };
    let chunk = most * d;
    add_and_norm(run, &block.norm, x, h, |input, residual, out| {
        for (index, (x, out)) in input.chunks(chunk).zip(out.chunks_mut(chunk)).enumerate() {
            let (first, rows) = (index * most, x.len() / d);
            let hidden = &mut hidden[..rows * inner];
            let activation = run.config.activation;
            match &block.gate {
                Some(gate) => run.gated([gate, &block.inner], x, rounded, activation, hidden)?,
                None => {
                    run.linear(&block.inner, x, rounded, (activation, Residual::None), hidden)?;
                }
            }
            each(first, input, hidden);
            let residual = match residual {
                Residual::Matrix(all) => Residual::Matrix(all.block(first, rows)?),
                other => other,
            };
            run.linear(&block.outer, hidden, rounded, (Activation::Identity, residual), out)?;
        }
        Ok(())
    })
}
