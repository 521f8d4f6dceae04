//! Columns of a matrix in strips of one tile's height: the operand `A` of a product whose `A` is stored
//! transposed.
//!
//! A tile of `dW = dY^T X` reads, at each step, as many elements of one row of `dY` as it has rows. They
//! lie side by side, but the next step's lie a whole row further, and rows of 512 or 2,048 floats put all
//! steps into a few sets of a first-level cache. In a strip, `[rows, 6]`, the steps lie one after the other: a
//! tile streams through 12 KiB instead of touching 500 lines. Whoever copies sees every element once and in
//! order, so the sums of columns, the gradient of a bias, come along.

use super::microkernel::MAX_ROWS;
use crate::lanes::{Kernel, LINE, Lanes};
use crate::matrix::Matrix;
use crate::train::Write;

/// Columns of a strip.
pub(super) const WIDTH: usize = MAX_ROWS;

/// Strips that are made together: three cache lines of each row, and as many streams to write.
pub(super) const BLOCK: usize = 8;

/// Rows that are asked for before they are needed.
const ROWS_AHEAD: usize = 8;

/// Floats from one strip of `rows` rows to the next: a line more than they need, so that strips of 512 rows
/// do not all begin in one set of a cache. `None` when they cannot be counted.
pub(super) const fn stride(rows: usize) -> Option<usize> {
    match rows.checked_mul(WIDTH) {
        Some(floats) => match floats.checked_next_multiple_of(LINE) {
            Some(floats) => floats.checked_add(LINE),
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
    pub(super) sums: Option<(&'a mut [f32], Write)>,
}

impl Kernel for Strips<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { from, to, stride, sums } = self;
        let (rows, columns) = (from.rows(), from.columns());
        debug_assert!(columns <= BLOCK * WIDTH && stride >= rows * WIDTH);
        debug_assert!(to.len() >= columns.div_ceil(WIDTH) * stride);
        let (whole, rest) = (columns / WIDTH, columns % WIDTH);
        let (row_stride, column_stride) = (from.row_stride(), from.column_stride());
        let start = from.as_ptr();
        let to = to.as_mut_ptr();
        let mut totals = [0.0f32; BLOCK * WIDTH];
        for k in 0..rows {
            let row = start.wrapping_add(k * row_stride);
            if column_stride == 1 {
                if S::PREFETCHES {
                    let ahead = row.wrapping_add(ROWS_AHEAD.wrapping_mul(row_stride));
                    // It need not start with a line: one more than it has.
                    for line in (0..columns + LINE).step_by(LINE) {
                        s.prefetch(ahead.wrapping_add(line));
                    }
                }
                for strip in 0..whole {
                    // SAFETY: six columns of row `k`, and their place in a strip; neither has any
                    // alignment but that of floats, which is all that arrays of them need.
                    unsafe {
                        let six = row.add(strip * WIDTH).cast::<[f32; WIDTH]>().read();
                        to.add(strip * stride + k * WIDTH).cast::<[f32; WIDTH]>().write(six);
                    }
                }
                if sums.is_some() {
                    // SAFETY: the elements of row `k`, which are contiguous.
                    let row = unsafe { core::slice::from_raw_parts(row, columns) };
                    for (total, x) in totals.iter_mut().zip(row) {
                        *total += x;
                    }
                }
            } else {
                for column in 0..columns {
                    let strip = column / WIDTH;
                    // SAFETY: an element of row `k`, and its place in a strip.
                    unsafe {
                        let x = row.add(column * column_stride).read();
                        to.add(strip * stride + k * WIDTH + column % WIDTH).write(x);
                        totals[column] += x;
                    }
                }
            }
            // The last strip is filled up with zeros; their rows of a tile are not stored.
            if rest > 0 {
                for column in 0..WIDTH {
                    let at = whole * WIDTH + column;
                    // SAFETY: an element of row `k` if there is one, and a place in the last strip.
                    unsafe {
                        let x =
                            if column < rest { row.add(at * column_stride).read() } else { 0.0 };
                        to.add(whole * stride + k * WIDTH + column).write(x);
                    }
                }
            }
        }
        if let Some((sums, write)) = sums {
            for (sum, total) in sums.iter_mut().zip(totals) {
                *sum = match write {
                    Write::Store => total,
                    Write::Add => *sum + total,
                };
            }
        }
    }
}
