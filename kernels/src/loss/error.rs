//! Errors of the loss.

use core::fmt;

/// Why a loss cannot be computed. Nothing is written.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LossError {
    /// The number of targets differs from the number of rows.
    Targets {
        /// Rows of the logits.
        expected: usize,
        /// Targets given.
        found: usize,
    },
    /// A target is neither a column nor [`IGNORED`](super::IGNORED).
    Target {
        /// The row.
        row: usize,
        /// Columns of a row.
        columns: usize,
        /// The target given for it.
        found: u32,
    },
    /// The length of the output for the losses differs from the number of rows.
    Losses {
        /// Rows of the logits.
        expected: usize,
        /// Elements of the output.
        found: usize,
    },
    /// The elements of a row are not contiguous.
    ColumnStride {
        /// The column stride found; 1 is expected.
        found: usize,
    },
    /// The probability that smoothing spreads is not in `0..1`.
    Epsilon {
        /// The value given.
        found: f32,
    },
    /// Smoothing spreads over columns other than the target, but there are none.
    NoOthers {
        /// Columns of a row; at least 2 are expected.
        columns: usize,
    },
}

impl fmt::Display for LossError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Targets { expected, found } => {
                write!(f, "expected {expected} targets, one for each row, found {found}")
            }
            Self::Target { row, columns, found } => {
                write!(f, "row {row} has {columns} columns, found a target of {found}")
            }
            Self::Losses { expected, found } => {
                write!(f, "expected space for {expected} losses, one for each row, found {found}")
            }
            Self::ColumnStride { found } => {
                write!(f, "a loss needs contiguous rows (column stride 1), found {found}")
            }
            Self::Epsilon { found } => {
                write!(f, "label smoothing should be at least 0 and less than 1, found {found}")
            }
            Self::NoOthers { columns } => write!(
                f,
                "label smoothing over other columns than the target needs at least 2, found {columns}"
            ),
        }
    }
}

impl core::error::Error for LossError {}
