//! The checks that these functions share, and pointers for their tasks.

use crate::matrix::{Matrix, MatrixMut};
use crate::norm::error::NormError;
use crate::norm::vectors::RowPtrs;
use crate::rows::UnitColumns;

/// A matrix that is read, which must have `shape`.
pub(super) fn read(m: &Matrix<'_>, shape: [usize; 2]) -> Result<RowPtrs, NormError> {
    fit(m.wide_columns(), shape, [m.rows(), m.columns()])?;
    Ok(RowPtrs::new(m.as_ptr().cast_mut(), m.row_stride(), m.rows()))
}

/// A matrix that is written, which must have `shape`.
pub(super) fn written(m: &mut MatrixMut<'_>, shape: [usize; 2]) -> Result<RowPtrs, NormError> {
    fit(m.wide_columns(), shape, [m.rows(), m.columns()])?;
    let (rows, stride) = (m.rows(), m.row_stride());
    Ok(RowPtrs::new(m.shared().as_ptr(), stride, rows))
}

fn fit(wide: Option<usize>, expected: [usize; 2], found: [usize; 2]) -> Result<(), NormError> {
    match wide {
        Some(found) => Err(NormError::ColumnStride { found }),
        None if found != expected => Err(NormError::Shape { expected, found }),
        None => Ok(()),
    }
}

/// Checks that there is one scale for each row.
pub(super) fn one_each(rows: usize, scale: &[f32]) -> Result<(), NormError> {
    if scale.len() == rows {
        Ok(())
    } else {
        Err(NormError::Scales { expected: rows, found: scale.len() })
    }
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
