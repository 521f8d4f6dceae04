//! The passes over a row: its maximum, the sum of its exponentials, and its result.
//!
//! The passes for the maximum and the sum alternate block by block, while a block is in the L1 cache. The result of a
//! score needs the sum of the whole row, so it takes a separate pass.

use crate::math::exp_nonpositive;
use crate::row_tasks::{Map, RowPtrs, map_slice};
use crate::simd::{MAX_LANES, MOST_PARTS, SimdF32, SimdOp, simd_op, sum_of_parts};
use core::ops::Range;

/// The softmax of a row in which the formula is 0 / 0: no entry is valid, or no valid entry is above minus infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FullyMasked {
    /// Every probability is 0 (log-probability minus infinity): the row attends to nothing.
    #[default]
    Zeros,
    /// Every column of the row, masked or not, gets `1 / columns`: the result of filling masked scores with a large
    /// negative number, as textbooks do.
    Uniform,
}

/// The longest rows for which the passes of two rows are interleaved and the next row is prefetched. Longer rows evict
/// each other from the L1 cache, and the hardware prefetcher alone loads them faster.
const MAX_INTERLEAVED: usize = 768;

/// Columns in one block: 16 KiB, a third of an L1 cache.
const BLOCK: usize = 4096;
/// Vectors of independent sums in a reduction.
const UNROLL: usize = 4;
/// Elements in one step of a sum: `UNROLL` virtual vectors of sixteen lanes. The elements after the last whole step
/// belong to the first vector.
const STEP: usize = UNROLL * MAX_LANES;

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

/// Sum of `e^(x - max)` over `len` floats; stores the exponentials too if `STORE`. If `PREFETCH`, prefetches `len`
/// floats at `prefetch`, any address: the loads of the next data then overlap with the computation.
///
/// # Safety
/// `from` is valid for reads and, if `STORE`, `to` for writes of `len` floats; they are the same or
/// disjoint.
#[inline(always)]
unsafe fn block_exp<S: SimdF32, const STORE: bool, const PREFETCH: bool>(
    s: S,
    from: *const f32,
    to: *mut f32,
    len: usize,
    max: f32,
    prefetch: *const f32,
) -> f32 {
    let shift = s.splat(max);
    // The first sum of each part, and the other three sums of each part, added.
    let mut parts = [s.splat(0.0); MOST_PARTS];
    let mut others = [[s.splat(0.0); MOST_PARTS]; 2];
    let whole = len - len % STEP;
    for part in 0..MAX_LANES / S::LANES {
        let mut sum = [s.splat(0.0); UNROLL];
        let mut i = part * S::LANES;
        while i < whole {
            for (j, sum) in sum.iter_mut().enumerate() {
                let at = i + j * MAX_LANES;
                if PREFETCH {
                    s.prefetch(prefetch.wrapping_add(at));
                }
                // SAFETY: `at + LANES` is within a step, which ends within the row.
                let e = exp_nonpositive(s, s.sub(unsafe { s.load(from.add(at)) }, shift));
                if STORE {
                    // SAFETY: the contract of `block_exp`: if `STORE`, `to` has `len` floats; `at + LANES <= whole <=
                    // len`.
                    unsafe { s.store(to.add(at), e) };
                }
                *sum = s.add(*sum, e);
            }
            i += STEP;
        }
        parts[part] = sum[0];
        others[0][part] = sum[1];
        others[1][part] = s.add(sum[2], sum[3]);
    }
    let mut i = whole;
    while i + MAX_LANES <= len {
        for part in 0..MAX_LANES / S::LANES {
            let at = i + part * S::LANES;
            // SAFETY: `at + LANES <= i + MAX_LANES <= len`.
            let e = exp_nonpositive(s, s.sub(unsafe { s.load(from.add(at)) }, shift));
            if STORE {
                // SAFETY: the contract of `block_exp`: if `STORE`, `to` has `len` floats; `at + LANES <= i + MAX_LANES
                // <= len`.
                unsafe { s.store(to.add(at), e) };
            }
            parts[part] = s.add(parts[part], e);
        }
        i += MAX_LANES;
    }
    for part in 0..MAX_LANES / S::LANES {
        let at = i + part * S::LANES;
        if at < len {
            let count = (len - at).min(S::LANES);
            // SAFETY: `at + count <= len`.
            let e = exp_nonpositive(s, s.sub(unsafe { s.load_prefix(from.add(at), count) }, shift));
            if STORE {
                // SAFETY: the contract of `block_exp`: if `STORE`, `to` has `len` floats; `at + count <= len`.
                unsafe { s.store_prefix(to.add(at), e, count) };
            }
            parts[part] = s.add(parts[part], s.select(s.first(count), e, s.splat(0.0)));
        }
        parts[part] = s.add(s.add(parts[part], others[0][part]), others[1][part]);
    }
    sum_of_parts(s, parts)
}

/// The maximum and the sum of `e^(x - max)` of a row.
#[derive(Clone, Copy)]
struct Sums {
    /// 0 when every entry is masked.
    max: f32,
    /// 0 when every entry is masked, NaN when one entry is NaN.
    sum: f64,
}

/// The value that is subtracted from scores whose maximum is `max`: the maximum itself, except for negative infinity,
/// because negative infinity minus itself is NaN.
#[inline(always)]
fn shift_of(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// # Safety
/// `from` is valid for reads of `len` floats.
#[inline(always)]
unsafe fn sums<S: SimdF32>(s: S, from: *const f32, len: usize) -> Sums {
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
            let nowhere = core::ptr::null_mut();
            block_exp::<S, false, true>(s, block, nowhere, count, shift_of(max), prefetch)
        };
        sum += f64::from(part);
        start += count;
    }
    Sums { max: shift_of(max), sum }
}

#[derive(Clone, Copy)]
struct Times(f32);

impl Map for Times {
    #[inline(always)]
    fn map<S: SimdF32>(self, s: S, x: S::F32) -> S::F32 {
        s.mul(x, s.splat(self.0))
    }
}

/// `e^(x - shift) * factor`
#[derive(Clone, Copy)]
struct ShiftExpTimes(f32, f32);

impl Map for ShiftExpTimes {
    #[inline(always)]
    fn map<S: SimdF32>(self, s: S, x: S::F32) -> S::F32 {
        s.mul(exp_nonpositive(s, s.sub(x, s.splat(self.0))), s.splat(self.1))
    }
}

/// `(x - first) - second`
#[derive(Clone, Copy)]
struct MinusTwice(f32, f32);

impl Map for MinusTwice {
    #[inline(always)]
    fn map<S: SimdF32>(self, s: S, x: S::F32) -> S::F32 {
        s.sub(s.sub(x, s.splat(self.0)), s.splat(self.1))
    }
}

/// `to[start..end] = value`.
///
/// # Safety
/// `to` is valid for writes of `end` floats.
#[inline(always)]
unsafe fn fill(to: *mut f32, start: usize, end: usize, value: f32) {
    for i in start..end {
        // SAFETY: the caller's contract.
        unsafe { to.add(i).write(value) };
    }
}

/// Fills the columns after the `len` valid entries of a row of `columns`, or, if `empty`, the whole row.
///
/// # Safety
/// `to` is valid for writes of `columns >= len` floats.
#[inline(always)]
unsafe fn fill_masked(
    to: *mut f32,
    len: usize,
    columns: usize,
    empty: bool,
    fully_masked: FullyMasked,
) {
    // SAFETY: the caller's contract.
    unsafe {
        match fully_masked {
            FullyMasked::Zeros if empty => fill(to, 0, columns, 0.0),
            FullyMasked::Uniform if empty => fill(to, 0, columns, 1.0 / columns as f32),
            _ => fill(to, len, columns, 0.0),
        }
    }
}

/// Softmax of one row of `columns`, of which the first `len` are valid, for rows longer than one block.
///
/// # Safety
/// `from` is valid for reads of `len`, `to` for writes of `columns` floats; they are the same or
/// disjoint.
#[inline(always)]
unsafe fn softmax_row<S: SimdF32>(
    s: S,
    from: *const f32,
    to: *mut f32,
    len: usize,
    columns: usize,
    fully_masked: FullyMasked,
) {
    // SAFETY: the caller's contract, in the whole function.
    unsafe {
        let Sums { max, sum } = sums(s, from, len);
        let empty = sum == 0.0;
        if !empty {
            map_slice(s, ShiftExpTimes(max, (1.0 / sum) as f32), from, to, len);
        }
        fill_masked(to, len, columns, empty, fully_masked);
    }
}

/// As [`softmax_row`], for the logarithm.
///
/// # Safety
/// As [`softmax_row`].
#[inline(always)]
unsafe fn log_softmax_row<S: SimdF32>(
    s: S,
    from: *const f32,
    to: *mut f32,
    len: usize,
    columns: usize,
    fully_masked: FullyMasked,
) {
    // SAFETY: the caller's contract, in the whole function.
    unsafe {
        let Sums { max, sum } = sums(s, from, len);
        let empty = sum == 0.0;
        if !empty {
            map_slice(s, MinusTwice(max, libm::log(sum) as f32), from, to, len);
        }
        match fully_masked {
            FullyMasked::Zeros if empty => fill(to, 0, columns, f32::NEG_INFINITY),
            FullyMasked::Uniform if empty => {
                fill(to, 0, columns, -libm::log(columns as f64) as f32);
            }
            _ => fill(to, len, columns, f32::NEG_INFINITY),
        }
    }
}

/// The result of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Probability,
    Logarithm,
}

/// Softmax of rows, or its logarithm, in place or into another matrix.
pub(super) struct SoftmaxRows<'a> {
    pub(super) output: Output,
    pub(super) from: RowPtrs<'a>,
    pub(super) to: RowPtrs<'a>,
    pub(super) rows: Range<usize>,
    pub(super) columns: usize,
    pub(super) lengths: Option<&'a [usize]>,
    pub(super) fully_masked: FullyMasked,
}

impl SoftmaxRows<'_> {
    fn len(&self, row: usize) -> usize {
        self.lengths.map_or(self.columns, |lengths| lengths[row])
    }

    /// Softmax of `rows`, each with at most one block. The maximum of a row is computed before the previous row is
    /// finished, so that a pass need not wait for the result of the pass before it.
    ///
    /// # Safety
    /// The input and the output have these rows of `columns` floats; they are the same or disjoint.
    #[inline(always)]
    unsafe fn short<S: SimdF32, const PREFETCH: bool>(&self, s: S, rows: Range<usize>) {
        let mut sum = 0.0;
        for row in rows.start..=rows.end {
            let from = self.from.row(row);
            // SAFETY: the caller's contract, in the whole loop.
            unsafe {
                let mut max = 0.0;
                if row < rows.end {
                    max = shift_of(block_max(s, from, self.len(row)));
                }
                if row > rows.start {
                    let before = row - 1;
                    let (to, len) = (self.to.row(before), self.len(before));
                    let empty = sum == 0.0;
                    if !empty {
                        map_slice(s, Times(1.0 / sum), to, to, len);
                    }
                    fill_masked(to, len, self.columns, empty, self.fully_masked);
                }
                if row < rows.end {
                    let to = self.to.row(row);
                    let prefetch = self.from.row(row + 1);
                    sum = block_exp::<S, true, PREFETCH>(s, from, to, self.len(row), max, prefetch);
                }
            }
        }
    }
}

impl SimdOp for SoftmaxRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let Range { start: mut row, end } = self.rows;
        while row < end {
            if self.output == Output::Probability {
                let short = (row..end).take_while(|&row| self.len(row) <= BLOCK).count();
                // SAFETY: `softmax::run` checked with `RowPtrs` that both matrices have these rows of `columns` floats,
                // and `check_lengths` that no length is above `columns`; `row + short <= end`.
                unsafe {
                    if self.columns <= MAX_INTERLEAVED {
                        self.short::<S, true>(s, row..row + short);
                    } else {
                        (row..row + short).for_each(|row| self.short::<S, false>(s, row..row + 1));
                    }
                }
                row += short;
                if row == end {
                    break;
                }
            }
            let len = self.len(row);
            // SAFETY: `softmax::run` checked with `RowPtrs` that both matrices have these rows of `columns` floats,
            // and `check_lengths` that no length is above `columns`; `row < end`.
            unsafe {
                let (from, to) = (self.from.row(row), self.to.row(row));
                match self.output {
                    Output::Probability => {
                        softmax_row(s, from, to, len, self.columns, self.fully_masked);
                    }
                    Output::Logarithm => {
                        log_softmax_row(s, from, to, len, self.columns, self.fully_masked);
                    }
                }
            }
            row += 1;
        }
    }
}

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
            // SAFETY: `log_sum_exp` checked with `RowPtrs::read` that the matrix has these rows of `columns` floats,
            // and with `check_lengths` that no length is above `columns`.
            let Sums { max, sum } = unsafe { sums(s, scores.row(row), len) };
            // Without a valid entry the sum is 0, and ln 0 is negative infinity.
            *out = (f64::from(max) + libm::log(sum)) as f32;
        }
    }
);
