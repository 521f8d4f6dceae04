//! The rows of a matrix as tasks: their split into ranges of fixed size, independent of the number of threads, and
//! pointers to them.

use crate::error::Error;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::{Exec, work_to_share};
use crate::row_prefetch::PrefetchRow;
use crate::simd::{SimdF32, SimdOp, array_of};
use crate::sync_ptr::SharedMut;
use core::ops::Range;

/// Elements in one task, approximately: a few microseconds of work, more than the cost of handing a task to a thread.
const TASK: usize = work_to_share(1 << 14);

/// Runs `op` on ranges of rows that together are `0..rows`, or never if the rows are empty. The ranges depend on the
/// shape alone. Less than one task's work stays on the calling thread.
pub(crate) fn for_rows<K: SimdOp<Output = ()>>(
    Exec { isa, threads }: Exec<'_>,
    [rows, columns]: [usize; 2],
    op: impl Fn(Range<usize>) -> K + Sync,
) {
    if columns == 0 {
        return;
    }
    let chunk = (TASK / columns).max(1);
    threads.workers().for_each(rows.div_ceil(chunk), &|task| {
        let start = task * chunk;
        isa.dispatch(op(start..rows.min(start + chunk)));
    });
}

/// Floats in a matrix that is too large for the caches.
const LARGE: usize = 4 << 20;

/// The rows of a checked matrix: the address of the first row, and the distance between rows. Each task uses its own
/// rows. An address may be that of a row after the last one, which may only be prefetched.
#[derive(Clone, Copy)]
pub(crate) struct RowPtrs<'a> {
    first: SharedMut<'a>,
    stride: usize,
    /// Whether the matrix is too large for the caches.
    pub(crate) large: bool,
}

impl<'a> RowPtrs<'a> {
    /// A matrix that is only read.
    ///
    /// # Errors
    /// The matrix does not have `shape`, or the elements of a row are not contiguous.
    pub(crate) fn from_matrix(
        operand: &'static str,
        m: &Matrix<'a>,
        shape: [usize; 2],
    ) -> Result<Self, Error> {
        Self::check(operand, m, shape)?;
        Ok(Self::new(SharedMut::from_read(m.as_ptr()), m.row_stride(), m.rows()))
    }

    /// A matrix that is written.
    ///
    /// # Errors
    /// As [`RowPtrs::from_matrix`].
    pub(crate) fn from_matrix_mut(
        operand: &'static str,
        m: &'a mut MatrixMut<'_>,
        shape: [usize; 2],
    ) -> Result<Self, Error> {
        Self::check(operand, &m.as_view(), shape)?;
        let (rows, stride) = (m.rows(), m.row_stride());
        Ok(Self::new(m.shared(), stride, rows))
    }

    fn check(operand: &'static str, m: &Matrix<'_>, shape: [usize; 2]) -> Result<(), Error> {
        m.check_contiguous_rows(operand)?;
        m.check_shape(operand, shape)
    }

    const fn new(first: SharedMut<'a>, stride: usize, rows: usize) -> Self {
        Self { first, stride, large: rows.saturating_mul(stride) >= LARGE }
    }

    /// The address of a row.
    #[inline(always)]
    pub(crate) const fn row(self, row: usize) -> *mut f32 {
        self.first.as_ptr().wrapping_add(row.wrapping_mul(self.stride))
    }

    /// The addresses of `R` rows from `row` on.
    #[inline(always)]
    pub(crate) fn rows<const R: usize>(self, row: usize) -> [*mut f32; R] {
        array_of!(i in R => self.row(row + i))
    }

    /// `R` rows from `row` on, to prefetch.
    #[inline(always)]
    pub(crate) fn next<S: SimdF32, const R: usize>(self, s: S, row: usize) -> [PrefetchRow; R] {
        array_of!(i in R => PrefetchRow::new(s, self.row(row + i), self.large))
    }
}
