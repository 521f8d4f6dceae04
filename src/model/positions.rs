//! What is added to embeddings to say where a token stands (section 3.5 of the paper).

use super::blocks::Run;
use super::weights::Embedding;
use crate::config::Positions;
use crate::error::KernelError;
use simdformer_kernels::MatrixMut;
use simdformer_kernels::position::{self, PositionEncoding};

/// Writes the rows of positions `0..tokens`, `[tokens, d_model]`: the first of a learned table, or
/// those of a formula.
pub(crate) fn write_positions(
    run: &Run<'_>,
    side: &Embedding,
    tokens: usize,
    out: &mut [f32],
) -> Result<(), KernelError> {
    if let Some(table) = &side.positions {
        out.copy_from_slice(&run.weights.rows(table)[..tokens * run.config.d_model]);
    } else if let Some(encoding) = formula(run.config.positions) {
        position::encode(encoding, 0, MatrixMut::new(out, tokens, run.config.d_model)?)?;
    }
    Ok(())
}

/// What the position formulas of a configuration are called in the kernels.
fn formula(positions: Positions) -> Option<PositionEncoding<'static>> {
    match positions {
        Positions::HalfSplit => Some(PositionEncoding::HalfSplit),
        Positions::HalfSplitClosed { offset } => Some(PositionEncoding::HalfSplitClosed { offset }),
        Positions::Interleaved => Some(PositionEncoding::Interleaved),
        Positions::Learned { .. } => None,
    }
}
