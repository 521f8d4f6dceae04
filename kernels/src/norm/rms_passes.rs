//! The two passes over a row of a root-mean-square normalization: [`squares`] reads it for the first time and adds its
//! squares, [`finish`] writes the result. `R` rows are processed in parallel, as in `passes.rs`.

use super::parameters::RmsNorm;
use super::simd_rows::{
    F32_SAFE, PAIRED, PrefetchRow, STEP, UNROLL, add_vectors, learned_row, load, prefetch_step,
    reduce, store,
};
use crate::math;
use crate::row_tasks::RowPtrs;
use crate::simd::{MAX_LANES, MOST_PARTS, SimdF32, SimdOp};

/// Normalizes rows in place or into another matrix, each in two passes.
pub(super) struct RmsRows<'a, const ADD: bool> {
    pub(super) norm: RmsNorm<'a>,
    pub(super) rows: usize,
    /// The input, which is only read.
    pub(super) x: RowPtrs<'a>,
    /// If `ADD`, the residual that is added to the input, which is only read.
    pub(super) residual: RowPtrs<'a>,
    /// If `ADD`, the output for the sum.
    pub(super) sum: RowPtrs<'a>,
    pub(super) out: RowPtrs<'a>,
}

impl<const ADD: bool> SimdOp for RmsRows<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let mut row = 0;
        // SAFETY: `norm::tasks::run` checked that all views have the shape of `out`, that rows are contiguous, that the
        // weight has `columns` floats (`Norm::check`), and that there are rows and columns. `for_rows` gives each task
        // its own rows.
        unsafe {
            if S::REGISTERS >= 32 && self.norm.weight.len() <= PAIRED {
                while row + 2 <= self.rows {
                    self.group::<S, 2>(s, row);
                    row += 2;
                }
            }
            while row < self.rows {
                self.group::<S, 1>(s, row);
                row += 1;
            }
        }
    }
}

impl<const ADD: bool> RmsRows<'_, ADD> {
    /// Normalizes `R` rows from `row` on. Each of the two passes prefetches one operand of the rows after them.
    ///
    /// # Safety
    /// All matrices have these rows, which are not empty and as long as the weight.
    #[inline(always)]
    unsafe fn group<S: SimdF32, const R: usize>(&self, s: S, row: usize) {
        let norm = &self.norm;
        let (x, residual, sum) = (self.x.rows(row), self.residual.rows(row), self.sum.rows(row));
        // SAFETY: the caller's contract.
        let (scale, f32_safe) = unsafe {
            let rows = [x, residual, sum];
            root::<S, ADD, R>(s, norm.weight.len(), norm.eps, rows, self.x.next(row + R))
        };
        let x = if ADD { sum } else { x };
        let out = self.out.rows(row);
        let prefetch = if ADD { self.residual.next(row + R) } else { self.out.next(row + R) };
        // SAFETY: the caller's contract; `root` has written the sum.
        unsafe {
            if f32_safe == [true; R] {
                finish::<S, R>(s, norm, x, out, scale, prefetch);
            } else {
                for i in 0..R {
                    if f32_safe[i] {
                        finish(s, norm, [x[i]], [out[i]], [scale[i]], [prefetch[i]]);
                    } else {
                        standard_row_wide(norm.weight.len(), norm.eps, x[i], out[i]);
                        s.call_noinline(learned_row(norm.weight, None, out[i]));
                    }
                }
            }
        }
    }
}

/// One over the root mean square of `R` rows, and for each row whether f32 is accurate enough.
///
/// # Safety
/// `rows` are the inputs, the residuals and the outputs for the sums, the latter two only if `ADD`: as for
/// [`squares`].
#[inline(always)]
pub(super) unsafe fn root<S: SimdF32, const ADD: bool, const R: usize>(
    s: S,
    len: usize,
    eps: f32,
    rows: [[*mut f32; R]; 3],
    prefetch: [PrefetchRow; R],
) -> ([f32; R], [bool; R]) {
    let [x, residual, sum] = rows;
    // SAFETY: the caller's contract.
    let squares = unsafe { squares::<S, ADD, R>(s, len, x, residual, sum, prefetch) };
    let (mut scale, mut f32_safe) = ([0.0; R], [false; R]);
    for i in 0..R {
        let mean = squares[i] * (1.0 / len as f32) + eps;
        f32_safe[i] = F32_SAFE.contains(&mean);
        scale[i] = 1.0 / math::sqrt(mean);
    }
    (scale, f32_safe)
}

/// Reads `R` rows for the first time, writes the sums with the residual if `ADD`, and returns the sum of each row's
/// squares.
///
/// # Safety
/// `x` and, if `ADD`, `residual` are valid for reads, `sum` for writes of `len` floats. Pointers of one row are the
/// same or disjoint, and `sum` may equal `x` only if it equals `residual` too; `sum` is disjoint from other rows.
#[inline(always)]
unsafe fn squares<S: SimdF32, const ADD: bool, const R: usize>(
    s: S,
    len: usize,
    x: [*mut f32; R],
    residual: [*mut f32; R],
    sum: [*mut f32; R],
    prefetch: [PrefetchRow; R],
) -> [f32; R] {
    let mut parts = [[s.splat(0.0); MOST_PARTS]; R];
    let rows = [x, residual, sum];
    // SAFETY: the caller's contract.
    unsafe {
        if S::LANES == MAX_LANES {
            squares_of_parts::<S, ADD, R, 1>(s, len, rows, prefetch, 0, &mut parts);
        } else {
            let mut group = 0;
            while group < MAX_LANES / S::LANES {
                squares_of_parts::<S, ADD, R, 2>(s, len, rows, prefetch, group, &mut parts);
                group += 2;
            }
        }
    }
    reduce(s, parts)
}

/// [`squares`] for the parts `group..group + WIDTH` of the virtual vectors.
///
/// # Safety
/// As [`squares`].
#[inline(always)]
unsafe fn squares_of_parts<S: SimdF32, const ADD: bool, const R: usize, const WIDTH: usize>(
    s: S,
    len: usize,
    [x, residual, sum]: [[*mut f32; R]; 3],
    prefetch: [PrefetchRow; R],
    group: usize,
    parts: &mut [[S::F32; MOST_PARTS]; R],
) {
    let mut total = [[[s.splat(0.0); UNROLL]; WIDTH]; R];
    macro_rules! vector {
        ($full:literal, $row:expr, $part:expr, $j:expr, $at:expr, $count:expr) => {{
            let (row, part, at, count) = ($row, $part, $at, $count);
            // Lanes after the last element are zeros, which add nothing.
            let mut v = load::<S, $full>(s, x[row].add(at), count);
            if ADD {
                v = s.add(v, load::<S, $full>(s, residual[row].add(at), count));
                store::<S, $full>(s, sum[row].add(at), v, count);
            }
            total[row][part][$j] = s.mul_add(v, v, total[row][part][$j]);
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

/// Writes the results of `R` rows: `x * scale * weight`.
///
/// # Safety
/// `x` is valid for reads and `out` for writes of the norm's columns. Pointers of one row are the
/// same or disjoint; `out` is disjoint from other rows.
#[inline(always)]
unsafe fn finish<S: SimdF32, const R: usize>(
    s: S,
    norm: &RmsNorm<'_>,
    x: [*mut f32; R],
    out: [*mut f32; R],
    scale: [f32; R],
    prefetch: [PrefetchRow; R],
) {
    let len = norm.weight.len();
    let weight = norm.weight.as_ptr();
    let mut factor = [s.splat(0.0); R];
    for row in 0..R {
        factor[row] = s.splat(scale[row]);
    }
    macro_rules! vector {
        ($full:literal, $at:expr, $count:expr) => {{
            let (at, count) = ($at, $count);
            let w = load::<S, $full>(s, weight.add(at), count);
            for row in 0..R {
                let y = s.mul(load::<S, $full>(s, x[row].add(at), count), factor[row]);
                store::<S, $full>(s, out[row].add(at), s.mul(y, w), count);
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

/// Divides a row by its root mean square, computed in f64, where no square of an f32 overflows or underflows. Returns
/// one over the root mean square.
///
/// # Safety
/// `x` is valid for reads and `out` for writes of `len` floats; they are the same or disjoint.
#[cold]
#[inline(never)]
pub(super) unsafe fn standard_row_wide(len: usize, eps: f32, x: *const f32, out: *mut f32) -> f64 {
    // SAFETY: every call has `i < len`.
    let at = |i: usize| f64::from(unsafe { *x.add(i) });
    let mean = (0..len).map(|i| at(i) * at(i)).sum::<f64>() / len as f64 + f64::from(eps);
    // A row of zeros with eps 0: the scale is 0 instead of infinity, because 0 times infinity is NaN.
    let scale = if mean == 0.0 { 0.0 } else { 1.0 / libm::sqrt(mean) };
    for i in 0..len {
        let z = at(i) * scale;
        // SAFETY: `i < len`; `x[i]` is not read again.
        unsafe { *out.add(i) = z as f32 };
    }
    scale
}
