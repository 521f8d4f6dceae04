//! Errors of the pruned argmax.

use core::fmt;

/// Why the operands of a pruned argmax were rejected. Nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrunedArgmaxError {
    /// The depth is so large that a sum of int8 products might not fit 32 bits.
    TooDeep {
        /// Largest depth.
        expected_at_most: usize,
        /// Depth found.
        found: usize,
    },
    /// This build has no kernels for the pruned argmax.
    MissingFeature {
        /// The feature of this crate that adds them: `"int8"`.
        feature: &'static str,
    },
    /// `depth * columns` overflows, or a column index does not fit `u32`.
    TooLarge,
    /// The buffer for the table or the scratch is too short, or a table that was built before has another length.
    Length {
        /// `"screen"` (the table) or `"scratch"`.
        buffer: &'static str,
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// The shape of the table, or of the weight by columns, is not that of the weight.
    Shape {
        /// `"screen"` (the table) or `"by_column"`.
        operand: &'static str,
        /// Depth and columns of the weight.
        expected: (usize, usize),
        /// Depth and columns of the operand.
        found: (usize, usize),
    },
    /// The number of columns of `x` is not the number of rows of the weight.
    Depth {
        /// Rows of the weight.
        expected: usize,
        /// Columns of `x`.
        found: usize,
    },
    /// The length of the bias is not the number of columns of the weight.
    Bias {
        /// Columns of the weight.
        expected: usize,
        /// Length of the bias.
        found: usize,
    },
    /// The length of an output is not the number of rows of `x`.
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
