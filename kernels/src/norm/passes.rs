//! The three passes over a row of a layer normalization: [`start`] reads it for the first time and computes its
//! approximate mean, [`deviations`] computes the error of this mean and the variance, and [`finish`] writes the
//! result.
//!
//! Each pass processes `R` rows in parallel, because a reduction is a chain of additions: a second row keeps the CPU
//! busy during the chain of the first one. If rows are too long for that, the passes of consecutive rows are
//! interleaved.

use super::parameters::LayerNorm;
use super::simd_rows::{
    F32_SAFE, PAIRED, PrefetchRow, STEP, UNROLL, add_vectors, learned_row, load, prefetch_step,
    reduce, store,
};
use crate::math;
use crate::row_tasks::RowPtrs;
use crate::simd::{MAX_LANES, MOST_PARTS, SimdF32, SimdOp};

/// The largest number of columns for which the passes of consecutive rows are interleaved. Two longer rows and the
/// prefetched data do not fit the L1 cache.
const MAX_INTERLEAVED: usize = 768;

/// Normalizes rows in place or into another matrix, each in three passes. `BIAS` if the norm has a bias.
pub(super) struct NormRows<'a, const ADD: bool, const BIAS: bool> {
    pub(super) norm: LayerNorm<'a>,
    pub(super) rows: usize,
    /// The input, which is only read.
    pub(super) x: RowPtrs<'a>,
    /// If `ADD`, the residual that is added to the input, which is only read.
    pub(super) residual: RowPtrs<'a>,
    /// If `ADD`, the output for the sum.
    pub(super) sum: RowPtrs<'a>,
    pub(super) out: RowPtrs<'a>,
}

impl<const ADD: bool, const BIAS: bool> SimdOp for NormRows<'_, ADD, BIAS> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let mut row = 0;
        // SAFETY: `norm::tasks::run` checked that all views have the shape of `out`, that rows are contiguous, that
        // weight and bias have `columns` floats (`Norm::check`), and that there are rows and columns; it sets `BIAS`
        // if there is a bias. `for_rows` gives each task its own rows.
        unsafe {
            if S::REGISTERS >= 32 && self.norm.weight.len() <= PAIRED {
                while row + 2 <= self.rows {
                    self.group::<S, 2>(s, row);
                    row += 2;
                }
            }
            if self.norm.weight.len() <= MAX_INTERLEAVED {
                return self.interleaved(s, row);
            }
            while row < self.rows {
                self.group::<S, 1>(s, row);
                row += 1;
            }
        }
    }
}

impl<const ADD: bool, const BIAS: bool> NormRows<'_, ADD, BIAS> {
    /// Normalizes `R` rows from `row` on. Each of the three passes prefetches one operand of the rows after them, so
    /// that memory is always busy.
    ///
    /// # Safety
    /// All matrices have these rows, which are not empty and as long as the weight and the bias. The norm has a bias
    /// if `BIAS`.
    #[inline(always)]
    unsafe fn group<S: SimdF32, const R: usize>(&self, s: S, row: usize) {
        let norm = &self.norm;
        let (x, residual, sum) = (self.x.rows(row), self.residual.rows(row), self.sum.rows(row));
        let prefetch =
            [self.x, if ADD { self.residual } else { self.out }].map(|p| p.next(row + R));
        // SAFETY: the caller's contract; `moments` has written the sum.
        unsafe {
            let moments =
                moments::<S, ADD, R>(s, norm.weight.len(), norm.eps, [x, residual, sum], prefetch);
            self.finish::<S, R>(s, row, moments, self.out.next(row + R));
        }
    }

    /// Normalizes all rows from `row` on, one at a time. A row is read for the first time before the previous one is
    /// finished, so that a pass need not wait for the result of the pass before it.
    ///
    /// # Safety
    /// As [`NormRows::group`], for all of them.
    #[inline(always)]
    unsafe fn interleaved<S: SimdF32>(&self, s: S, row: usize) {
        let norm = &self.norm;
        let len = norm.weight.len();
        let other = if ADD { self.residual } else { self.out };
        let mut before = None;
        for row in row..=self.rows {
            let mut mean = [0.0];
            // SAFETY: the caller's contract; sums are written before they are read.
            unsafe {
                if row < self.rows {
                    let rows = [self.x.rows(row), self.residual.rows(row), self.sum.rows(row)];
                    mean = means::<S, ADD, 1>(s, len, rows, self.x.next(row + 1));
                }
                if let Some(moments) = before {
                    self.finish::<S, 1>(s, row - 1, moments, other.next(row + 1));
                }
                if row < self.rows {
                    let x = if ADD { self.sum } else { self.x }.rows(row);
                    let prefetch = self.out.next(row + 1);
                    before = Some(moments_about::<S, 1>(s, len, norm.eps, x, mean, prefetch));
                }
            }
        }
    }

    /// Writes the results of `R` rows from `row` on, whose sums are written.
    ///
    /// # Safety
    /// As [`NormRows::group`].
    #[inline(always)]
    unsafe fn finish<S: SimdF32, const R: usize>(
        &self,
        s: S,
        row: usize,
        (standard, f32_safe): (Standard<R>, [bool; R]),
        prefetch: [PrefetchRow; R],
    ) {
        let norm = &self.norm;
        let x = if ADD { self.sum } else { self.x }.rows(row);
        let out = self.out.rows(row);
        // SAFETY: the caller's contract; the sum is written.
        unsafe {
            if f32_safe == [true; R] {
                finish::<S, R, BIAS>(s, norm, x, out, standard, prefetch);
            } else {
                for i in 0..R {
                    if f32_safe[i] {
                        let standard = standard.of(i);
                        finish::<S, 1, BIAS>(s, norm, [x[i]], [out[i]], standard, [prefetch[i]]);
                    } else {
                        standard_row_wide(norm.weight.len(), norm.eps, x[i], out[i]);
                        s.call_noinline(learned_row(norm.weight, norm.bias, out[i]));
                    }
                }
            }
        }
    }
}

/// The mean, scale and shift of `R` rows, and for each row whether f32 is accurate enough.
///
/// # Safety
/// `rows` are the inputs, the residuals and the outputs for the sums, the latter two only if `ADD`: as for [`start`].
#[inline(always)]
pub(super) unsafe fn moments<S: SimdF32, const ADD: bool, const R: usize>(
    s: S,
    len: usize,
    eps: f32,
    rows: [[*mut f32; R]; 3],
    prefetch: [[PrefetchRow; R]; 2],
) -> (Standard<R>, [bool; R]) {
    let [x, _, sum] = rows;
    // SAFETY: the caller's contract; `means` has written the sum.
    unsafe {
        let mean = means::<S, ADD, R>(s, len, rows, prefetch[0]);
        moments_about::<S, R>(s, len, eps, if ADD { sum } else { x }, mean, prefetch[1])
    }
}

/// The approximate means of `R` rows; [`moments_about`] computes their errors.
///
/// # Safety
/// As [`moments`].
#[inline(always)]
unsafe fn means<S: SimdF32, const ADD: bool, const R: usize>(
    s: S,
    len: usize,
    [x, residual, sum]: [[*mut f32; R]; 3],
    prefetch: [PrefetchRow; R],
) -> [f32; R] {
    let inverse = 1.0 / len as f32;
    // SAFETY: the caller's contract.
    let (mut mean, total) = unsafe { start::<S, ADD, R>(s, len, x, residual, sum, prefetch) };
    for (mean, total) in mean.iter_mut().zip(total) {
        *mean += total * inverse;
    }
    mean
}

/// [`moments`] of rows with given approximate means.
///
/// # Safety
/// `x` is valid for reads of `len` floats.
#[inline(always)]
unsafe fn moments_about<S: SimdF32, const R: usize>(
    s: S,
    len: usize,
    eps: f32,
    x: [*mut f32; R],
    mean: [f32; R],
    prefetch: [PrefetchRow; R],
) -> (Standard<R>, [bool; R]) {
    let inverse = 1.0 / len as f32;
    // SAFETY: the caller's contract.
    let (total, squares) = unsafe { deviations::<S, R>(s, len, x, mean, prefetch) };
    let (mut scale, mut shift, mut f32_safe) = ([0.0; R], [0.0; R], [false; R]);
    for i in 0..R {
        let correction = total[i] * inverse;
        let variance = (squares[i] - total[i] * correction) * inverse;
        // Rounding can give a small negative number.
        let variance = if variance < 0.0 { 0.0 } else { variance } + eps;
        f32_safe[i] = F32_SAFE.contains(&variance);
        scale[i] = 1.0 / math::sqrt(variance);
        shift[i] = -correction * scale[i];
    }
    (Standard { mean, scale, shift }, f32_safe)
}

/// Reads `R` rows for the first time, writes the sums with the residual if `ADD`, and returns each row's first entry
/// and the sum of the differences from it.
///
/// # Safety
/// `x` and, if `ADD`, `residual` are valid for reads, `sum` for writes of `len > 0` floats. Pointers of one row are
/// the same or disjoint, and `sum` may equal `x` only if it equals `residual` too; `sum` is disjoint from other rows.
#[inline(always)]
unsafe fn start<S: SimdF32, const ADD: bool, const R: usize>(
    s: S,
    len: usize,
    x: [*mut f32; R],
    residual: [*mut f32; R],
    sum: [*mut f32; R],
    prefetch: [PrefetchRow; R],
) -> ([f32; R], [f32; R]) {
    let zero = s.splat(0.0);
    let mut first = [0.0; R];
    let mut origin = [zero; R];
    for row in 0..R {
        // SAFETY: the rows are not empty.
        first[row] = unsafe { if ADD { *x[row] + *residual[row] } else { *x[row] } };
        origin[row] = s.splat(first[row]);
    }
    let mut parts = [[zero; MOST_PARTS]; R];
    let rows = [x, residual, sum];
    // SAFETY: the caller's contract.
    unsafe {
        if S::LANES == MAX_LANES {
            differences::<S, ADD, R, 1>(s, len, rows, prefetch, origin, 0, &mut parts);
        } else {
            let mut group = 0;
            while group < MAX_LANES / S::LANES {
                differences::<S, ADD, R, 2>(s, len, rows, prefetch, origin, group, &mut parts);
                group += 2;
            }
        }
    }
    (first, reduce(s, parts))
}

/// [`start`] for the parts `group..group + WIDTH` of the virtual vectors.
///
/// # Safety
/// As [`start`].
#[inline(always)]
unsafe fn differences<S: SimdF32, const ADD: bool, const R: usize, const WIDTH: usize>(
    s: S,
    len: usize,
    [x, residual, sum]: [[*mut f32; R]; 3],
    prefetch: [PrefetchRow; R],
    origin: [S::F32; R],
    group: usize,
    parts: &mut [[S::F32; MOST_PARTS]; R],
) {
    let zero = s.splat(0.0);
    let mut total = [[[zero; UNROLL]; WIDTH]; R];
    macro_rules! vector {
        ($full:literal, $row:expr, $part:expr, $j:expr, $at:expr, $count:expr) => {{
            let (row, part, at, count) = ($row, $part, $at, $count);
            let mut v = load::<S, $full>(s, x[row].add(at), count);
            if ADD {
                v = s.add(v, load::<S, $full>(s, residual[row].add(at), count));
                store::<S, $full>(s, sum[row].add(at), v, count);
            }
            let d = s.sub(v, origin[row]);
            let d = if $full { d } else { s.select(s.first(count), d, zero) };
            total[row][part][$j] = s.add(total[row][part][$j], d);
        }};
    }
    let mut i = 0;
    while i + STEP <= len {
        for row in 0..R {
            for part in 0..WIDTH {
                prefetch_step(s, prefetch[row], i + (group + part) * UNROLL * S::LANES);
            }
            for j in 0..UNROLL {
                for part in 0..WIDTH {
                    let at = i + j * MAX_LANES + (group + part) * S::LANES;
                    // SAFETY: `at + LANES <= i + STEP <= len`, within all rows.
                    unsafe { vector!(true, row, part, j, at, S::LANES) };
                }
            }
        }
        i += STEP;
    }
    while i + MAX_LANES <= len {
        for part in 0..WIDTH {
            let at = i + (group + part) * S::LANES;
            for row in 0..R {
                // SAFETY: `at + LANES <= i + MAX_LANES <= len`, within all rows.
                unsafe { vector!(true, row, part, 0, at, S::LANES) };
            }
        }
        i += MAX_LANES;
    }
    if i < len {
        for part in 0..WIDTH {
            // Parts after the end are zeros, which add nothing.
            let at = (i + (group + part) * S::LANES).min(len);
            let count = (len - at).min(S::LANES);
            for row in 0..R {
                // SAFETY: `at + count <= len`, within all rows.
                unsafe { vector!(false, row, part, 0, at, count) };
            }
        }
    }
    add_vectors(s, total, parts, group);
}

/// For each of `R` rows, the sum of the deviations from its mean and the sum of their squares.
///
/// # Safety
/// `x` is valid for reads of `len` floats.
#[inline(always)]
unsafe fn deviations<S: SimdF32, const R: usize>(
    s: S,
    len: usize,
    x: [*mut f32; R],
    mean: [f32; R],
    prefetch: [PrefetchRow; R],
) -> ([f32; R], [f32; R]) {
    let zero = s.splat(0.0);
    let mut means = [zero; R];
    for row in 0..R {
        means[row] = s.splat(mean[row]);
    }
    let mut parts = [[[zero; MOST_PARTS]; R]; 2];
    // SAFETY: the caller's contract.
    unsafe {
        if S::LANES == MAX_LANES {
            moments_of_part::<S, R>(s, len, x, prefetch, means, 0, &mut parts);
        } else {
            for part in 0..MAX_LANES / S::LANES {
                moments_of_part::<S, R>(s, len, x, prefetch, means, part, &mut parts);
            }
        }
    }
    (reduce(s, parts[0]), reduce(s, parts[1]))
}

/// [`deviations`] for part `group` of the virtual vectors: one part at a time, because each has two sums.
///
/// # Safety
/// As [`deviations`].
#[inline(always)]
unsafe fn moments_of_part<S: SimdF32, const R: usize>(
    s: S,
    len: usize,
    x: [*mut f32; R],
    prefetch: [PrefetchRow; R],
    means: [S::F32; R],
    group: usize,
    parts: &mut [[[S::F32; MOST_PARTS]; R]; 2],
) {
    let zero = s.splat(0.0);
    let mut total = [[[zero; UNROLL]; 1]; R];
    let mut squares = [[[zero; UNROLL]; 1]; R];
    macro_rules! vector {
        ($full:literal, $row:expr, $part:expr, $j:expr, $at:expr, $count:expr) => {{
            let (row, part, at, count) = ($row, $part, $at, $count);
            let d = s.sub(load::<S, $full>(s, x[row].add(at), count), means[row]);
            let d = if $full { d } else { s.select(s.first(count), d, zero) };
            total[row][part][$j] = s.add(total[row][part][$j], d);
            squares[row][part][$j] = s.mul_add(d, d, squares[row][part][$j]);
        }};
    }
    let mut i = 0;
    while i + STEP <= len {
        for row in 0..R {
            for part in 0..1 {
                prefetch_step(s, prefetch[row], i + (group + part) * UNROLL * S::LANES);
            }
            for j in 0..UNROLL {
                for part in 0..1 {
                    let at = i + j * MAX_LANES + (group + part) * S::LANES;
                    // SAFETY: `at + LANES <= i + STEP <= len`, within all rows.
                    unsafe { vector!(true, row, part, j, at, S::LANES) };
                }
            }
        }
        i += STEP;
    }
    while i + MAX_LANES <= len {
        for part in 0..1 {
            let at = i + (group + part) * S::LANES;
            for row in 0..R {
                // SAFETY: `at + LANES <= i + MAX_LANES <= len`, within all rows.
                unsafe { vector!(true, row, part, 0, at, S::LANES) };
            }
        }
        i += MAX_LANES;
    }
    if i < len {
        for part in 0..1 {
            // Parts after the end are zeros, which add nothing.
            let at = (i + (group + part) * S::LANES).min(len);
            let count = (len - at).min(S::LANES);
            for row in 0..R {
                // SAFETY: `at + count <= len`, within all rows.
                unsafe { vector!(false, row, part, 0, at, count) };
            }
        }
    }
    add_vectors(s, total, &mut parts[0], group);
    add_vectors(s, squares, &mut parts[1], group);
}

/// The values that convert an element of each of `R` rows to its standard score: `(x - mean) * scale + shift`.
#[derive(Clone, Copy)]
pub(super) struct Standard<const R: usize> {
    /// The approximate mean.
    pub(super) mean: [f32; R],
    /// One over the standard deviation.
    pub(super) scale: [f32; R],
    /// The correction of the mean, times minus `scale`.
    pub(super) shift: [f32; R],
}

impl<const R: usize> Standard<R> {
    /// The values of row `i`.
    #[inline(always)]
    pub(super) fn of(self, i: usize) -> Standard<1> {
        Standard { mean: [self.mean[i]], scale: [self.scale[i]], shift: [self.shift[i]] }
    }
}

/// Writes the results of `R` rows: the standard scores, times the weight and, if `BIAS`, plus the bias.
///
/// # Safety
/// The norm has a bias if `BIAS`. `x` is valid for reads and `out` for writes of the norm's columns. Pointers of one
/// row are the same or disjoint; `out` is disjoint from other rows.
#[inline(always)]
unsafe fn finish<S: SimdF32, const R: usize, const BIAS: bool>(
    s: S,
    norm: &LayerNorm<'_>,
    x: [*mut f32; R],
    out: [*mut f32; R],
    standard: Standard<R>,
    prefetch: [PrefetchRow; R],
) {
    let Standard { mean, scale, shift } = standard;
    let len = norm.weight.len();
    let weight = norm.weight.as_ptr();
    let bias = norm.bias.map_or(core::ptr::null(), <[f32]>::as_ptr);
    let zero = s.splat(0.0);
    let mut terms = [[zero; 3]; R];
    for row in 0..R {
        terms[row] = [s.splat(mean[row]), s.splat(scale[row]), s.splat(shift[row])];
    }
    macro_rules! vector {
        ($full:literal, $at:expr, $count:expr) => {{
            let (at, count) = ($at, $count);
            let w = load::<S, $full>(s, weight.add(at), count);
            let b = if BIAS { load::<S, $full>(s, bias.add(at), count) } else { zero };
            for row in 0..R {
                let [mean, scale, shift] = terms[row];
                let d = s.sub(load::<S, $full>(s, x[row].add(at), count), mean);
                let y = s.mul_add(d, scale, shift);
                let y = if BIAS { s.mul_add(y, w, b) } else { s.mul(y, w) };
                store::<S, $full>(s, out[row].add(at), y, count);
            }
        }};
    }
    let mut i = 0;
    while i + UNROLL * S::LANES <= len {
        for prefetch in prefetch {
            prefetch_step(s, prefetch, i);
        }
        for j in 0..UNROLL {
            // SAFETY: `i + UNROLL * LANES <= len`, within all rows.
            unsafe { vector!(true, i + j * S::LANES, S::LANES) };
        }
        i += UNROLL * S::LANES;
    }
    while i < len {
        let count = (len - i).min(S::LANES);
        // SAFETY: `i + count <= len`, within all rows.
        unsafe { vector!(false, i, count) };
        i += count;
    }
}

/// The standard scores of a row, computed in f64, where no square of an f32 overflows or underflows. Returns one over
/// the standard deviation.
///
/// # Safety
/// `x` is valid for reads and `out` for writes of `len` floats; they are the same or disjoint.
#[cold]
#[inline(never)]
pub(super) unsafe fn standard_row_wide(len: usize, eps: f32, x: *const f32, out: *mut f32) -> f64 {
    // SAFETY: every call has `i < len`.
    let at = |i: usize| f64::from(unsafe { *x.add(i) });
    let mean = (0..len).map(at).sum::<f64>() / len as f64;
    let square = |i: usize| (at(i) - mean) * (at(i) - mean);
    let variance = (0..len).map(square).sum::<f64>() / len as f64 + f64::from(eps);
    // A constant row with eps 0: the scale is 0 instead of infinity, because 0 times infinity is NaN.
    let scale = if variance == 0.0 { 0.0 } else { 1.0 / libm::sqrt(variance) };
    for i in 0..len {
        let z = (at(i) - mean) * scale;
        // SAFETY: `i < len`; `x[i]` is not read again.
        unsafe { *out.add(i) = z as f32 };
    }
    scale
}
