//! The position-wise feed-forward block, `FFN(x) = activation(x W1 + b1) W2 + b2` (equation 2 of
//! the paper); with a gate, `(activation(x Wg + bg) * (x W1 + b1)) W2 + b2`.

use super::{ExecContext, add_and_norm};
use crate::error::Error;
use crate::model::forward::{BlockId, BlockOps, ForwardMode};
use crate::model::pass_input::Workspace;
use crate::model::weights::FeedForward;
use simdformer_kernels::{Activation, Error as KernelError, PostOp};

/// Rows whose hidden activations are stored at a time. This bounds the planned memory: 128 rows of 2048 are 1
/// MiB, which stays in the second-level caches between the two projections.
pub(crate) const FEED_FORWARD_ROWS: usize = 128;

/// The number of rows if one thread computes all of them: their hidden activations take a little more than half
/// of a second-level cache.
const ROWS_ALONE: usize = 72;

/// The rows of a session whose hidden activations are computed at a time.
pub(crate) fn chunk_rows(run: &ExecContext<'_>) -> usize {
    if run.parallelism.threads() == 1 { ROWS_ALONE } else { FEED_FORWARD_ROWS }
}

/// Adds `FFN(x)` to the residual stream, with its norm, one chunk of rows after the other.
pub(crate) fn feed_forward<M: ForwardMode>(
    run: &ExecContext<'_>,
    block: &FeedForward,
    layer: usize,
    mode: &mut M,
) -> Result<(), Error> {
    let id = BlockId::FeedForward(layer);
    let (Workspace { x, h, hidden, rounded, .. }, mut ops) = mode.block(id)?;
    let (d, width) = (run.config.d_model, block.up.columns());
    add_and_norm(run, &block.norm, [x, h], &mut ops, |ops, input, post_op, out| {
        let (mut start, rows) = (0, input.len() / d);
        while start < rows {
            let chunk = start..ops.chunk_end(start, rows);
            let hidden = &mut hidden[..chunk.len() * width];
            ops.hidden(block, (input, chunk.clone()), rounded, hidden)?;
            let post_op = match post_op {
                PostOp::Add(all) => PostOp::Add(all.block(start, chunk.len())?),
                other => other,
            };
            let out = &mut out[start * d..chunk.end * d];
            run.linear(&block.down, hidden, rounded, (Activation::Identity, post_op), out)?;
            start = chunk.end;
        }
        Ok(())
    })?;
    drop(ops);
    mode.after(id)
}

/// The hidden activations of some rows; the products apply the activation.
pub(crate) fn hidden(
    run: &ExecContext<'_>,
    block: &FeedForward,
    x: &[f32],
    rounded: &mut [f32],
    out: &mut [f32],
) -> Result<(), KernelError> {
    let activation = run.config.activation;
    match &block.gate {
        Some(gate) => run.gated([gate, &block.up], x, rounded, activation, out),
        None => run.linear(&block.up, x, rounded, (activation, PostOp::None), out),
    }
}
