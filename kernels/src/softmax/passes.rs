//! The passes over a row: its maximum, the sum of its exponentials, and its result.
//!
//! The passes for the maximum and the sum alternate block by block, while a block is in the L1 cache. The result of a
//! score needs the sum of the whole row, so it takes a separate pass.

use super::options::{FullyMasked, SoftmaxOptions};
use crate::math::{exp_nonpositive, exp_shift};
use crate::row_prefetch::PrefetchRow;
use crate::row_tasks::RowPtrs;
use crate::rows::{RowVector, UNROLL, fold_parts, map_slice};
use crate::simd::{SimdF32, simd_op};
use core::cell::Cell;
use core::ops::Range;

/// The longest rows of which several are computed in turn. Longer ones evict each other from the L1 cache.
const MAX_INTERLEAVED: usize = 1024;

/// Columns in one block: 16 KiB, a third of an L1 cache.
const BLOCK: usize = 4096;

/// Maximum of `len` floats, ignoring NaN; negative infinity when there is none.
///
/// # Safety
/// `from` is valid for reads of `len` floats.
#[inline(always)]
pub(crate) unsafe fn block_max<S: SimdF32>(s: S, from: *const f32, len: usize) -> f32 {
    let lowest = s.splat(f32::NEG_INFINITY);
    let mut max = [lowest; UNROLL];
    let mut i = 0;
    while i + UNROLL * S::LANES <= len {
        for (j, max) in max.iter_mut().enumerate() {
            // SAFETY: `i + UNROLL * LANES <= len`. If the first argument of `max` is NaN, the result is the second.
            *max = s.max(unsafe { s.load(from.add(i + j * S::LANES)) }, *max);
        }
        i += UNROLL * S::LANES;
    }
    while i < len {
        let count = (len - i).min(S::LANES);
        // SAFETY: `i + count <= len`.
        let x = s.select(s.first(count), unsafe { s.load_prefix(from.add(i), count) }, lowest);
        max[0] = s.max(x, max[0]);
        i += count;
    }
    s.reduce_max(s.max(s.max(max[0], max[1]), s.max(max[2], max[3])))
}

/// Sum of `e^(x - max)` over `len` floats; stores the exponentials too if `STORE`. Prefetches `len` floats at
/// `prefetch`, any addresses: the loads of the next data then overlap with the computation. Calls `beside` for each
/// vector.
///
/// # Safety
/// `from` is valid for reads and, if `STORE`, `to` for writes of `len` floats; they are the same or
/// disjoint.
#[inline(always)]
unsafe fn block_exp<S: SimdF32, const STORE: bool>(
    s: S,
    (from, to): (*const f32, *mut f32),
    len: usize,
    max: f32,
    prefetch: &[[PrefetchRow; 1]],
    beside: impl Fn(RowVector),
) -> f32 {
    let shift = s.splat(max);
    let [[sum]] = fold_parts::<S, 1, 1, 1>(
        s,
        len,
        prefetch,
        #[inline(always)]
        |_, at, [sum]| {
            // SAFETY: the caller's contract.
            let e = exp_nonpositive(s, s.sub(unsafe { at.load(s, from) }, shift));
            if STORE {
                // SAFETY: the caller's contract.
                unsafe { at.store(s, to, e) };
            }
            *sum = s.add(*sum, at.zero_rest(s, e));
            beside(at);
        },
    );
    sum
}

/// The maximum and the sum of `e^(x - max)` of a row.
#[derive(Clone, Copy)]
struct ExpSum {
    /// 0 when every entry is masked.
    max: f32,
    /// 0 when every entry is masked, NaN when one entry is NaN.
    sum: f64,
}

simd_op!(
    /// # Safety
    /// `from` is valid for reads of `len` floats.
    unsafe fn exp_sum<S: SimdF32>(s: S, from: *const f32, len: usize) -> ExpSum {
        let mut max = f32::NEG_INFINITY;
        let mut sum = 0.0f64;
        let mut start = 0;
        while start < len {
            let count = (len - start).min(BLOCK);
            // SAFETY: `start + count <= len`.
            let block = unsafe { from.add(start) };
            // SAFETY: the block has `count` floats of the row: `start + count <= len`.
            let largest = unsafe { block_max(s, block, count) };
            if largest > max {
                if sum != 0.0 {
                    sum *= libm::exp(f64::from(max) - f64::from(largest));
                }
                max = largest;
            }
            // SAFETY: the block has `count` floats of the row: `start + count <= len`. Without `STORE` nothing is written
            // to `nowhere`.
            let part = unsafe {
                // Prefetches the next block. After the last block it prefetches the first one, which the next pass reads.
                let prefetch = if start + count < len { block.add(count) } else { from };
                let next = [[PrefetchRow::new(s, prefetch, false)]];
                let nowhere = core::ptr::null_mut();
                block_exp::<S, false>(s, (block, nowhere), count, exp_shift(max), &next, |_| ())
            };
            sum += f64::from(part);
            start += count;
        }
        ExpSum { max: exp_shift(max), sum }
    }
);

/// The operands of a softmax, in place or into another matrix.
#[derive(Clone, Copy)]
pub(super) struct SoftmaxRows<'a> {
    pub(super) options: SoftmaxOptions<'a>,
    pub(super) from: RowPtrs<'a>,
    pub(super) to: RowPtrs<'a>,
    pub(super) columns: usize,
}

impl SoftmaxRows<'_> {
    fn len(&self, row: usize) -> usize {
        self.options.lengths.map_or(self.columns, |lengths| lengths[row])
    }

    /// Fills the columns after the `len` valid entries of an output row or, if `empty`, the whole row.
    ///
    /// # Safety
    /// `to` is valid for writes of `columns >= len` floats.
    #[inline(always)]
    unsafe fn fill_masked(&self, to: *mut f32, len: usize, empty: bool) {
        let SoftmaxOptions { logarithm, fully_masked, .. } = self.options;
        let masked = if logarithm { f32::NEG_INFINITY } else { 0.0 };
        let (start, value) = match fully_masked {
            FullyMasked::Uniform if empty && logarithm => {
                (0, -libm::log(self.columns as f64) as f32)
            }
            FullyMasked::Uniform if empty => (0, 1.0 / self.columns as f32),
            FullyMasked::Zeros if empty => (0, masked),
            _ => (len, masked),
        };
        for i in start..self.columns {
            // SAFETY: the caller's contract.
            unsafe { to.add(i).write(value) };
        }
    }

    /// One row that is longer than one block, or whose logarithm is computed.
    ///
    /// # Safety
    /// The input and the output have this row of `columns` floats; they are the same or disjoint.
    #[inline(always)]
    unsafe fn long<S: SimdF32>(&self, s: S, row: usize) {
        let (from, to, len) = (self.from.row(row), self.to.row(row), self.len(row));
        // SAFETY: the caller's contract, in the whole function.
        unsafe {
            let ExpSum { max, sum } = s.call_noinline(exp_sum(from, len));
            let empty = sum == 0.0;
            let max = s.splat(max);
            if !empty && self.options.logarithm {
                let log_sum = s.splat(libm::log(sum) as f32);
                map_slice::<S, UNROLL>(
                    s,
                    from,
                    to,
                    len,
                    #[inline(always)]
                    |x| s.sub(s.sub(x, max), log_sum),
                );
            } else if !empty {
                let factor = s.splat((1.0 / sum) as f32);
                map_slice::<S, UNROLL>(
                    s,
                    from,
                    to,
                    len,
                    #[inline(always)]
                    |x| s.mul(exp_nonpositive(s, s.sub(x, max)), factor),
                );
            }
            self.fill_masked(to, len, empty);
        }
    }

    /// Divides the exponentials of an output row by their `sum`, and fills its masked columns.
    ///
    /// # Safety
    /// The output has this row of `columns` floats.
    #[inline(always)]
    unsafe fn finish<S: SimdF32>(&self, s: S, row: usize, sum: f32) {
        let (to, len) = (self.to.row(row), self.len(row));
        let empty = sum == 0.0;
        // SAFETY: the caller's contract.
        unsafe {
            if !empty {
                let factor = s.splat(1.0 / sum);
                map_slice::<S, UNROLL>(
                    s,
                    to,
                    to,
                    len,
                    #[inline(always)]
                    |x| s.mul(x, factor),
                );
            }
            self.fill_masked(to, len, empty);
        }
    }

    /// Stores the exponentials of `row`, of which `max` is known, finishes the row before it, whose sum is `before`,
    /// and returns the sum of `row` and the maximum of the row after it, all in one loop: the two other passes wait for
    /// memory, the exponentials for arithmetic.
    ///
    /// # Safety
    /// The input and the output have the three rows of `columns` floats; they are the same or disjoint. The three have
    /// the same number of valid entries.
    #[inline(always)]
    unsafe fn beside_neighbors<S: SimdF32>(
        &self,
        s: S,
        row: usize,
        max: f32,
        before: f32,
    ) -> (f32, f32) {
        let (finished, next, len) = (self.to.row(row - 1), self.from.row(row + 1), self.len(row));
        let (factor, lowest) = (s.splat(1.0 / before), s.splat(f32::NEG_INFINITY));
        let largest = Cell::new(lowest);
        // SAFETY: the caller's contract.
        unsafe {
            let sum = block_exp::<S, true>(
                s,
                (self.from.row(row).cast_const(), self.to.row(row)),
                len,
                max,
                &[],
                #[inline(always)]
                |at| {
                    // If the first argument of `max` is NaN, the result is the second.
                    let x = at.replace_rest(s, at.load(s, next), lowest);
                    largest.set(s.max(x, largest.get()));
                    at.store(s, finished, s.mul(at.load(s, finished), factor));
                },
            );
            self.fill_masked(finished, len, false);
            (sum, s.reduce_max(largest.get()))
        }
    }

    /// Softmax of `rows`, each with at most one block. The maximum of a row is computed before the previous row is
    /// finished, so that a pass need not wait for the result of the pass before it.
    ///
    /// # Safety
    /// The input and the output have these rows of `columns` floats; they are the same or disjoint.
    #[inline(always)]
    unsafe fn short<S: SimdF32>(&self, s: S, rows: Range<usize>) {
        // Where rows come from memory, a pass that waits for nothing else loads them faster.
        let cached = !self.from.large;
        let mut sum = 0.0;
        // SAFETY: the caller's contract, in the whole function.
        unsafe {
            let mut max = block_max(s, self.from.row(rows.start), self.len(rows.start));
            for row in rows.clone() {
                let (len, shift) = (self.len(row), exp_shift(max));
                let inside = rows.start < row && row + 1 < rows.end;
                let same = inside && self.len(row - 1) == len && len == self.len(row + 1);
                if cached && same && sum != 0.0 {
                    (sum, max) = self.beside_neighbors(s, row, shift, sum);
                    continue;
                }
                if rows.start < row {
                    self.finish(s, row - 1, sum);
                }
                let place = (self.from.row(row).cast_const(), self.to.row(row));
                let next = [[PrefetchRow::new(s, self.from.row(row + 1), false)]];
                // The prefetcher of the hardware alone loads longer rows faster.
                let next = if self.columns <= MAX_INTERLEAVED { &next[..] } else { &[] };
                sum = block_exp::<S, true>(s, place, len, shift, next, |_| ());
                if row + 1 < rows.end {
                    max = block_max(s, self.from.row(row + 1), self.len(row + 1));
                }
            }
            self.finish(s, rows.end - 1, sum);
        }
    }
}

simd_op!(
    /// The softmax of `rows`, or its logarithm.
    pub(super) fn softmax_rows<S: SimdF32>(s: S, softmax: SoftmaxRows<'_>, rows: Range<usize>) {
        let Range { start: mut row, end } = rows;
        let most = match softmax.options.logarithm {
            true => 0,
            false if softmax.columns <= MAX_INTERLEAVED => usize::MAX,
            false => 1,
        };
        while row < end {
            let short = (row..end).take(most).take_while(|&row| softmax.len(row) <= BLOCK).count();
            // SAFETY: `softmax` checked with `RowPtrs` that both matrices have these rows of `columns` floats, and
            // `check_lengths` that no length is above `columns`; `row + short <= end`.
            unsafe {
                if short > 0 {
                    softmax.short(s, row..row + short);
                } else {
                    softmax.long(s, row);
                }
            }
            row += short.max(1);
        }
    }
);

simd_op!(
    /// Log-sum-exp of `rows`, one element of `out` for each.
    pub(super) fn log_sum_exp_rows<S: SimdF32>(
        s: S,
        scores: RowPtrs<'_>,
        rows: Range<usize>,
        columns: usize,
        lengths: Option<&[usize]>,
        out: &mut [f32],
    ) {
        for (row, out) in rows.zip(out) {
            let len = lengths.map_or(columns, |lengths| lengths[row]);
            // SAFETY: `log_sum_exp` checked with `RowPtrs::from_matrix` that the matrix has these rows of `columns` floats,
            // and with `check_lengths` that no length is above `columns`.
            let op = unsafe { exp_sum(scores.row(row), len) };
            let ExpSum { max, sum } = s.call_noinline(op);
            // Without a valid entry the sum is 0, and ln 0 is negative infinity.
            *out = (f64::from(max) + libm::log(sum)) as f32;
        }
    }
);
