//! Reads every parameter of the table to its place.

use super::parameter::{Parameter, Place};
use crate::checkpoint::Checkpoint;
use crate::model::error::ModelError;
use simdformer_kernels::Isa;

/// Rows of a weight matrix that are read from the file at a time: a multiple of every panel.
const ROWS_PER_READ: usize = 64;

/// Fills `memory`, which holds zeros.
pub(crate) fn load(
    checkpoint: &Checkpoint,
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
                    matrix.fill(isa, &block, first + start, memory)?;
                }
            }
            Place::Screen(screen) => screen.fill(isa, memory)?,
            Place::Shared(_) => {}
        }
    }
    Ok(())
}
