//! Packs columns of a matrix into strips as wide as a tile is tall: the operand `A` of a product whose `A` is stored
//! transposed.
//!
//! At each step, a tile of `dW = dY^T X` reads six elements of one row of `dY`. They are contiguous, but the elements
//! of the next step are one row further, and with rows of 512 or 2,048 floats all steps fall into a few sets of the L1
//! cache. In a strip, `[rows, 6]`, the steps are contiguous: a tile reads 12 KiB in order instead of touching 500 cache
//! lines. Packing reads every element once and in order, so it also sums the columns, which is the gradient of a bias.
//! The destination in the strips is prefetched, like the next rows: a store that misses the cache delays everything
//! after it.

use super::microkernel::PerStepWork;
use crate::matrix::Matrix;
use crate::simd::{CACHE_LINE_F32, MAX_MR, SimdF32, simd_op};
use crate::train::WriteMode;

/// Columns of a strip.
pub(super) const WIDTH: usize = MAX_MR;

/// Largest number of strips that are packed together and multiplied by a panel together: twelve cache lines of each
/// row. With 512 rows they take 400 KiB, so an L2 cache also holds two panels.
pub(super) const BLOCK: usize = 32;

/// Rows between the prefetch of a source row and its use.
const PREFETCH_ROWS: usize = 8;

/// Rows between the prefetch of a destination and its store.
const PREFETCH_STORE_ROWS: usize = 12;

/// Floats that the copy of six elements may write after them. Two vectors of four are copied faster than one and a
/// half.
pub(super) const OVERRUN: usize = 2;

/// The number of whole strips of `columns` columns that have [`OVERRUN`] more columns after them.
pub(super) const fn whole_strips(columns: usize) -> usize {
    columns.saturating_sub(OVERRUN) / WIDTH
}

/// Floats between the starts of two strips of `rows` rows. The stride has one cache line more than the strip, so that
/// strips of 512 rows do not all start in one cache set, and so that the copy of the last row may write past it. `None`
/// if the size overflows.
pub(super) const fn stride(rows: usize) -> Option<usize> {
    match rows.checked_mul(WIDTH) {
        Some(floats) => match floats.checked_next_multiple_of(CACHE_LINE_F32) {
            Some(floats) => floats.checked_add(CACHE_LINE_F32),
            None => None,
        },
        None => None,
    }
}

/// Packs a block of strips, and sums the columns.
pub(super) struct Strips<'a> {
    /// `[rows, columns]`, at most [`BLOCK`] times [`WIDTH`] columns.
    pub(super) from: Matrix<'a>,
    /// The start of the first strip.
    pub(super) to: &'a mut [f32],
    /// Floats between the starts of two strips: [`stride`].
    pub(super) stride: usize,
    /// The destination of the column sums, one element per column.
    pub(super) sums: Option<(&'a mut [f32], WriteMode)>,
}

simd_op!(
    /// # Safety
    /// `strips.to` has a stride for each strip.
    pub(super) unsafe fn pack_strips<S: SimdF32>(s: S, strips: Strips<'_>) {
        let mut strips = strips;
        let (rows, columns) = (strips.from.rows(), strips.from.columns());
        debug_assert!(columns <= BLOCK * WIDTH && strips.stride >= rows * WIDTH + OVERRUN);
        debug_assert!(strips.to.len() >= columns.div_ceil(WIDTH) * strips.stride);
        let mut totals = [0.0f32; BLOCK * WIDTH];
        let totals = &mut totals[..columns];
        for k in 0..rows {
            if strips.from.column_stride() == 1 {
                strips.copy(s, k);
                if strips.sums.is_some() {
                    strips.add_to_totals(s, k, totals);
                }
            } else {
                strips.gather(k, totals);
            }
        }
        if let Some((sums, write)) = strips.sums {
            write.all(sums, totals);
        }
    }
);

impl Strips<'_> {
    /// Copies a row of contiguous columns, and prefetches a later row.
    #[inline(always)]
    fn copy<S: SimdF32>(&mut self, s: S, k: usize) {
        let (columns, row_stride) = (self.from.columns(), self.from.row_stride());
        let from = self.from.as_ptr().wrapping_add(k * row_stride);
        let to = self.to.as_mut_ptr().wrapping_add(k * WIDTH);
        if S::PREFETCHES {
            let next_row = from.wrapping_add(PREFETCH_ROWS.wrapping_mul(row_stride));
            // The row may be unaligned, so it may touch one more line.
            for line in (0..columns + CACHE_LINE_F32).step_by(CACHE_LINE_F32) {
                s.prefetch(next_row.wrapping_add(line));
            }
        }
        // Whole strips with `OVERRUN` columns after them.
        let whole_strips = whole_strips(columns);
        for strip in 0..whole_strips {
            let to = to.wrapping_add(strip * self.stride);
            s.prefetch(to.wrapping_add(PREFETCH_STORE_ROWS * WIDTH));
            // SAFETY: `strip < whole_strips(columns)`, so row `k` has eight columns from here. Six of them have their
            // place in the strip. The other two are written to the place of the next row, or to the extra line that
            // `stride` adds. An array of floats has the alignment of a float.
            unsafe {
                let eight = from.add(strip * WIDTH).cast::<[f32; WIDTH + OVERRUN]>().read();
                to.cast::<[f32; WIDTH + OVERRUN]>().write(eight);
            }
        }
        for column in whole_strips * WIDTH..columns.next_multiple_of(WIDTH) {
            // SAFETY: the read is guarded by `column < columns`; the strip has a place for each of its `WIDTH` columns.
            unsafe {
                let x = if column < columns { from.add(column).read() } else { 0.0 };
                to.add(column / WIDTH * self.stride + column % WIDTH).write(x);
            }
        }
    }

    /// Adds a row of contiguous columns to `totals`.
    #[inline(always)]
    fn add_to_totals<S: SimdF32>(&self, s: S, k: usize, totals: &mut [f32]) {
        let row = self.from.as_ptr().wrapping_add(k * self.from.row_stride());
        let mut column = 0;
        while column + S::LANES <= totals.len() {
            // SAFETY: `column + LANES <= totals.len()`, which is the number of columns, and `k` is below the number of
            // rows.
            unsafe {
                let at = totals.as_mut_ptr().add(column);
                s.store(at, s.add(s.load(at), s.load(row.add(column))));
            }
            column += S::LANES;
        }
        for column in column..totals.len() {
            // SAFETY: `column` is below the number of columns and `k` below the number of rows.
            totals[column] += unsafe { row.add(column).read() };
        }
    }

    /// [`Strips::copy`] and [`Strips::add_to_totals`] for columns that are not contiguous.
    #[inline(always)]
    fn gather(&mut self, k: usize, totals: &mut [f32]) {
        let columns = totals.len();
        let (row_stride, column_stride) = (self.from.row_stride(), self.from.column_stride());
        let (from, to) = (self.from.as_ptr(), self.to.as_mut_ptr());
        for column in 0..columns.next_multiple_of(WIDTH) {
            // SAFETY: the read is guarded by `column < columns`; the strip has a place for each of its `WIDTH` columns.
            unsafe {
                let mut x = 0.0;
                if column < columns {
                    x = from.add(k * row_stride + column * column_stride).read();
                    totals[column] += x;
                }
                to.add(column / WIDTH * self.stride + k * WIDTH + column % WIDTH).write(x);
            }
        }
    }
}

/// Packs one strip while a tile multiplies by the rows that are copied: one row at each step. The columns are summed in
/// the same order as by [`pack_strips`].
#[derive(Clone, Copy)]
pub(super) struct CopyStrip {
    /// The first column of the strip in the next row, with [`OVERRUN`] columns after the strip.
    pub(super) from: *const f32,
    pub(super) row_stride: usize,
    /// The place of the next row in the slot of the strip.
    pub(super) to: *mut f32,
    pub(super) totals: *mut [f32; WIDTH + OVERRUN],
}

/// Copies a row, or does nothing.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of each row, `totals` is valid, and no other code uses `to` and
/// `totals` while the tile runs.
impl PerStepWork for Option<CopyStrip> {
    #[inline(always)]
    unsafe fn do_step<S: SimdF32>(&mut self, s: S) {
        let Some(CopyStrip { from, row_stride, to, totals }) = self else { return };
        // The address is the last column of the strip, because the strip before has already loaded the previous line.
        // Data that is not yet in L2 is prefetched one line of columns earlier, which is two or three strips.
        let last = from.wrapping_add(WIDTH - 1);
        s.prefetch(last.wrapping_add(PREFETCH_ROWS.wrapping_mul(*row_stride)));
        s.prefetch_l2(last.wrapping_add(CACHE_LINE_F32));
        // SAFETY: `# Safety` of this implementation: the row has eight columns from here. Six of them have their place
        // in the strip. The other two are written to the place of the next row, or to the extra line that `stride`
        // adds. An array of floats has the alignment of a float.
        unsafe {
            let eight = from.cast::<[f32; WIDTH + OVERRUN]>().read();
            to.cast::<[f32; WIDTH + OVERRUN]>().write(eight);
            for (total, x) in (**totals).iter_mut().zip(eight) {
                *total += x;
            }
        }
        *from = from.wrapping_add(*row_stride);
        *to = to.wrapping_add(WIDTH);
    }
}
