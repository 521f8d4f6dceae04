//! Checks the shapes of the operands before anything is written.

use super::epilogue::{Epilogue, Residual};
use crate::error::{Error, Expected};
use crate::matrix::MatrixMut;

/// Checks that a block of `[rows, count]` fits columns `first..` of a matrix of `[depth, columns]`. Returns the column
/// after its last one.
pub(super) fn block(
    found @ [rows, count]: [usize; 2],
    (depth, columns): (usize, usize),
    first: usize,
) -> Result<usize, Error> {
    if rows != depth {
        let expected = [depth, columns.saturating_sub(first)];
        return Err(Error::Shape { operand: "the weight", expected, found });
    }
    Error::check_end("last column", "the weight", None, (first, count), columns)?;
    Ok(first + count)
}

/// Checks that the operands match a weight of `[depth, columns]`. `A` is `[rows, a_columns]`.
pub(super) fn operands(
    (rows, a_columns): (usize, usize),
    (depth, columns): (usize, usize),
    epilogue: &Epilogue<'_>,
    c: &MatrixMut<'_>,
) -> Result<(), Error> {
    if a_columns != depth && [columns, depth] == [a_columns, c.columns()] {
        // The usual mistake: a weight that is stored `[out, in]` was packed without `transposed()`.
        return Err(Error::Shape {
            operand: "W",
            expected: [a_columns, c.columns()],
            found: [depth, columns],
        });
    }
    Error::check_size("columns", "A", Expected::Exactly(depth), a_columns)?;
    c.read().check_shape("C", [rows, columns])?;
    if let Some(bias) = epilogue.bias {
        Error::check_len("bias", columns, bias)?;
    }
    let residual = match epilogue.residual {
        Residual::None | Residual::Output | Residual::MultiplyOutput => None,
        Residual::Matrix(residual) => Some(residual),
        #[cfg(feature = "train")]
        Residual::ActivationBackward { pre, .. } => Some(pre),
    };
    residual.map_or(Ok(()), |residual| residual.check_shape("residual", [rows, columns]))
}
