//! The position-wise feed-forward block, `FFN(x) = activation(x W1 + b1) W2 + b2` (equation 2 of
//! the paper).

use super::{Linear, Run};
use crate::error::KernelError;
use simdformer_kernels::{Activation, Matrix, Residual};

/// Rows whose hidden activations are held at a time: 128 rows of 2048 are 1 MiB, which stays in the
/// second-level cache between the two projections, and bounds the planned memory.
pub(crate) const FEED_FORWARD_ROWS: usize = 128;

/// The two projections.
#[derive(Clone, Debug)]
pub(crate) struct FeedForward {
    pub(crate) inner: Linear,
    pub(crate) outer: Linear,
}

impl FeedForward {
    /// `out = residual + FFN(x)`, all `[rows, d_model]`; `hidden` has room for
    /// `min(rows, FEED_FORWARD_ROWS)` rows of the inner dimension, and `look(first_row, hidden)` is
    /// called with what is in it.
    pub(crate) fn run(
        &self,
        run: &Run<'_>,
        x: &[f32],
        residual: Residual<'_>,
        hidden: &mut [f32],
        out: &mut [f32],
        mut look: impl FnMut(usize, &[f32]),
    ) -> Result<(), KernelError> {
        let d = self.inner.depth;
        let activation = run.model.config().activation;
        let block = FEED_FORWARD_ROWS * d;
        for (index, (x, out)) in x.chunks(block).zip(out.chunks_mut(block)).enumerate() {
            let rows = x.len() / d;
            let hidden = &mut hidden[..rows * self.inner.columns];
            run.linear(&self.inner, x, activation, Residual::None, hidden)?;
            look(index * FEED_FORWARD_ROWS, hidden);
            let residual = match residual {
                Residual::Matrix(all) => Residual::Matrix(rows_of(all, index, rows)?),
                other => other,
            };
            run.linear(&self.outer, hidden, Activation::Identity, residual, out)?;
        }
        Ok(())
    }
}

/// Rows `index * FEED_FORWARD_ROWS..` of a matrix.
fn rows_of(all: Matrix<'_>, index: usize, rows: usize) -> Result<Matrix<'_>, KernelError> {
    Ok(all.block(index * FEED_FORWARD_ROWS, rows)?)
}
