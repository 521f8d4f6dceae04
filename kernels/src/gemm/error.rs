//! What can be wrong with the operands of a GEMM.

use super::dtype::Dtype;
use core::fmt;

/// Why a GEMM was refused. Nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GemmError {
    /// `A` has another number of columns than `W` has rows.
    Depth {
        /// Rows of `W`.
        expected: usize,
        /// Columns of `A`.
        found: usize,
    },
    /// `C` has another number of rows than `A`.
    Rows {
        /// Rows of `A`.
        expected: usize,
        /// Rows of `C`.
        found: usize,
    },
    /// `C` has another number of columns than `W`.
    Columns {
        /// Columns of `W`.
        expected: usize,
        /// Columns of `C`.
        found: usize,
    },
    /// The bias has another length than `W` has columns.
    Bias {
        /// Columns of `W`.
        expected: usize,
        /// Length of the bias.
        found: usize,
    },
    /// The residual has another shape than `C`.
    ResidualShape {
        /// Rows and columns of `C`.
        expected: (usize, usize),
        /// Rows and columns of the residual.
        found: (usize, usize),
    },
    /// The buffer for the packed matrix is too short to pack into; or packed floats that are read back are
    /// not exactly as many as the matrix takes.
    PackedLength {
        /// Floats that the packed matrix takes.
        expected: usize,
        /// Floats in the buffer.
        found: usize,
    },
    /// A block of columns to be packed does not fit into the packed matrix.
    PackedBlock {
        /// Depth and columns of the packed matrix.
        expected: (usize, usize),
        /// Depth of the block and the column after its last.
        found: (usize, usize),
    },
    /// A sum of more products of bytes than fit 32 bits.
    TooDeep {
        /// Largest depth.
        expected_at_most: usize,
        /// Depth found.
        found: usize,
    },
    /// The buffer for rounded rows is too short.
    RowsLength {
        /// Words that the rows take.
        expected: usize,
        /// Words in the buffer.
        found: usize,
    },
    /// A finite number that would be infinite in the form it is to be packed in.
    TooLargeToStore {
        /// That form.
        storage: Dtype,
        /// Row and column of the packed matrix where it belongs.
        at: (usize, usize),
        /// The bits of the number.
        bits: u32,
    },
    /// This build has no kernels for the format.
    MissingFeature {
        /// The feature of this crate that brings them: `"f16"` or `"int8"`.
        feature: &'static str,
    },
    /// The scratch is too short.
    Scratch {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// `X` has another number of rows than `dY`.
    #[cfg(feature = "train")]
    GradientRows {
        /// Rows of `dY`.
        expected: usize,
        /// Rows of `X`.
        found: usize,
    },
    /// The leaves have another number of rows than `dY`.
    #[cfg(feature = "train")]
    ReductionChunkRows {
        /// Rows of `dY`.
        expected: usize,
        /// Rows of all leaves.
        found: usize,
    },
    /// The gradient of the weight has another shape than outputs and inputs.
    #[cfg(feature = "train")]
    WeightGradient {
        /// Columns of `dY` and of `X`.
        expected: (usize, usize),
        /// Rows and columns of the gradient.
        found: (usize, usize),
    },
    /// The gradient of the bias has another length than `dY` has columns.
    #[cfg(feature = "train")]
    BiasGradient {
        /// Columns of `dY`.
        expected: usize,
        /// Length of the gradient.
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
