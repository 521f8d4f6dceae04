//! What can be wrong with the operands of a screen.

use core::fmt;

/// Why a screen was refused. Nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrunedArgmaxError {
    /// A sum of more products of bytes than fit 32 bits.
    TooDeep {
        /// Largest depth.
        expected_at_most: usize,
        /// Depth found.
        found: usize,
    },
    /// This build has no kernels for screens.
    MissingFeature {
        /// The feature of this crate that brings them: `"int8"`.
        feature: &'static str,
    },
    /// `depth * columns` overflows, or a column does not fit `u32`.
    TooLarge,
    /// The buffer for the screen, or the scratch, is too short; or a screen that was built before has
    /// another length.
    Length {
        /// `"screen"` or `"scratch"`.
        buffer: &'static str,
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// The screen, or the weight by columns, has another shape than the weight.
    Shape {
        /// `"screen"` or `"by_column"`.
        operand: &'static str,
        /// Depth and columns of the weight.
        expected: (usize, usize),
        /// Depth and columns of the operand.
        found: (usize, usize),
    },
    /// `x` has another number of columns than the weight has rows.
    Depth {
        /// Rows of the weight.
        expected: usize,
        /// Columns of `x`.
        found: usize,
    },
    /// The bias has another length than the weight has columns.
    Bias {
        /// Columns of the weight.
        expected: usize,
        /// Length of the bias.
        found: usize,
    },
    /// An output has another length than `x` has rows.
    Output {
        /// Rows of `x`.
        expected: usize,
        /// Length of the output.
        found: usize,
    },
}

impl fmt::Display for PrunedArgmaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep { expected_at_most, found } => {
                write!(f, "a screen holds a depth of at most {expected_at_most}, found {found}")
            }
            Self::MissingFeature { feature } => {
                write!(f, "the feature `{feature}` of simdformer-kernels is not enabled")
            }
            Self::TooLarge => f.write_str("depth times columns overflows"),
            Self::Length { buffer, expected, found } => {
                write!(f, "the {buffer} needs {expected} floats, found {found}")
            }
            Self::Shape { operand, expected, found } => write!(
                f,
                "{operand} must have the weight's depth and columns {expected:?}, found {found:?}"
            ),
            Self::Depth { expected, found } => {
                write!(f, "x must have {expected} columns, as the weight has rows; found {found}")
            }
            Self::Bias { expected, found } => {
                write!(f, "the bias must have {expected} elements, one per column; found {found}")
            }
            Self::Output { expected, found } => {
                write!(f, "an output must have {expected} elements, one per row; found {found}")
            }
        }
    }
}

impl core::error::Error for PrunedArgmaxError {}
