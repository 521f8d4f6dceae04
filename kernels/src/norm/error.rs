//! Errors of norms.

use core::fmt;

/// Why a normalization cannot run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum NormError {
    /// Two of the matrices have different shapes.
    Shape {
        /// Rows and columns of the output.
        expected: [usize; 2],
        /// Rows and columns of the other matrix.
        found: [usize; 2],
    },
    /// The elements of a row are not contiguous.
    ColumnStride {
        /// The column stride found; 1 is expected.
        found: usize,
    },
    /// The length of the weight differs from the number of columns.
    Weight {
        /// Columns.
        expected: usize,
        /// Elements of the weight.
        found: usize,
    },
    /// The length of the bias differs from the number of columns.
    Bias {
        /// Columns.
        expected: usize,
        /// Elements of the bias.
        found: usize,
    },
    /// `eps` is negative, infinite or NaN.
    Epsilon {
        /// The value given.
        found: f32,
    },
    /// The number of scales (one over the standard deviation) differs from the number of rows.
    Scales {
        /// Rows.
        expected: usize,
        /// Scales.
        found: usize,
    },
    /// The reduction chunks of a sum over rows and the matrices have different numbers of rows.
    ReductionChunks {
        /// Rows of the matrices.
        expected: usize,
        /// Rows of all reduction chunks.
        found: usize,
    },
}

impl fmt::Display for NormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { expected: [r, c], found: [fr, fc] } => {
                write!(f, "the output is {r} x {c}, found a {fr} x {fc} matrix beside it")
            }
            Self::ColumnStride { found } => {
                write!(f, "a norm needs contiguous rows (column stride 1), found {found}")
            }
            Self::Weight { expected, found } => {
                write!(f, "the weight should have {expected} elements, found {found}")
            }
            Self::Bias { expected, found } => {
                write!(f, "the bias should have {expected} elements, found {found}")
            }
            Self::Epsilon { found } => {
                write!(f, "eps should be finite and at least 0, found {found}")
            }
            Self::Scales { expected, found } => {
                write!(f, "there should be a scale for each of {expected} rows, found {found}")
            }
            Self::ReductionChunks { expected, found } => {
                write!(f, "the leaves should have {expected} rows, found {found}")
            }
        }
    }
}

impl core::error::Error for NormError {}
