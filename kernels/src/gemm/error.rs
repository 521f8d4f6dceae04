//! Errors of the GEMM functions.

use super::dtype::Dtype;
use core::fmt;

/// Why the operands of a GEMM were rejected. Nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GemmError {
    /// The number of columns of `A` is not the number of rows of `W`.
    Depth {
        /// Rows of `W`.
        expected: usize,
        /// Columns of `A`.
        found: usize,
    },
    /// The number of rows of `C` is not that of `A`.
    Rows {
        /// Rows of `A`.
        expected: usize,
        /// Rows of `C`.
        found: usize,
    },
    /// The number of columns of `C` is not that of `W`.
    Columns {
        /// Columns of `W`.
        expected: usize,
        /// Columns of `C`.
        found: usize,
    },
    /// The length of the bias is not the number of columns of `W`.
    Bias {
        /// Columns of `W`.
        expected: usize,
        /// Length of the bias.
        found: usize,
    },
    /// The shape of the residual is not that of `C`.
    ResidualShape {
        /// Rows and columns of `C`.
        expected: (usize, usize),
        /// Rows and columns of the residual.
        found: (usize, usize),
    },
    /// The buffer for packing is too short, or the length of packed data does not match the matrix.
    PackedLength {
        /// Floats of the packed matrix.
        expected: usize,
        /// Floats in the buffer.
        found: usize,
    },
    /// A block of columns does not fit the packed matrix.
    PackedBlock {
        /// Depth and columns of the packed matrix.
        expected: (usize, usize),
        /// Depth of the block, and the column after its last column.
        found: (usize, usize),
    },
    /// The depth is so large that a sum of int8 products might not fit 32 bits.
    TooDeep {
        /// Largest depth.
        expected_at_most: usize,
        /// Depth found.
        found: usize,
    },
    /// The buffer for quantized activations is too short.
    RowsLength {
        /// Words of the quantized rows.
        expected: usize,
        /// Words in the buffer.
        found: usize,
    },
    /// A finite value that would round to infinity in the packed dtype.
    TooLargeToStore {
        /// The dtype of the packed matrix.
        storage: Dtype,
        /// Row and column of the value in the packed matrix.
        at: (usize, usize),
        /// The bits of the f32 value.
        bits: u32,
    },
    /// This build has no kernels for the dtype.
    MissingFeature {
        /// The feature of this crate that adds them: `"f16"` or `"int8"`.
        feature: &'static str,
    },
    /// The scratch is too short.
    Scratch {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// The number of rows of `X` is not that of `dY`.
    #[cfg(feature = "train")]
    GradientRows {
        /// Rows of `dY`.
        expected: usize,
        /// Rows of `X`.
        found: usize,
    },
    /// The reduction chunks do not cover the rows of `dY`.
    #[cfg(feature = "train")]
    ReductionChunkRows {
        /// Rows of `dY`.
        expected: usize,
        /// Rows of all reduction chunks.
        found: usize,
    },
    /// The shape of the weight gradient is not `[outputs, inputs]`.
    #[cfg(feature = "train")]
    WeightGradient {
        /// Columns of `dY` and of `X`.
        expected: (usize, usize),
        /// Rows and columns of the weight gradient.
        found: (usize, usize),
    },
    /// The length of the bias gradient is not the number of columns of `dY`.
    #[cfg(feature = "train")]
    BiasGradient {
        /// Columns of `dY`.
        expected: usize,
        /// Length of the bias gradient.
        found: usize,
    },
    /// `depth * columns` overflows.
    TooLarge,
}

impl fmt::Display for GemmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth { expected, found } => {
                write!(f, "A must have {expected} columns, as W has rows; found {found}")
            }
            Self::Rows { expected, found } => {
                write!(f, "C must have {expected} rows, as A has; found {found}")
            }
            Self::Columns { expected, found } => {
                write!(f, "C must have {expected} columns, as W has; found {found}")
            }
            Self::Bias { expected, found } => {
                write!(f, "the bias must have {expected} elements, one per column; found {found}")
            }
            Self::ResidualShape { expected, found } => {
                write!(f, "the residual must have C's shape {expected:?}; found {found:?}")
            }
            Self::PackedLength { expected, found } => {
                write!(f, "the packed matrix takes {expected} floats; the buffer has {found}")
            }
            Self::PackedBlock { expected, found } => write!(
                f,
                "a block reaching {found:?} does not fit a packed matrix of {expected:?} (depth, columns)"
            ),
            Self::TooDeep { expected_at_most, found } => write!(
                f,
                "sums of products of bytes have a depth of at most {expected_at_most}; found {found}"
            ),
            Self::RowsLength { expected, found } => {
                write!(f, "the rounded rows take {expected} words; the buffer has {found}")
            }
            Self::TooLargeToStore { storage, at: (row, column), bits } => {
                let (most, found) = (storage.largest(), f32::from_bits(*bits));
                write!(
                    f,
                    "{storage:?} holds numbers up to {most:e}; found {found:e} in row {row}, column {column}"
                )
            }
            Self::MissingFeature { feature } => {
                write!(f, "the feature `{feature}` of simdformer-kernels is not enabled")
            }
            Self::Scratch { expected, found } => {
                write!(f, "the product needs {expected} floats of scratch; found {found}")
            }
            #[cfg(feature = "train")]
            Self::GradientRows { expected, found } => {
                write!(f, "X must have {expected} rows, as dY has; found {found}")
            }
            #[cfg(feature = "train")]
            Self::ReductionChunkRows { expected, found } => {
                write!(f, "the leaves must have {expected} rows, as dY has; found {found}")
            }
            #[cfg(feature = "train")]
            Self::WeightGradient { expected, found } => write!(
                f,
                "the gradient of W must be {expected:?}, columns of dY and of X; found {found:?}"
            ),
            #[cfg(feature = "train")]
            Self::BiasGradient { expected, found } => {
                write!(f, "the gradient of the bias must have {expected} elements; found {found}")
            }
            Self::TooLarge => f.write_str("depth times columns overflows"),
        }
    }
}

impl core::error::Error for GemmError {}
