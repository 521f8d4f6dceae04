//! The two passes over a row of a root-mean-square normalization: [`squares`] reads it for the first
//! time and adds up its squares, [`finish`] writes the result. `R` rows go side by side, as in
//! `passes.rs`.

use super::parameters::RmsNorm;
use super::vectors::{
    COMFORTABLE, LearnedRow, Next, PAIRED, RowPtrs, STEP, UNROLL, add_vectors, load, prefetch_step,
    reduce, store,
};
use crate::math;
use crate::simd::{MAX_LANES, MOST_PARTS, SimdF32, SimdOp};

/// Normalizes rows in place or into others, each in two passes.
pub(super) struct RmsRows<'a, const ADD: bool> {
    pub(super) norm: RmsNorm<'a>,
    pub(super) rows: usize,
    /// The input; only read.
    pub(super) x: RowPtrs,
    /// If `ADD`, what is added to it; only read.
    pub(super) residual: RowPtrs,
    /// If `ADD`, where the sum goes.
    pub(super) sum: RowPtrs,
    pub(super) out: RowPtrs,
}

impl<const ADD: bool> SimdOp for RmsRows<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let mut row = 0;
        // SAFETY: `norm::call::run` checked that all views have the shape of `out`, with the floats
        // of a row side by side, that the weight has `columns` floats (`Norm::check`) and that
        // there are rows and columns. `for_rows` gives each task rows of its own.
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
    /// `R` rows from `row` on. Each of the two passes over them asks for one operand of the rows after
    /// them.
    ///
    /// # Safety
    /// There are as many rows, not empty and as long as the weight, at every place.
    #[inline(always)]
    unsafe fn group<S: SimdF32, const R: usize>(&self, s: S, row: usize) {
        let norm = &self.norm;
        let (x, residual, sum) = (self.x.rows(row), self.residual.rows(row), self.sum.rows(row));
        // SAFETY: the caller's contract.
        let (scale, comfortable) = unsafe {
            let rows = [x, residual, sum];
            root::<S, ADD, R>(s, norm.weight.len(), norm.eps, rows, self.x.next(row + R))
        };
        let x = if ADD { sum } else { x };
        let out = self.out.rows(row);
        let ahead = if ADD { self.residual.next(row + R) } else { self.out.next(row + R) };
        // SAFETY: the caller's contract; the sum has been written.
        unsafe {
            if comfortable == [true; R] {
                finish::<S, R>(s, norm, x, out, scale, ahead);
            } else {
                for i in 0..R {
                    if comfortable[i] {
                        finish(s, norm, [x[i]], [out[i]], [scale[i]], [ahead[i]]);
                    } else {
                        standard_row_wide(norm.weight.len(), norm.eps, x[i], out[i]);
                        s.call_noinline(LearnedRow {
                            weight: norm.weight,
                            bias: None,
                            row: out[i],
                        });
                    }
                }
            }
        }
    }
}

/// One over the root mean square of `R` rows, and of which of them f32 can tell.
///
/// # Safety
/// `rows` are inputs, what is added to them and where the sums go, the latter two if `ADD`: as for
/// [`squares`].
#[inline(always)]
pub(super) unsafe fn root<S: SimdF32, const ADD: bool, const R: usize>(
    s: S,
    len: usize,
    eps: f32,
    rows: [[*mut f32; R]; 3],
    ahead: [Next; R],
) -> ([f32; R], [bool; R]) {
    let [x, residual, sum] = rows;
    // SAFETY: the caller's contract.
    let squares = unsafe { squares::<S, ADD, R>(s, len, x, residual, sum, ahead) };
    let (mut scale, mut comfortable) = ([0.0; R], [false; R]);
    for i in 0..R {
        let mean = squares[i] * (1.0 / len as f32) + eps;
        comfortable[i] = COMFORTABLE.contains(&mean);
        scale[i] = 1.0 / math::sqrt(mean);
    }
    (scale, comfortable)
}

/// Reads `R` rows for the first time, writes the sums with the residual, if `ADD`, and returns the sum of
/// each row's squares.
///
/// # Safety
/// `x` and, if `ADD`, `residual` are valid for reads, `sum` for writes of `len` floats. Pointers of one
/// row are the same or disjoint, and `sum` is not `x` unless it is `residual` too; `sum` is disjoint
/// from other rows.
#[inline(always)]
unsafe fn squares<S: SimdF32, const ADD: bool, const R: usize>(
    s: S,
    len: usize,
    x: [*mut f32; R],
    residual: [*mut f32; R],
    sum: [*mut f32; R],
    ahead: [Next; R],
) -> [f32; R] {
    let mut parts = [[s.splat(0.0); MOST_PARTS]; R];
    let rows = [x, residual, sum];
    // SAFETY: the caller's contract.
    unsafe {
        if S::LANES == MAX_LANES {
            squares_of_parts::<S, ADD, R, 1>(s, len, rows, ahead, 0, &mut parts);
        } else {
            let mut group = 0;
            while group < MAX_LANES / S::LANES {
                squares_of_parts::<S, ADD, R, 2>(s, len, rows, ahead, group, &mut parts);
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
    ahead: [Next; R],
    group: usize,
    parts: &mut [[S::F32; MOST_PARTS]; R],
) {
    let mut total = [[[s.splat(0.0); UNROLL]; WIDTH]; R];
    macro_rules! vector {
        ($full:literal, $row:expr, $part:expr, $j:expr, $at:expr, $count:expr) => {{
            let (row, part, at, count) = ($row, $part, $at, $count);
            // Zeros behind the last element, which add nothing.
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
                prefetch_step(s, ahead[row], i + (group + part) * UNROLL * S::LANES);
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
            // Parts that lie behind the end are zeros, which add nothing.
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
    ahead: [Next; R],
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
        for ahead in ahead {
            prefetch_step(s, ahead, i);
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

/// A row divided by the root of its mean square, found in f64, where no square of an f32 overflows or
/// vanishes; and one over that root.
///
/// # Safety
/// `x` is valid for reads and `out` for writes of `len` floats; they are the same or disjoint.
#[cold]
#[inline(never)]
pub(super) unsafe fn standard_row_wide(len: usize, eps: f32, x: *const f32, out: *mut f32) -> f64 {
    // SAFETY: `i < len` wherever it is called.
    let at = |i: usize| f64::from(unsafe { *x.add(i) });
    let mean = (0..len).map(|i| at(i) * at(i)).sum::<f64>() / len as f64 + f64::from(eps);
    // A row of zeros with eps 0: 0 times infinity should be 0.
    let scale = if mean == 0.0 { 0.0 } else { 1.0 / libm::sqrt(mean) };
    for i in 0..len {
        let z = at(i) * scale;
        // SAFETY: `i < len`; what was read at `i` is not needed again.
        unsafe { *out.add(i) = z as f32 };
    }
    scale
}
