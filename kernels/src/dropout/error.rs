//! Errors of dropout.

use core::fmt;

/// Why a dropout cannot run. Nothing is written.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DropoutError {
    /// The probability is less than 0, or so large that no element remains.
    Probability {
        /// The probability given.
        found: f32,
    },
    /// The number of sentences differs from the number of rows.
    Sentences {
        /// Rows.
        expected: usize,
        /// Sentences given.
        found: usize,
    },
    /// The number of positions differs from the number of rows.
    Positions {
        /// Rows.
        expected: usize,
        /// Positions given.
        found: usize,
    },
    /// The output of `dropout_add` has another shape than its input.
    Shape {
        /// Rows and columns of the input.
        expected: [usize; 2],
        /// Rows and columns of the output.
        found: [usize; 2],
    },
    /// The elements of a row are not contiguous.
    ColumnStride {
        /// The column stride found; 1 is expected.
        found: usize,
    },
}

impl fmt::Display for DropoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probability { found } => write!(
                f,
                "the probability of a dropout should be at least 0 and keep something, found {found}"
            ),
            Self::Sentences { expected, found } => {
                write!(f, "expected {expected} sentences, one for each row, found {found}")
            }
            Self::Positions { expected, found } => {
                write!(f, "expected {expected} positions, one for each row, found {found}")
            }
            Self::Shape { expected: [r, c], found: [fr, fc] } => {
                write!(f, "what is added to should be {r} x {c}, found {fr} x {fc}")
            }
            Self::ColumnStride { found } => {
                write!(f, "a dropout needs contiguous rows (column stride 1), found {found}")
            }
        }
    }
}

impl core::error::Error for DropoutError {}
