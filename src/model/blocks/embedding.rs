//! Token embedding plus position, with an optional norm: the bottom of both stacks (section 3.4 of
//! the paper).

use super::{Norm, Run, look};
use crate::error::KernelError;
use crate::trace::{At, Stage, Tap};
use core::ops::Range;
use simdformer_kernels::embedding::{self, Positions};
use simdformer_kernels::{Matrix, MatrixMut};

/// Tables of one side.
#[derive(Clone, Debug)]
pub(crate) struct Embedding {
    /// `[vocabulary, d_model]`.
    pub(crate) table: Range<usize>,
    pub(crate) vocabulary: usize,
    pub(crate) norm: Option<Norm>,
}

/// `out[i] = norm(scale * table[tokens[i]] + positions[at[i]])`, `[tokens, d_model]`. Row `p` of
/// `positions` belongs to position `p`, whatever the encoding.
#[allow(clippy::too_many_arguments)]
pub(crate) fn embed<T: Tap>(
    run: &Run<'_>,
    side: &Embedding,
    positions: &[f32],
    tokens: &[u32],
    at: &[u32],
    out: &mut [f32],
    tap: &mut T,
    place: &At<'_>,
) -> Result<(), KernelError> {
    let config = run.model.config();
    let d = config.d_model;
    let table = Matrix::new(positions, positions.len() / d, d)?;
    embedding::embed(
        run.isa(),
        Matrix::new(run.model.weights(side.table.clone()), side.vocabulary, d)?,
        tokens,
        config.embedding_scale,
        Some(Positions { table, rows: at }),
        MatrixMut::new(out, tokens.len(), d)?,
        run.parallelism,
    )?;
    if let Some(norm) = &side.norm {
        run.norm_in_place(norm, out)?;
    }
    if let Some(mut watch) = tap.watch() {
        let table = run.model.weights(side.table.clone());
        watch.embedding(place, tokens, (table, config.embedding_scale), positions, d)?;
    }
    look(tap, Stage::Input, place, out, d);
    Ok(())
}
