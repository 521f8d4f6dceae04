//! The operands of the pruned argmax, and the check of their shapes.

use super::build::PruningTable;
use super::candidates::{CANDIDATES, PARTS};
use super::error::PrunedArgmaxError;
use super::quantize_rows::ROW_STATISTICS;
use crate::debug::Elements;
use crate::{Matrix, PackedMatrix};
use core::fmt;

/// The product whose largest elements [`argmax`](super::argmax) finds.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// `W`, `[depth, columns]`.
    pub weight: &'a PackedMatrix<'a>,
    /// The pruning table that was built from `weight`.
    pub screen: &'a PruningTable<'a>,
    /// `b`, one value per column.
    pub bias: Option<&'a [f32]>,
    /// `W` transposed, `[columns, depth]`, if the caller has it. A candidate is then read from a few cache lines
    /// instead of `depth` lines. It must have the same values as `weight`.
    pub by_column: Option<Matrix<'a>>,
}

impl fmt::Debug for Product<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Product")
            .field("weight", self.weight)
            .field("screen", self.screen)
            .field("bias", &self.bias.map(Elements::of))
            .field("by_column", &self.by_column)
            .finish()
    }
}

/// Floats of scratch that [`argmax`](super::argmax) takes.
///
/// # Errors
/// [`PrunedArgmaxError::TooLarge`].
pub fn scratch(rows: usize, depth: usize) -> Result<usize, PrunedArgmaxError> {
    rows.checked_mul(ROW_STATISTICS + PARTS * (1 + 2 * CANDIDATES))
        .and_then(|words| words.checked_add(rows.checked_mul(depth.div_ceil(4))?))
        .filter(|&words| words <= isize::MAX as usize / 4)
        .ok_or(PrunedArgmaxError::TooLarge)
}

/// Checks that the shapes of the operands of [`argmax`](super::argmax) match.
pub(super) fn check(
    product: &Product<'_>,
    x: &Matrix<'_>,
    columns: &[u32],
    values: &[f32],
    scratch_floats: &[f32],
) -> Result<(), PrunedArgmaxError> {
    let Product { weight, screen, bias, by_column } = *product;
    let shape = (weight.depth(), weight.columns());
    let screen_shape = (screen.depth(), screen.columns());
    if screen_shape != shape {
        return Err(PrunedArgmaxError::Shape {
            operand: "screen",
            expected: shape,
            found: screen_shape,
        });
    }
    if let Some(matrix) = by_column
        && (matrix.columns(), matrix.rows()) != shape
    {
        let found = (matrix.columns(), matrix.rows());
        return Err(PrunedArgmaxError::Shape { operand: "by_column", expected: shape, found });
    }
    if x.columns() != shape.0 {
        return Err(PrunedArgmaxError::Depth { expected: shape.0, found: x.columns() });
    }
    if let Some(bias) = bias
        && bias.len() != shape.1
    {
        return Err(PrunedArgmaxError::Bias { expected: shape.1, found: bias.len() });
    }
    for found in [columns.len(), values.len()] {
        if found != x.rows() {
            return Err(PrunedArgmaxError::Output { expected: x.rows(), found });
        }
    }
    let expected = scratch(x.rows(), shape.0)?;
    if scratch_floats.len() < expected {
        return Err(PrunedArgmaxError::Length {
            buffer: "scratch",
            expected,
            found: scratch_floats.len(),
        });
    }
    Ok(())
}
