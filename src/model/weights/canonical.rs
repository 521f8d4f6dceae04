//! The values of all tensors, in an order that does not depend on the instruction set.

use super::layout::{Parameter, Place, Storage};
use super::model_weights::Weights;
use super::packed_weight::Weight;
use simdformer_kernels::Error as KernelError;

/// A part of the canonical form of the weights.
pub(crate) enum Part<'m> {
    /// The next tensor: `role shape storage`. It determines the number of its words.
    Tensor(String),
    /// The next words of this tensor, and of those that share its matrix.
    Words(&'m [f32]),
}

impl Weights {
    /// Calls `each` for every part of the weights.
    ///
    /// Pruning tables are left out: they are computed from a matrix, only some instruction sets have them, and they do not
    /// change results. Padding is left out, too. int8 panels are the same on every instruction set. A float matrix is
    /// visited row by row, `[depth, columns]`, widened to f32.
    ///
    /// # Errors
    /// The memory does not have the length of the parameters.
    pub(crate) fn each_part(&self, each: &mut dyn FnMut(Part<'_>)) -> Result<(), KernelError> {
        let memory = self.memory();
        let mut row = Vec::new();
        for Parameter { role, shape, place, .. } in &self.parameters {
            let storage = match place {
                Place::PruningTable(_) => continue,
                Place::Shared(other) => format!("shared with {other}"),
                Place::Rows { .. } => Storage::Rows.to_string(),
                Place::Columns { matrix, .. } => matrix.dtype.name().to_owned(),
            };
            each(Part::Tensor(format!("{role} {shape:?} {storage}")));
            match place {
                Place::Rows { range, .. } => {
                    each(Part::Words(memory.get(range.clone()).unwrap_or(&[])))
                }
                Place::Columns { matrix, first: 0 } => match matrix.weight_in(self.isa, memory)? {
                    Weight::Bytes(..) => {
                        each(Part::Words(memory.get(matrix.range.clone()).unwrap_or(&[])));
                    }
                    Weight::Floats(packed) => {
                        row.resize(matrix.columns, 0.0);
                        for k in 0..matrix.depth {
                            packed.unpack_row(k, &mut row)?;
                            each(Part::Words(&row));
                        }
                    }
                },
                // A matrix is visited once, with the first of its tensors.
                Place::Columns { .. } | Place::PruningTable(_) | Place::Shared(_) => {}
            }
        }
        Ok(())
    }
}
