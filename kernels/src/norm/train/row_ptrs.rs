//! The checks that these calls share, and rows as tasks see them.

use crate::matrix::{Matrix, MatrixMut};
use crate::norm::error::NormError;
use crate::norm::vectors::RowPtrs;
use crate::rows::UnitColumns;

/// A matrix that is read, of so many rows and columns.
pub(super) fn read(m: &Matrix<'_>, shape: [usize; 2]) -> Result<RowPtrs, NormError> {
    fit(m.wide_columns(), shape, [m.rows(), m.columns()])?;
    Ok(RowPtrs::new(m.as_ptr().cast_mut(), m.row_stride(), m.rows()))
}

/// A matrix that is written, of so many rows and columns.
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

/// One scale for each row.
pub(super) fn one_each(rows: usize, scale: &[f32]) -> Result<(), NormError> {
    if scale.len() == rows {
        Ok(())
    } else {
        Err(NormError::Scales { expected: rows, found: scale.len() })
    }
}

/// Places handed to several tasks, each of which writes its own rows or columns.
pub(super) struct SyncPtrs<const N: usize>([RowPtrs; N]);

impl<const N: usize> SyncPtrs<N> {
    /// # Safety
    /// The memory is borrowed until all tasks are done, exclusively where they write; what one task writes
    /// no other uses.
    pub(super) const unsafe fn new(places: [RowPtrs; N]) -> Self {
        Self(places)
    }

    pub(super) const fn places(&self) -> [RowPtrs; N] {
        self.0
    }
}

// SAFETY: `SyncPtrs::new` is unsafe, and its caller keeps the memory borrowed until all tasks are
// done and lets no task use what another one writes.
unsafe impl<const N: usize> Sync for SyncPtrs<N> {}
