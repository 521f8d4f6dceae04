//! Token embedding plus position, with an optional norm: the bottom of both stacks (section 3.4 of
//! the paper).

use super::ExecContext;
use crate::config::{NormPlacement, Side};
use crate::error::Error;
use crate::model::forward::{BlockId, BlockOps, ForwardMode};
use crate::model::pass_input::{Tokens, Workspace};
use crate::model::weights::{Embedding, Table};
use simdformer_kernels::embedding::{self, Positions};
use simdformer_kernels::{Matrix, MatrixMut};

/// `x[i] = norm(scale * table[ids[i]] + position_table[positions[i]])`, `[tokens, d_model]`, with the norm if
/// the architecture has one. An empty `position_table` adds nothing.
pub(crate) fn embed<M: ForwardMode>(
    run: &ExecContext<'_>,
    side: Side,
    table: &Table,
    block: &Embedding,
    mode: &mut M,
) -> Result<(), Error> {
    let (Workspace { x, h, .. }, mut ops) = mode.block(BlockId::Embedding)?;
    let Tokens { ids, positions: rows, position_table } = ops.tokens();
    let d = run.config.d_model;
    let positions = match position_rows(run, side, position_table) {
        Some(table) => Some(Positions { table: Matrix::new(table, table.len() / d, d)?, rows }),
        None => None,
    };
    embedding::embed(
        run.exec(),
        run.weights.table(table)?,
        ids,
        run.config.embedding_scale,
        positions,
        MatrixMut::new(x, ids.len(), d)?,
    )?;
    norm_and_positions(run, side, block, [x, h], &mut ops)?;
    drop(ops);
    mode.after(BlockId::Embedding)
}

/// Whether positions are added after the norm.
pub(crate) fn positions_after_norm(run: &ExecContext<'_>, side: Side) -> bool {
    let stack = run.config.stack(side);
    stack.is_some_and(|stack| stack.embedding_norm == Some(NormPlacement::Pre))
}

/// The table of positions if they are added before the norm; `None` if there is no table or if it is added after
/// the norm.
pub(super) fn position_rows<'t>(
    run: &ExecContext<'_>,
    side: Side,
    table: &'t [f32],
) -> Option<&'t [f32]> {
    (!table.is_empty() && !positions_after_norm(run, side)).then_some(table)
}

/// Applies the norm if the architecture has one, then adds the positions that follow the norm.
pub(super) fn norm_and_positions<'b, O: BlockOps<'b>>(
    run: &ExecContext<'_>,
    side: Side,
    block: &Embedding,
    [x, h]: [&mut [f32]; 2],
    ops: &mut O,
) -> Result<(), Error> {
    let d = run.config.d_model;
    let Tokens { positions: rows, position_table: table, .. } = ops.tokens();
    if let Some(norm) = &block.norm {
        ops.norm_in_place(norm, [x, h])?;
    }
    if positions_after_norm(run, side) && !table.is_empty() {
        for (x, &row) in x.chunks_mut(d).zip(rows) {
            let position = &table[row as usize * d..];
            x.iter_mut().zip(position).for_each(|(x, position)| *x += position);
        }
    }
    Ok(())
}
