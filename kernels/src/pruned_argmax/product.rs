//! The operands and the scratch of the pruned argmax, and the check of their shapes.

use super::build::PruningTable;
use super::row_bounds::ROW_STATISTICS;
use crate::debug_slice::impl_debug;
use crate::error::{Error, Expected};
use crate::{Matrix, PackedMatrix, Quantization, QuantizedActivations};

/// Parts that the columns are divided into. Each part has its own list of candidates.
pub(super) const PARTS: usize = 16;

/// Largest number of candidates of a row in one part. A row with more is undecided.
pub(super) const CANDIDATES: usize = 64;

/// A column that may be the largest.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Candidate {
    pub(super) column: u32,
    /// An upper bound of the element; never NaN.
    pub(super) upper: f32,
}

/// The product whose largest elements [`argmax`](super::argmax) finds.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// `W`, `[depth, columns]`.
    pub weight: &'a PackedMatrix<'a>,
    /// The pruning table that was built from `weight`.
    pub pruning_table: &'a PruningTable<'a>,
    /// `b`, one value per column.
    pub bias: Option<&'a [f32]>,
    /// `W` transposed, `[columns, depth]`, if the caller has it. A candidate is then read from a few cache lines
    /// instead of `depth` lines. It must have the same values as `weight`.
    pub by_column: Option<Matrix<'a>>,
}

impl_debug!(Product { weight, pruning_table, [bias], by_column });

/// Floats of scratch that [`argmax`](super::argmax) takes.
///
/// # Errors
/// [`Error::TooLarge`], also without the feature `int8`.
pub fn argmax_scratch(rows: usize, depth: usize) -> Result<usize, Error> {
    let quantized = QuantizedActivations::buffer_len(rows, depth, Quantization::W8A8)
        .map_err(|_| Error::TooLarge { operand: "the scratch" })?;
    rows.checked_mul(ROW_STATISTICS + PARTS * (1 + 2 * CANDIDATES))
        .and_then(|words| words.checked_add(quantized))
        .filter(|&words| words <= isize::MAX as usize / 4)
        .ok_or(Error::TooLarge { operand: "the scratch" })
}

/// Checks that the shapes of the operands of [`argmax`](super::argmax) match.
pub(super) fn check(
    product: &Product<'_>,
    x: &Matrix<'_>,
    columns: &[u32],
    values: &[f32],
    scratch: &[f32],
) -> Result<(), Error> {
    let Product { weight, pruning_table, bias, by_column } = *product;
    let (depth, width) = (weight.depth(), weight.columns());
    let (expected, found) = ([depth, width], [pruning_table.depth(), pruning_table.columns()]);
    if found != expected {
        return Err(Error::Shape { operand: "pruning_table", expected, found });
    }
    if let Some(matrix) = by_column {
        matrix.check_shape("by_column", [width, depth])?;
    }
    Error::check_size("columns", "x", Expected::Exactly(depth), x.columns())?;
    if let Some(bias) = bias {
        Error::check_len("bias", width, bias)?;
    }
    Error::check_len("columns", x.rows(), columns)?;
    Error::check_len("values", x.rows(), values)?;
    Error::check_min_len("scratch", argmax_scratch(x.rows(), depth)?, scratch)
}
