//! Brings every parameter of the table to its place: from a checkpoint, or from whoever writes it.

use super::layout::Table;
use super::parameter::{Parameter, Place};
use crate::checkpoint::{Checkpoint, Role};
use crate::model::error::ModelError;
use simdformer_kernels::Isa;

/// Rows of a weight matrix that are read from the file at a time: a multiple of every panel.
const ROWS_PER_READ: usize = 64;

/// Fills `memory`, which holds zeros, from a checkpoint.
pub(crate) fn load(
    checkpoint: &Checkpoint<'_>,
    isa: Isa,
    parameters: &[Parameter],
    memory: &mut [f32],
) -> Result<(), ModelError> {
    // A few rows of the tensor that is being stored.
    let mut block = Vec::new();
    for parameter in parameters {
        let role = parameter.role;
        match &parameter.place {
            Place::Rows { range, skip } => {
                let tensor = match role.may_be_absent() {
                    true => checkpoint.optional(role)?,
                    false => Some(checkpoint.tensor(role)?),
                };
                // What is absent is zero, as the memory is.
                let Some(tensor) = tensor else { continue };
                let rows = tensor.shape().first().copied().unwrap_or(0);
                tensor.rows(*skip..rows)?.read_into(&mut memory[range.clone()])?;
            }
            Place::Columns { matrix, first } => {
                let tensor = checkpoint.tensor(role)?;
                let rows = tensor.shape().first().copied().unwrap_or(0);
                for start in (0..rows).step_by(ROWS_PER_READ) {
                    let end = rows.min(start + ROWS_PER_READ);
                    block.resize((end - start) * tensor.row_len(), 0.0);
                    tensor.rows(start..end)?.read_into(&mut block)?;
                    match *parameter.shape.as_slice() {
                        [_, _, width] => {
                            matrix.fill_windows(isa, &mut block, width, first + start, memory)?;
                        }
                        _ => matrix.fill(isa, &block, first + start, memory)?,
                    }
                }
            }
            Place::Screen(screen) => screen.fill(isa, memory)?,
            Place::Shared(_) => {}
        }
    }
    Ok(())
}

/// Writes a tensor: what for, its shape, and where to, which holds zeros.
pub(crate) type Fill<'f> = dyn FnMut(Role, &[usize], &mut [f32]) -> Result<(), ModelError> + 'f;

/// Fills `memory`, which holds zeros, with what `fill` writes. It is asked for each tensor once, but for those that are
/// tied to another; `tied` is the table that is the output's matrix too.
pub(crate) fn fill(
    fill: &mut Fill<'_>,
    isa: Isa,
    parameters: &[Parameter],
    tied: Option<&Table>,
    memory: &mut [f32],
) -> Result<(), ModelError> {
    // A tensor whose form in memory is not that of its shape.
    let mut whole = Vec::new();
    for Parameter { role, shape, place, .. } in parameters {
        let mut staged = |whole: &mut Vec<f32>| {
            whole.clear();
            whole.resize(shape.iter().product(), 0.0);
            fill(*role, shape, whole)?;
            finite(*role, whole)
        };
        match (place, tied) {
            (Place::Rows { range, skip: 0 }, _) => {
                let rows = &mut memory[range.clone()];
                fill(*role, shape, rows)?;
                finite(*role, rows)?;
            }
            (Place::Rows { range, skip }, _) => {
                staged(&mut whole)?;
                let columns: usize = shape.iter().skip(1).product();
                memory[range.clone()].copy_from_slice(&whole[skip * columns..]);
            }
            (Place::Columns { matrix, .. }, Some(table)) if *role == Role::Output => {
                matrix.fill_from(isa, table.range.clone(), memory)?;
            }
            (Place::Columns { matrix, first }, _) => {
                staged(&mut whole)?;
                match *shape.as_slice() {
                    [_, _, width] => {
                        matrix.fill_windows(isa, &mut whole, width, *first, memory)?;
                    }
                    _ => matrix.fill(isa, &whole, *first, memory)?,
                }
            }
            (Place::Screen(screen), _) => screen.fill(isa, memory)?,
            (Place::Shared(_), _) => {}
        }
    }
    Ok(())
}

/// The same numbers that a checkpoint may hold: minus infinity is a way to ban a token.
fn finite(role: Role, numbers: &[f32]) -> Result<(), ModelError> {
    let bias = role == Role::OutputBias;
    let good = |x: f32| x.is_finite() || bias && x == f32::NEG_INFINITY;
    match numbers.iter().position(|&x| !good(x)) {
        Some(index) => Err(ModelError::NotFinite { role, index, found: numbers[index] }),
        None => Ok(()),
    }
}
