//! The operands of a screen, and whether they fit together.

use super::build::Screen;
use super::candidates::{CANDIDATES, PARTS};
use super::error::ScreenError;
use super::quantised::ROW_STATISTICS;
use crate::debug::Elements;
use crate::{Matrix, PackedMatrix};
use core::fmt;

/// The product of which [`largest`](super::largest) finds the largest elements.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// `W`, `[depth, columns]`.
    pub weight: &'a PackedMatrix<'a>,
    /// The screen that was built from `weight`.
    pub screen: &'a Screen<'a>,
    /// `b`, one value per column.
    pub bias: Option<&'a [f32]>,
    /// `W` transposed, `[columns, depth]`, if it is at hand: a candidate is then read from a few lines
    /// of memory instead of `depth`. Must hold what `weight` holds.
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

/// Floats of scratch that [`largest`](super::largest) takes.
///
/// # Errors
/// [`ScreenError::TooLarge`].
pub fn scratch(rows: usize, depth: usize) -> Result<usize, ScreenError> {
    rows.checked_mul(ROW_STATISTICS + PARTS * (1 + 2 * CANDIDATES))
        .and_then(|words| words.checked_add(rows.checked_mul(depth.div_ceil(4))?))
        .filter(|&words| words <= isize::MAX as usize / 4)
        .ok_or(ScreenError::TooLarge)
}

/// Whether the operands of [`largest`](super::largest) fit together.
pub(super) fn check(
    product: &Product<'_>,
    x: &Matrix<'_>,
    columns: &[u32],
    values: &[f32],
    room: &[f32],
) -> Result<(), ScreenError> {
    let Product { weight, screen, bias, by_column } = *product;
    let shape = (weight.depth(), weight.columns());
    let of_screen = (screen.depth(), screen.columns());
    if of_screen != shape {
        return Err(ScreenError::Shape { operand: "screen", expected: shape, found: of_screen });
    }
    if let Some(matrix) = by_column
        && (matrix.columns(), matrix.rows()) != shape
    {
        let found = (matrix.columns(), matrix.rows());
        return Err(ScreenError::Shape { operand: "by_column", expected: shape, found });
    }
    if x.columns() != shape.0 {
        return Err(ScreenError::Depth { expected: shape.0, found: x.columns() });
    }
    if let Some(bias) = bias
        && bias.len() != shape.1
    {
        return Err(ScreenError::Bias { expected: shape.1, found: bias.len() });
    }
    for found in [columns.len(), values.len()] {
        if found != x.rows() {
            return Err(ScreenError::Output { expected: x.rows(), found });
        }
    }
    let expected = scratch(x.rows(), shape.0)?;
    if room.len() < expected {
        return Err(ScreenError::Length { buffer: "scratch", expected, found: room.len() });
    }
    Ok(())
}
