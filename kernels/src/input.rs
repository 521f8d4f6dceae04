//! The operand of a kernel that works in place or from one matrix to another.

use crate::error::Error;
use crate::matrix::Matrix;
use crate::row_tasks::RowPtrs;

/// The input of a kernel whose output has the same shape: another matrix, or the output itself.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// This matrix, which is only read.
    Matrix(Matrix<'a>),
    /// The content of the output before the call: the kernel works in place.
    Output,
}

impl<'a> Input<'a> {
    /// The rows of the input; `out` are those of the output.
    ///
    /// # Errors
    /// The matrix does not have `shape`, or the elements of a row are not contiguous.
    pub(crate) fn rows(
        &self,
        operand: &'static str,
        out: RowPtrs<'a>,
        shape: [usize; 2],
    ) -> Result<RowPtrs<'a>, Error> {
        match self {
            Self::Matrix(m) => RowPtrs::from_matrix(operand, m, shape),
            Self::Output => Ok(out),
        }
    }
}
