//! Addresses of matrices with the shape of the output of a GEMM.

use crate::matrix::Matrix;
use crate::prefetch::prefetch_rows;
use crate::simd::SimdF32;

/// A matrix with the shape of the output.
#[derive(Clone, Copy)]
pub(super) struct ElementPtrs {
    pub(super) first: *mut f32,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
}

/// A part of the output: rows `row..row + rows` and columns `column..column + columns`.
#[derive(Clone, Copy)]
pub(super) struct OutputRange {
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) column: usize,
    pub(super) columns: usize,
}

impl ElementPtrs {
    pub(super) fn of(m: &Matrix<'_>) -> Self {
        let first = m.as_ptr().cast_mut();
        Self { first, row_stride: m.row_stride(), column_stride: m.column_stride() }
    }

    /// The address of an element, which may be outside the matrix.
    #[inline(always)]
    pub(super) fn at(&self, row: usize, column: usize) -> *mut f32 {
        self.first.wrapping_add(row * self.row_stride + column * self.column_stride)
    }

    /// Prefetches a block into the L1 cache if `TO_L1`, else into the L2 cache, unless its columns are apart.
    #[inline(always)]
    pub(super) fn prefetch<S: SimdF32, const TO_L1: bool>(&self, s: S, block: OutputRange) {
        if self.column_stride == 1 {
            let at = self.first.wrapping_add(block.row * self.row_stride + block.column);
            prefetch_rows::<S, TO_L1>(s, at, self.row_stride, block.rows, block.columns);
        }
    }

    /// The address of `count` contiguous elements of a row from `column` on: in the matrix or, if its columns are apart,
    /// in `buffer`.
    ///
    /// # Safety
    /// The matrix has these elements, no other thread writes them, and `buffer` is valid for writes of as many.
    #[inline(always)]
    pub(super) unsafe fn row(
        &self,
        row: usize,
        column: usize,
        count: usize,
        buffer: *mut f32,
    ) -> *const f32 {
        let from = self.at(row, column);
        if self.column_stride == 1 {
            return from;
        }
        // SAFETY: `# Safety` of this function.
        unsafe { copy_strided((from, self.column_stride), (buffer, 1), count) };
        buffer
    }
}

/// Copies `count` floats between addresses with strides. Not inlined: elements that are apart are rare.
///
/// # Safety
/// The floats are valid for reads and writes.
#[inline(never)]
pub(super) unsafe fn copy_strided(from: (*const f32, usize), to: (*mut f32, usize), count: usize) {
    for i in 0..count {
        // SAFETY: `# Safety` of this function.
        unsafe { *to.0.add(i * to.1) = *from.0.add(i * from.1) };
    }
}
