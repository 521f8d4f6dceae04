//! Token embedding plus position, with an optional norm: the bottom of both stacks (section 3.4 of
//! the paper).

use super::ExecContext;
use crate::config::{EmbeddingNorm, Side};
use crate::model::pass::Tokens;
use crate::model::weights::{Embedding, Table};
use simdformer_kernels::embedding::{self, Positions};
use simdformer_kernels::{Error as KernelError, Matrix, MatrixMut};

/// `x[i] = norm(scale * table[ids[i]] + position_table[positions[i]])`, `[tokens, d_model]`, with the norm if
/// the architecture has one. An empty `position_table` adds nothing.
pub(crate) fn embed(
    run: &ExecContext<'_>,
    side: Side,
    table: &Table,
    block: &Embedding,
    tokens: &Tokens<'_>,
    x: &mut [f32],
) -> Result<(), KernelError> {
    let d = run.config.d_model;
    let Tokens { ids, positions: rows, position_table } = *tokens;
    let positions = position_rows(run, side, position_table)?;
    embedding::embed(
        run.isa(),
        run.weights.table(table)?,
        ids,
        run.config.embedding_scale,
        positions.map(|table| Positions { table, rows }),
        MatrixMut::new(x, ids.len(), d)?,
        run.parallelism,
    )?;
    add_late(run, side, block, tokens, x)
}

fn norm_first(run: &ExecContext<'_>, side: Side) -> bool {
    let stack = run.config.stack(side);
    stack.is_some_and(|stack| stack.embedding_norm == Some(EmbeddingNorm::BeforePositions))
}

/// The rows of `table` if they are added before the norm; `None` if there is no table or if it is added after
/// the norm.
pub(super) fn position_rows<'t>(
    run: &ExecContext<'_>,
    side: Side,
    table: &'t [f32],
) -> Result<Option<Matrix<'t>>, KernelError> {
    let d = run.config.d_model;
    let now = !table.is_empty() && !norm_first(run, side);
    now.then(|| Matrix::new(table, table.len() / d, d)).transpose()
}

/// Applies the norm if the architecture has one, then adds the positions that follow the norm.
pub(super) fn add_late(
    run: &ExecContext<'_>,
    side: Side,
    block: &Embedding,
    tokens: &Tokens<'_>,
    x: &mut [f32],
) -> Result<(), KernelError> {
    let d = run.config.d_model;
    let Tokens { positions: rows, position_table: table, .. } = *tokens;
    if let Some(norm) = &block.norm {
        run.norm_in_place(norm, x)?;
    }
    if norm_first(run, side) && !table.is_empty() {
        for (x, &row) in x.chunks_mut(d).zip(rows) {
            let position = &table[row as usize * d..];
            x.iter_mut().zip(position).for_each(|(x, position)| *x += position);
        }
    }
    Ok(())
}
