//! Token embedding plus position, with an optional norm: the bottom of both stacks (section 3.4 of
//! the paper).

use super::Run;
use crate::config::{EmbeddingNorm, Side};
use crate::error::KernelError;
use crate::model::pass::Tokens;
use crate::model::weights::Embedding;
use simdformer_kernels::embedding::{self, Positions};
use simdformer_kernels::{Matrix, MatrixMut};

/// `x[i] = norm(scale * table[ids[i]] + position_table[positions[i]])`, `[tokens, d_model]`, with the norm where the
/// architecture has it; an empty `position_table` adds nothing.
pub(crate) fn embed(
    run: &Run<'_>,
    side: Side,
    block: &Embedding,
    tokens: &Tokens<'_>,
    x: &mut [f32],
) -> Result<(), KernelError> {
    let d = run.config.d_model;
    let norm_first = run
        .config
        .stack(side)
        .is_some_and(|stack| stack.embedding_norm == Some(EmbeddingNorm::BeforePositions));
    let Tokens { ids, positions: rows, position_table: table } = *tokens;
    let positions = match table {
        [] => None,
        _ => Some(Positions { table: Matrix::new(table, table.len() / d, d)?, rows }),
    };
    embedding::embed(
        run.isa(),
        run.weights.table(&block.table)?,
        ids,
        run.config.embedding_scale,
        positions.filter(|_| !norm_first),
        MatrixMut::new(x, ids.len(), d)?,
        run.parallelism,
    )?;
    if let Some(norm) = &block.norm {
        run.norm_in_place(norm, x)?;
    }
    if norm_first && !table.is_empty() {
        for (x, &row) in x.chunks_mut(d).zip(rows) {
            let position = &table[row as usize * d..];
            x.iter_mut().zip(position).for_each(|(x, position)| *x += position);
        }
    }
    Ok(())
}
