//! The checks that these calls share, and rows as tasks see them.

use super::ActivationError;
use crate::matrix::{Matrix, MatrixMut};
use crate::rows::UnitColumns;

/// Rows in memory: where they start and how far apart they are.
#[derive(Clone, Copy)]
pub(super) struct RowPtrs {
    start: *mut f32,
    stride: usize,
}

impl RowPtrs {
    /// A matrix that is read, of so many rows and columns.
    pub(super) fn read(m: &Matrix<'_>, shape: [usize; 2]) -> Result<Self, ActivationError> {
        fit(m.wide_columns(), shape, [m.rows(), m.columns()])?;
        Ok(Self { start: m.as_ptr().cast_mut(), stride: m.row_stride() })
    }

    /// A matrix that is written, of so many rows and columns.
    pub(super) fn written(
        m: &mut MatrixMut<'_>,
        shape: [usize; 2],
    ) -> Result<Self, ActivationError> {
        fit(m.wide_columns(), shape, [m.rows(), m.columns()])?;
        let stride = m.row_stride();
        Ok(Self { start: m.shared().as_ptr(), stride })
    }

    /// Where row `row` starts.
    #[inline(always)]
    pub(super) fn row(self, row: usize) -> *mut f32 {
        self.start.wrapping_add(row * self.stride)
    }
}

fn fit(
    wide: Option<usize>,
    expected: [usize; 2],
    found: [usize; 2],
) -> Result<(), ActivationError> {
    match wide {
        Some(found) => Err(ActivationError::ColumnStride { found }),
        None if found != expected => Err(ActivationError::Shape { expected, found }),
        None => Ok(()),
    }
}

/// Places handed to several tasks, each of which uses its own rows.
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
