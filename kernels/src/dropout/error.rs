//! Why a dropout could not run.

use core::fmt;

/// Why a dropout could not run. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DropoutError {
    /// The probability is less than 0, or so much that nothing is kept.
    Probability {
        /// The probability given.
        found: f32,
    },
    /// There is not one sentence for each row.
    Sentences {
        /// Rows.
        expected: usize,
        /// Sentences given.
        found: usize,
    },
    /// There is not one position for each row.
    Positions {
        /// Rows.
        expected: usize,
        /// Positions given.
        found: usize,
    },
    /// What is added to has another shape than what is dropped from.
    Shape {
        /// Rows and columns of what is dropped from.
        expected: [usize; 2],
        /// Rows and columns of what is added to.
        found: [usize; 2],
    },
    /// The elements of a row are not side by side.
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
