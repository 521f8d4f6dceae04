//! The vectors that are added to embeddings for the position of a token (section 3.5 of the paper) and for its
//! token type.

use super::blocks::ExecContext;
use super::weights::{Embedding, Table};
use crate::config::Positions;
use simdformer_kernels::Error as KernelError;
use simdformer_kernels::MatrixMut;
use simdformer_kernels::position::{self, PositionEncoding};

/// Writes the rows of positions `0..tokens`, `[tokens, d_model]`: the first rows of a learned table, the values
/// of a formula, or zeros. With a table of token types the output is `[types, tokens, d_model]`: the row of the
/// type is added to each.
pub(crate) fn write_positions(
    run: &ExecContext<'_>,
    side: &Embedding,
    types: Option<&Table>,
    tokens: usize,
    out: &mut [f32],
) -> Result<(), KernelError> {
    let d = run.config.d_model;
    let (first, others) = out.split_at_mut((tokens * d).min(out.len()));
    if first.is_empty() {
        return Ok(());
    }
    if let Some(table) = &side.positions {
        first.copy_from_slice(&run.weights.rows(table)[..tokens * d]);
    } else if let Some(encoding) = formula(run.config.positions) {
        position::encode(encoding, 0, MatrixMut::new(first, tokens, d)?)?;
    } else {
        first.fill(0.0);
    }
    let Some(types) = types else { return Ok(()) };
    let mut rows = run.weights.rows(types).chunks(d);
    let zeroth = rows.next().unwrap_or(&[]);
    for (others, row) in others.chunks_mut(first.len()).zip(rows) {
        for (to, from) in others.chunks_mut(d).zip(first.chunks(d)) {
            sum(to, from, row);
        }
    }
    for to in first.chunks_mut(d) {
        to.iter_mut().zip(zeroth).for_each(|(to, x)| *to += x);
    }
    Ok(())
}

fn sum(to: &mut [f32], a: &[f32], b: &[f32]) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        *to = a + b;
    }
}

/// The kernel's name for the position formula of a configuration.
fn formula(positions: Positions) -> Option<PositionEncoding<'static>> {
    match positions {
        Positions::HalfSplit => Some(PositionEncoding::HalfSplit),
        Positions::HalfSplitClosed { offset } => Some(PositionEncoding::HalfSplitClosed { offset }),
        Positions::Interleaved => Some(PositionEncoding::Interleaved),
        Positions::HalfSplitSingle { offset } => Some(PositionEncoding::HalfSplitSingle { offset }),
        Positions::Learned { .. } | Positions::None => None,
    }
}
