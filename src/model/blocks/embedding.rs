//! Token embedding plus position, with an optional norm: the bottom of both stacks (section 3.4 of
//! the paper).

use super::Run;
use crate::error::KernelError;
use crate::model::pass::Tokens;
use crate::model::weights::Embedding;
use simdformer_kernels::embedding::{self, Positions};
use simdformer_kernels::{Matrix, MatrixMut};

/// `x[i] = norm(scale * table[ids[i]] + position_table[positions[i]])`, `[tokens, d_model]`.
pub(crate) fn embed(
    run: &Run<'_>,
    block: &Embedding,
    tokens: &Tokens<'_>,
    x: &mut [f32],
) -> Result<(), KernelError> {
    let (d, table) = (run.config.d_model, tokens.position_table);
    let positions =
        Positions { table: Matrix::new(table, table.len() / d, d)?, rows: tokens.positions };
    embedding::embed(
        run.isa(),
        run.weights.table(&block.table)?,
        tokens.ids,
        run.config.embedding_scale,
        Some(positions),
        MatrixMut::new(x, tokens.ids.len(), d)?,
        run.parallelism,
    )?;
    match &block.norm {
        Some(norm) => run.norm_in_place(norm, x),
        None => Ok(()),
    }
}
