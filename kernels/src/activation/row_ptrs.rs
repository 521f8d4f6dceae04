//! The checks that these functions share, and pointers to rows for their tasks.

use crate::error::Error;
use crate::matrix::{Matrix, MatrixMut};

/// Rows in memory: the address of the first row, and the distance between rows.
#[derive(Clone, Copy)]
pub(super) struct RowPtrs {
    start: *mut f32,
    stride: usize,
}

impl RowPtrs {
    /// A matrix that is read, which must have `shape`.
    pub(super) fn read(
        operand: &'static str,
        m: &Matrix<'_>,
        shape: [usize; 2],
    ) -> Result<Self, Error> {
        m.check_contiguous_rows(operand)?;
        m.check_shape(operand, shape)?;
        Ok(Self { start: m.as_ptr().cast_mut(), stride: m.row_stride() })
    }

    /// A matrix that is written, which must have `shape`.
    pub(super) fn written(
        operand: &'static str,
        m: &mut MatrixMut<'_>,
        shape: [usize; 2],
    ) -> Result<Self, Error> {
        Self::read(operand, &m.read(), shape)?;
        let stride = m.row_stride();
        Ok(Self { start: m.shared().as_ptr(), stride })
    }

    /// The address of row `row`.
    #[inline(always)]
    pub(super) fn row(self, row: usize) -> *mut f32 {
        self.start.wrapping_add(row * self.stride)
    }
}

/// Pointers shared by several tasks, each of which uses its own rows.
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
