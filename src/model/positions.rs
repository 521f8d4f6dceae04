//! The vectors that are added to embeddings for the position of a token (section 3.5 of the paper) and for its
//! token type; the sizes of the tables of relative positions.
//!
//! A relative position bias depends only on a distance. A stack therefore needs a value for each distance and
//! head, not for each pair of positions. The tables are written once when a session is created, or after each
//! optimizer step.

use super::blocks::ExecContext;
use super::pass_input::Relative;
use super::weights::{Embedding, Table};
use crate::config::{Config, Positions, Side};
use crate::memory::MemoryError;
use simdformer_kernels::position::{self, PositionEncoding};
use simdformer_kernels::relative::RelativeBuckets;
use simdformer_kernels::{Error as KernelError, Matrix, MatrixMut};

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
        let rows = run.weights.rows(table);
        let rows = rows.get(..tokens * d).unwrap_or(rows);
        Matrix::new(rows, tokens, d)?;
        first.copy_from_slice(rows);
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

/// The tables of one stack.
#[derive(Clone, Debug)]
pub(crate) struct RelativePlan {
    /// Floats of all tables; 0 if the stack has none.
    pub(crate) floats: usize,
    /// Floats from one layer's table to the next; 0 if all layers share one.
    layer_stride: usize,
    pub(crate) buckets: Option<(RelativeBuckets, usize)>,
}

impl RelativePlan {
    /// Plans tables for sequences of up to `positions`.
    pub(crate) fn new(config: &Config, side: Side, positions: usize) -> Result<Self, MemoryError> {
        let stack = config.stack(side);
        let Some((stack, bias)) = stack.and_then(|stack| Some((stack, stack.relative_bias?)))
        else {
            return Ok(Self { floats: 0, layer_stride: 0, buckets: None });
        };
        // Cannot fail: the configuration was validated.
        let buckets = bias.buckets_for(side).map_err(|_| MemoryError::TooLarge)?;
        let table = buckets.table_len(stack.heads, positions);
        let table = table.map_err(|_| MemoryError::TooLarge)?;
        let (layer_stride, tables) = if bias.per_layer { (table, stack.layers) } else { (0, 1) };
        let floats = table.checked_mul(tables).ok_or(MemoryError::TooLarge)?;
        Ok(Self { floats, layer_stride, buckets: Some((buckets, positions)) })
    }

    /// The tables as a pass reads them; `tables` has [`RelativePlan::floats`] floats of the memory.
    pub(crate) fn with_tables<'p>(&self, tables: &'p [f32]) -> Relative<'p> {
        Relative { tables, layer_stride: self.layer_stride, buckets: self.buckets }
    }
}
