//! Reads a row of the input, some elements at a time.

use crate::matrix::Matrix;

/// A row of a matrix.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    at: *const f32,
    stride: usize,
    pub(crate) depth: usize,
}

impl Row {
    #[inline(always)]
    pub(crate) fn new(x: &Matrix<'_>, row: usize) -> Self {
        assert!(row < x.rows());
        let at = x.as_ptr().wrapping_add(row * x.row_stride());
        Self { at, stride: x.column_stride(), depth: x.columns() }
    }

    /// `N` elements from `first` on, with zeros after the last element.
    #[inline(always)]
    pub(crate) fn group<const N: usize>(self, first: usize) -> [f32; N] {
        let count = (self.depth - first).min(N);
        if self.stride == 1 && count == N {
            // SAFETY: the stride is 1 and `first + N <= depth`, so the elements are contiguous and inside the row.
            return unsafe { self.at.add(first).cast::<[f32; N]>().read_unaligned() };
        }
        self.copied(first)
    }

    /// The address of `count` elements from `first` on, with zeros after the last element: in the row if they are
    /// contiguous, otherwise in `buffer`.
    #[inline(always)]
    pub(super) fn place<const N: usize>(
        self,
        first: usize,
        count: usize,
        buffer: &mut [f32; N],
    ) -> *const f32 {
        if self.stride == 1 && self.depth - first >= count {
            return self.at.wrapping_add(first);
        }
        *buffer = self.copied(first);
        buffer.as_ptr()
    }

    /// [`Row::group`], one element at a time.
    #[inline(never)]
    fn copied<const N: usize>(self, first: usize) -> [f32; N] {
        let mut group = [0.0; N];
        for (i, x) in group[..(self.depth - first).min(N)].iter_mut().enumerate() {
            // SAFETY: `first + i < depth`, so the element is inside the row.
            *x = unsafe { *self.at.add((first + i) * self.stride) };
        }
        group
    }
}
