//! Columns of a matrix in strips of one tile's height: the operand `A` of a product whose `A` is stored
//! transposed.
//!
//! A tile of `dW = dY^T X` reads, at each step, as many elements of one row of `dY` as it has rows. They
//! lie side by side, but the next step's lie a whole row further, and rows of 512 or 2,048 floats put all
//! steps into a few sets of a first-level cache. In a strip, `[rows, 6]`, the steps lie one after the other: a
//! tile streams through 12 KiB instead of touching 500 lines. Whoever copies sees every element once and in
//! order, so the sums of columns, the gradient of a bias, come along. The strips that an element is
//! copied into are asked for before, like the rows that come next: stores that wait for a line hold up
//! everything behind them.

use super::microkernel::{MAX_MR, Prefetch};
use crate::matrix::Matrix;
use crate::simd::{CACHE_LINE_F32, SimdF32, SimdOp};
use crate::train::WriteMode;

/// Columns of a strip.
pub(super) const WIDTH: usize = MAX_MR;

/// Most strips that are made together, and that pass over a panel together: twelve cache lines of each row,
/// and with 512 rows 400 KiB, which leave room for two panels in a second-level cache.
pub(super) const BLOCK: usize = 32;

/// Rows that are asked for before they are needed.
const ROWS_AHEAD: usize = 8;

/// Rows whose places are asked for before they are needed.
const PLACES_AHEAD: usize = 12;

/// Floats that a copy of a row's six may write behind them, as two vectors of four are copied sooner than
/// one and a half.
pub(super) const AFTER: usize = 2;

/// Whole strips of `columns` columns that have [`AFTER`] more behind them.
pub(super) const fn wide(columns: usize) -> usize {
    columns.saturating_sub(AFTER) / WIDTH
}

/// Floats from one strip of `rows` rows to the next: a line more than they need, so that strips of 512 rows
/// do not all begin in one set of a cache, and for what is written behind the last row. `None` when they
/// cannot be counted.
pub(super) const fn stride(rows: usize) -> Option<usize> {
    match rows.checked_mul(WIDTH) {
        Some(floats) => match floats.checked_next_multiple_of(CACHE_LINE_F32) {
            Some(floats) => floats.checked_add(CACHE_LINE_F32),
            None => None,
        },
        None => None,
    }
}

/// Writes a block of strips, and adds up the columns.
pub(super) struct Strips<'a> {
    /// `[rows, columns]`, at most [`BLOCK`] times [`WIDTH`] columns.
    pub(super) from: Matrix<'a>,
    /// The first strip.
    pub(super) to: &'a mut [f32],
    /// Floats from one strip to the next, as [`stride`] says.
    pub(super) stride: usize,
    /// Where the sums of the columns go, one each.
    pub(super) sums: Option<(&'a mut [f32], WriteMode)>,
}

impl SimdOp for Strips<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(mut self, s: S) {
        let (rows, columns) = (self.from.rows(), self.from.columns());
        debug_assert!(columns <= BLOCK * WIDTH && self.stride >= rows * WIDTH + AFTER);
        debug_assert!(self.to.len() >= columns.div_ceil(WIDTH) * self.stride);
        let mut totals = [0.0f32; BLOCK * WIDTH];
        let totals = &mut totals[..columns];
        for k in 0..rows {
            if self.from.column_stride() == 1 {
                self.copy(s, k);
                if self.sums.is_some() {
                    self.add_up(s, k, totals);
                }
            } else {
                self.gather(k, totals);
            }
        }
        if let Some((sums, write)) = self.sums {
            write.all(sums, totals);
        }
    }
}

impl Strips<'_> {
    /// Copies a row of contiguous columns, and asks for a later one.
    #[inline(always)]
    fn copy<S: SimdF32>(&mut self, s: S, k: usize) {
        let (columns, row_stride) = (self.from.columns(), self.from.row_stride());
        let from = self.from.as_ptr().wrapping_add(k * row_stride);
        let to = self.to.as_mut_ptr().wrapping_add(k * WIDTH);
        if S::PREFETCHES {
            let ahead = from.wrapping_add(ROWS_AHEAD.wrapping_mul(row_stride));
            // It need not start with a line: one more than it has.
            for line in (0..columns + CACHE_LINE_F32).step_by(CACHE_LINE_F32) {
                s.prefetch(ahead.wrapping_add(line));
            }
        }
        // Whole strips that have columns after them.
        let wide = wide(columns);
        for strip in 0..wide {
            let to = to.wrapping_add(strip * self.stride);
            s.prefetch(to.wrapping_add(PLACES_AHEAD * WIDTH));
            // SAFETY: eight columns of row `k`, and the place of six of them; the other two go where the
            // next row's will, or behind the last one's. Arrays of floats need no alignment but theirs.
            unsafe {
                let eight = from.add(strip * WIDTH).cast::<[f32; WIDTH + AFTER]>().read();
                to.cast::<[f32; WIDTH + AFTER]>().write(eight);
            }
        }
        for column in wide * WIDTH..columns.next_multiple_of(WIDTH) {
            // SAFETY: an element of row `k` if there is one, and its place in a strip.
            unsafe {
                let x = if column < columns { from.add(column).read() } else { 0.0 };
                to.add(column / WIDTH * self.stride + column % WIDTH).write(x);
            }
        }
    }

    /// Adds a row of contiguous columns to the totals.
    #[inline(always)]
    fn add_up<S: SimdF32>(&self, s: S, k: usize, totals: &mut [f32]) {
        let row = self.from.as_ptr().wrapping_add(k * self.from.row_stride());
        let mut column = 0;
        while column + S::LANES <= totals.len() {
            // SAFETY: LANES columns of a row that is there, and as many totals.
            unsafe {
                let at = totals.as_mut_ptr().add(column);
                s.store(at, s.add(s.load(at), s.load(row.add(column))));
            }
            column += S::LANES;
        }
        for column in column..totals.len() {
            // SAFETY: an element of a row that is there.
            totals[column] += unsafe { row.add(column).read() };
        }
    }

    /// [`Strips::copy`] and [`Strips::add_up`] of columns that are not contiguous.
    #[inline(always)]
    fn gather(&mut self, k: usize, totals: &mut [f32]) {
        let columns = totals.len();
        let (row_stride, column_stride) = (self.from.row_stride(), self.from.column_stride());
        let (from, to) = (self.from.as_ptr(), self.to.as_mut_ptr());
        for column in 0..columns.next_multiple_of(WIDTH) {
            // SAFETY: an element if there is one, and its place in a strip.
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

/// One strip that is made while a tile multiplies by the rows that it is copied from: a row at each step, or nothing
/// if not `ON`. Columns are added up in the same order as by [`Strips`].
#[derive(Clone, Copy)]
pub(super) struct Copying<const ON: bool> {
    from: *const f32,
    row_stride: usize,
    to: *mut f32,
    totals: *mut [f32; WIDTH + AFTER],
}

impl<const ON: bool> Copying<ON> {
    /// `from` is the strip's first column in row 0, and has [`AFTER`] columns behind it, `to` its place.
    ///
    /// # Safety
    /// If `ON`: it is asked no more often than there are rows at `from` and `to`, and while `totals` is there; nobody
    /// else uses `to` and `totals` meanwhile.
    pub(super) unsafe fn new(
        from: *const f32,
        row_stride: usize,
        to: *mut f32,
        totals: &mut [f32; WIDTH + AFTER],
    ) -> Self {
        Self { from, row_stride, to, totals }
    }

    /// Goes `rows` rows further.
    pub(super) fn skip(&mut self, rows: usize) {
        self.from = self.from.wrapping_add(rows * self.row_stride);
        self.to = self.to.wrapping_add(rows * WIDTH);
    }
}

impl<const ON: bool> Prefetch for Copying<ON> {
    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, _: usize) {
        if !ON {
            return;
        }
        // The last of its columns: the line before has been there for the strip before. And what comes from afar a
        // line of columns earlier, which is two strips or three.
        let last = self.from.wrapping_add(WIDTH - 1);
        s.prefetch(last.wrapping_add(ROWS_AHEAD.wrapping_mul(self.row_stride)));
        s.prefetch_l2(last.wrapping_add(CACHE_LINE_F32));
        // SAFETY: a row of eight columns, and the place of six of them; the other two go where the next row's will,
        // or behind the last one's. Arrays of floats need no alignment but theirs.
        unsafe {
            let eight = self.from.cast::<[f32; WIDTH + AFTER]>().read();
            self.to.cast::<[f32; WIDTH + AFTER]>().write(eight);
            for (total, x) in (*self.totals).iter_mut().zip(eight) {
                *total += x;
            }
        }
        self.skip(1);
    }
}
