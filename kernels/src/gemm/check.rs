//! Checks the shapes of the operands before anything is written.

use super::epilogue::{Epilogue, Residual};
use super::error::GemmError;
use crate::matrix::MatrixMut;

/// Checks that the operands match a weight of `[depth, columns]`. `A` is `[rows, a_columns]`.
pub(super) fn operands(
    (rows, a_columns): (usize, usize),
    (depth, columns): (usize, usize),
    epilogue: &Epilogue<'_>,
    c: &MatrixMut<'_>,
) -> Result<(), GemmError> {
    if a_columns != depth {
        return Err(GemmError::Depth { expected: depth, found: a_columns });
    }
    if c.rows() != rows {
        return Err(GemmError::Rows { expected: rows, found: c.rows() });
    }
    if c.columns() != columns {
        return Err(GemmError::Columns { expected: columns, found: c.columns() });
    }
    if let Some(bias) = epilogue.bias
        && bias.len() != columns
    {
        return Err(GemmError::Bias { expected: columns, found: bias.len() });
    }
    let residual = match epilogue.residual {
        Residual::None | Residual::Output | Residual::Gate => None,
        Residual::Matrix(residual) => Some(residual),
        #[cfg(feature = "train")]
        Residual::Derivative { pre, .. } => Some(pre),
    };
    if let Some(residual) = residual
        && (residual.rows(), residual.columns()) != (c.rows(), c.columns())
    {
        return Err(GemmError::ResidualShape {
            expected: (c.rows(), c.columns()),
            found: (residual.rows(), residual.columns()),
        });
    }
    Ok(())
}
