//! The checks that these functions share, and pointers for their tasks.

use crate::error::Error;
use crate::matrix::{Matrix, MatrixMut};
use crate::norm::vectors::RowPtrs;

/// A matrix that is read, which must have `shape`.
pub(super) fn read(
    operand: &'static str,
    m: &Matrix<'_>,
    shape: [usize; 2],
) -> Result<RowPtrs, Error> {
    m.check_contiguous_rows(operand)?;
    m.check_shape(operand, shape)?;
    Ok(RowPtrs::new(m.as_ptr().cast_mut(), m.row_stride(), m.rows()))
}

/// A matrix that is written, which must have `shape`.
pub(super) fn written(
    operand: &'static str,
    m: &mut MatrixMut<'_>,
    shape: [usize; 2],
) -> Result<RowPtrs, Error> {
    read(operand, &m.read(), shape)?;
    let (rows, stride) = (m.rows(), m.row_stride());
    Ok(RowPtrs::new(m.shared().as_ptr(), stride, rows))
}

/// Pointers shared by several tasks, each of which writes its own rows or columns.
pub(super) struct SyncPtrs<const N: usize>([RowPtrs; N]);

impl<const N: usize> SyncPtrs<N> {
    /// # Safety
    /// The memory is borrowed until all tasks are done, exclusively where they write. No task uses memory that another
    /// task writes.
    pub(super) const unsafe fn new(ptrs: [RowPtrs; N]) -> Self {
        Self(ptrs)
    }

    pub(super) const fn row_ptrs(&self) -> [RowPtrs; N] {
        self.0
    }
}

// SAFETY: the contract of `SyncPtrs::new`: the memory is borrowed until all tasks are done, and no task uses memory
// that another one writes.
unsafe impl<const N: usize> Sync for SyncPtrs<N> {}
