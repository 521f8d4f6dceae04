//! The passes over a row. A layer normalization has three: [`means`] reads the row for the first time and computes its
//! approximate mean, [`terms_about`] computes the error of this mean and the variance, and the last one writes the
//! result. A root-mean-square normalization has two: [`root`] adds the squares instead. `CENTERED` selects the former.
//!
//! Each pass processes `R` rows in parallel, because a reduction is a chain of additions: a second row keeps the CPU
//! busy during the chain of the first one. If rows are too long for that, the passes of consecutive rows of a layer
//! normalization are interleaved.

use super::parameters::{Parameters, affine};
use crate::math;
use crate::row_prefetch::PrefetchRow;
use crate::row_tasks::RowPtrs;
use crate::rows::{RowVector, UNROLL, fold_parts, map_row};
use crate::simd::{SimdF32, SimdOp, simd_op};

/// The largest number of columns for which two rows are processed in parallel, if the registers can hold the sums of
/// both: the reductions of the two rows overlap. Twice as many columns were faster on an idle machine with an L1 cache
/// of 32 KiB and slower on a busy one.
const PAIRED: usize = 256;
/// The largest number of columns for which the passes of consecutive rows are interleaved. Two longer rows and the
/// prefetched data do not fit the L1 cache.
const MAX_INTERLEAVED: usize = 768;
/// Variances or mean squares, plus eps, for which f32 is accurate: outside this range squares may have overflowed or
/// underflowed.
const F32_SAFE: core::ops::RangeInclusive<f32> = 1e-28..=1e35;

/// Work on rows of which a few are processed in parallel.
pub(super) trait RowGroups {
    /// Processes `R` rows from `row` on. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// All matrices have these rows, which are not empty and as long as the parameters.
    unsafe fn group<S: SimdF32, const R: usize>(&self, s: S, row: usize);

    /// Processes pairs of rows if they are short, and returns the first row that is left.
    ///
    /// # Safety
    /// As [`RowGroups::group`], for `rows` rows of `columns` elements.
    #[inline(always)]
    unsafe fn pairs<S: SimdF32>(&self, s: S, [rows, columns]: [usize; 2]) -> usize {
        let mut row = 0;
        if S::REGISTERS >= 32 && columns <= PAIRED {
            while row + 2 <= rows {
                // SAFETY: the caller's contract.
                unsafe { self.group::<S, 2>(s, row) };
                row += 2;
            }
        }
        row
    }

    /// Processes all rows.
    ///
    /// # Safety
    /// As [`RowGroups::pairs`].
    #[inline(always)]
    unsafe fn all<S: SimdF32>(&self, s: S, shape: [usize; 2]) {
        // SAFETY: the caller's contract.
        unsafe {
            for row in self.pairs(s, shape)..shape[0] {
                self.group::<S, 1>(s, row);
            }
        }
    }
}

/// Normalizes rows in place or into another matrix. `BIAS` if the norm has a bias.
pub(super) struct NormRows<'a, const CENTERED: bool, const ADD: bool, const BIAS: bool> {
    pub(super) parameters: Parameters<'a>,
    pub(super) rows: usize,
    /// The input, which is only read.
    pub(super) x: RowPtrs<'a>,
    /// If `ADD`, the residual that is added to the input, which is only read.
    pub(super) residual: RowPtrs<'a>,
    /// If `ADD`, the output for the sum.
    pub(super) sum: RowPtrs<'a>,
    pub(super) out: RowPtrs<'a>,
}

impl<const CENTERED: bool, const ADD: bool, const BIAS: bool> SimdOp
    for NormRows<'_, CENTERED, ADD, BIAS>
{
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let shape @ [_, columns] = [self.rows, self.parameters.columns()];
        // SAFETY: `norm` checked that all views have the shape of `out`, that rows are contiguous, that
        // weight and bias have `columns` floats (`Norm::checked`), and that there are rows and columns; it sets `BIAS`
        // if there is a bias. `for_rows` gives each task its own rows.
        unsafe {
            if CENTERED && columns <= MAX_INTERLEAVED {
                let row = self.pairs(s, shape);
                self.interleaved(s, row);
            } else {
                self.all(s, shape);
            }
        }
    }
}

impl<const CENTERED: bool, const ADD: bool, const BIAS: bool> RowGroups
    for NormRows<'_, CENTERED, ADD, BIAS>
{
    /// Each pass prefetches one operand of the rows after these, so that memory is always busy.
    #[inline(always)]
    unsafe fn group<S: SimdF32, const R: usize>(&self, s: S, row: usize) {
        let Parameters { eps, .. } = self.parameters;
        let rows = [self.x.rows(row), self.residual.rows(row), self.sum.rows(row)];
        let other = if ADD { self.residual } else { self.out }.next(s, row + R);
        let prefetch = [self.x.next(s, row + R), other];
        // SAFETY: the caller's contract; `terms` has written the sum.
        unsafe {
            let len = self.parameters.columns();
            let terms = terms::<S, CENTERED, ADD, R>(s, len, eps, rows, prefetch);
            let prefetch = if CENTERED { self.out.next(s, row + R) } else { other };
            self.finish(s, row, terms, prefetch);
        }
    }
}

impl<const CENTERED: bool, const ADD: bool, const BIAS: bool> NormRows<'_, CENTERED, ADD, BIAS> {
    /// Normalizes all rows from `row` on, one at a time. A row is read for the first time before the previous one is
    /// finished, so that a pass need not wait for the result of the pass before it.
    ///
    /// # Safety
    /// As [`RowGroups::group`], for all of them.
    #[inline(always)]
    unsafe fn interleaved<S: SimdF32>(&self, s: S, mut row: usize) {
        let (len, eps) = (self.parameters.columns(), self.parameters.eps);
        let other = if ADD { self.residual } else { self.out };
        let mut before = None;
        while row <= self.rows {
            let mut mean = [0.0];
            // SAFETY: the caller's contract; sums are written before they are read.
            unsafe {
                if row < self.rows {
                    let rows = [self.x.rows(row), self.residual.rows(row), self.sum.rows(row)];
                    mean = means::<S, ADD, 1>(s, len, rows, self.x.next(s, row + 1));
                }
                if let Some(terms) = before {
                    self.finish(s, row - 1, terms, other.next(s, row + 1));
                }
                if row < self.rows {
                    let x = if ADD { self.sum } else { self.x }.rows(row);
                    before = Some(terms_about(s, len, eps, x, mean, self.out.next(s, row + 1)));
                }
            }
            row += 1;
        }
    }

    /// Writes the results of `R` rows from `row` on, whose sums are written.
    ///
    /// # Safety
    /// As [`RowGroups::group`].
    #[inline(always)]
    unsafe fn finish<S: SimdF32, const R: usize>(
        &self,
        s: S,
        row: usize,
        terms: [Terms; R],
        prefetch: [PrefetchRow; R],
    ) {
        let x = if ADD { self.sum } else { self.x }.rows(row);
        let out = self.out.rows(row);
        // SAFETY: the caller's contract; the sum is written.
        unsafe {
            if terms.map(|terms| terms.f32_safe) == [true; R] {
                self.write(s, x, out, terms, prefetch);
                return;
            }
            for i in 0..R {
                if terms[i].f32_safe {
                    self.write(s, [x[i]], [out[i]], [terms[i]], [prefetch[i]]);
                } else {
                    standard_row_wide(&self.parameters, x[i], out[i]);
                    s.call_noinline(learned_row(self.parameters, out[i]));
                }
            }
        }
    }

    /// Writes the results of `R` rows: the standard scores, times the weight and, if `BIAS`, plus the bias.
    ///
    /// # Safety
    /// The norm has a bias if `BIAS`. `x` is valid for reads and `out` for writes of the norm's columns. Pointers of
    /// one row are the same or disjoint; `out` is disjoint from other rows.
    #[inline(always)]
    unsafe fn write<S: SimdF32, const R: usize>(
        &self,
        s: S,
        x: [*mut f32; R],
        out: [*mut f32; R],
        terms: [Terms; R],
        prefetch: [PrefetchRow; R],
    ) {
        let mut of_row = [[s.splat(0.0); 3]; R];
        for row in 0..R {
            of_row[row] = terms[row].splat(s);
        }
        // SAFETY: the caller's contract.
        unsafe {
            map_row::<S, R, UNROLL>(
                s,
                self.parameters.columns(),
                out,
                &prefetch,
                #[inline(always)]
                |at| {
                    let learned = self.parameters.load::<S, BIAS>(s, at);
                    let mut y = [s.splat(0.0); R];
                    for row in 0..R {
                        let x = at.load(s, x[row]);
                        let z = standard_score::<S, CENTERED>(s, x, of_row[row]);
                        y[row] = affine::<S, BIAS>(s, z, learned);
                    }
                    y
                },
            );
        }
    }
}

/// The values that convert an element of a row to its standard score: `(x - mean) * scale + shift`.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// The approximate mean.
    mean: f32,
    /// One over the standard deviation.
    pub(super) scale: f32,
    /// The correction of the mean, times minus `scale`.
    shift: f32,
    /// Whether f32 is accurate enough.
    pub(super) f32_safe: bool,
}

impl Terms {
    #[inline(always)]
    pub(super) fn splat<S: SimdF32>(self, s: S) -> [S::F32; 3] {
        [s.splat(self.mean), s.splat(self.scale), s.splat(self.shift)]
    }
}

/// The standard scores of one vector of a row with these [`Terms`].
#[inline(always)]
pub(super) fn standard_score<S: SimdF32, const CENTERED: bool>(
    s: S,
    x: S::F32,
    [mean, scale, shift]: [S::F32; 3],
) -> S::F32 {
    if CENTERED { s.mul_add(s.sub(x, mean), scale, shift) } else { s.mul(x, scale) }
}

/// The terms of `R` rows; writes the sums with the residuals if `ADD`.
///
/// # Safety
/// `rows` are the inputs, the residuals and the outputs for the sums, the latter two only if `ADD`. Inputs and
/// residuals are valid for reads, sums for writes of `len > 0` floats. Pointers of one row are the same or disjoint,
/// and a sum may be the input only if it is the residual too; a sum is disjoint from other rows.
#[inline(always)]
pub(super) unsafe fn terms<S: SimdF32, const CENTERED: bool, const ADD: bool, const R: usize>(
    s: S,
    len: usize,
    eps: f32,
    rows: [[*mut f32; R]; 3],
    prefetch: [[PrefetchRow; R]; 2],
) -> [Terms; R] {
    let [x, _, sum] = rows;
    // SAFETY: the caller's contract; `means` has written the sum.
    unsafe {
        if CENTERED {
            let mean = means::<S, ADD, R>(s, len, rows, prefetch[0]);
            terms_about(s, len, eps, if ADD { sum } else { x }, mean, prefetch[1])
        } else {
            root::<S, ADD, R>(s, len, eps, rows, prefetch[0])
        }
    }
}

/// One vector of the input; if `ADD`, of its sum with the residual, which is written.
///
/// # Safety
/// As [`terms`], for one row.
#[inline(always)]
unsafe fn read<S: SimdF32, const ADD: bool>(
    s: S,
    at: RowVector,
    [x, residual, sum]: [*mut f32; 3],
) -> S::F32 {
    // SAFETY: the caller's contract.
    unsafe {
        let mut v = at.load(s, x);
        if ADD {
            v = s.add(v, at.load(s, residual));
            at.store(s, sum, v);
        }
        v
    }
}

/// The approximate means of `R` rows; [`terms_about`] computes their errors. They are computed from the differences
/// from the first entry of a row.
///
/// # Safety
/// As [`terms`].
#[inline(always)]
unsafe fn means<S: SimdF32, const ADD: bool, const R: usize>(
    s: S,
    len: usize,
    [x, residual, sum]: [[*mut f32; R]; 3],
    prefetch: [PrefetchRow; R],
) -> [f32; R] {
    let mut first = [0.0; R];
    let mut origin = [s.splat(0.0); R];
    for row in 0..R {
        // SAFETY: the rows are not empty.
        first[row] = unsafe { if ADD { *x[row] + *residual[row] } else { *x[row] } };
        origin[row] = s.splat(first[row]);
    }
    let [total] = fold_parts::<S, R, 1, 2>(
        s,
        len,
        &[prefetch],
        #[inline(always)]
        |row, at, [total]| {
            // SAFETY: the caller's contract.
            let v = unsafe { read::<S, ADD>(s, at, [x[row], residual[row], sum[row]]) };
            *total = s.add(*total, at.zero_rest(s, s.sub(v, origin[row])));
        },
    );
    let inverse = 1.0 / len as f32;
    for row in 0..R {
        first[row] += total[row] * inverse;
    }
    first
}

/// The terms of `R` rows with given approximate means, from the sums of the deviations and of their squares.
///
/// # Safety
/// `x` is valid for reads of `len` floats.
#[inline(always)]
unsafe fn terms_about<S: SimdF32, const R: usize>(
    s: S,
    len: usize,
    eps: f32,
    x: [*mut f32; R],
    mean: [f32; R],
    prefetch: [PrefetchRow; R],
) -> [Terms; R] {
    let mut means = [s.splat(0.0); R];
    for row in 0..R {
        means[row] = s.splat(mean[row]);
    }
    // One part at a time, because each has two sums.
    let [total, squares] = fold_parts::<S, R, 2, 1>(
        s,
        len,
        &[prefetch],
        #[inline(always)]
        |row, at, [total, squares]| {
            // SAFETY: the caller's contract.
            let x = unsafe { at.load(s, x[row]) };
            let d = at.zero_rest(s, s.sub(x, means[row]));
            *total = s.add(*total, d);
            *squares = s.mul_add(d, d, *squares);
        },
    );
    let inverse = 1.0 / len as f32;
    let mut terms = [Terms { mean: 0.0, scale: 0.0, shift: 0.0, f32_safe: false }; R];
    for row in 0..R {
        let correction = total[row] * inverse;
        let variance = (squares[row] - total[row] * correction) * inverse;
        // Rounding can give a small negative number.
        let variance = if variance < 0.0 { 0.0 } else { variance } + eps;
        let scale = 1.0 / math::sqrt(variance);
        let shift = -correction * scale;
        terms[row] =
            Terms { mean: mean[row], scale, shift, f32_safe: F32_SAFE.contains(&variance) };
    }
    terms
}

/// The terms of `R` rows of a root-mean-square normalization.
///
/// # Safety
/// As [`terms`].
#[inline(always)]
unsafe fn root<S: SimdF32, const ADD: bool, const R: usize>(
    s: S,
    len: usize,
    eps: f32,
    [x, residual, sum]: [[*mut f32; R]; 3],
    prefetch: [PrefetchRow; R],
) -> [Terms; R] {
    let [squares] = fold_parts::<S, R, 1, 2>(
        s,
        len,
        &[prefetch],
        #[inline(always)]
        |row, at, [squares]| {
            // SAFETY: the caller's contract. Lanes after the end are zeros, which add nothing.
            let v = unsafe { read::<S, ADD>(s, at, [x[row], residual[row], sum[row]]) };
            *squares = s.mul_add(v, v, *squares);
        },
    );
    let mut terms = [Terms { mean: 0.0, scale: 0.0, shift: 0.0, f32_safe: false }; R];
    for row in 0..R {
        let mean = squares[row] * (1.0 / len as f32) + eps;
        terms[row].scale = 1.0 / math::sqrt(mean);
        terms[row].f32_safe = F32_SAFE.contains(&mean);
    }
    terms
}

/// The standard scores of a row, computed in f64, where no square of an f32 overflows or underflows. Returns one over
/// the standard deviation, or over the root mean square.
///
/// # Safety
/// `x` is valid for reads and `out` for writes of the norm's columns; they are the same or disjoint.
#[cold]
#[inline(never)]
pub(super) unsafe fn standard_row_wide(
    parameters: &Parameters<'_>,
    x: *const f32,
    out: *mut f32,
) -> f64 {
    let len = parameters.columns();
    // SAFETY: every call has `i < len`.
    let at = |i: usize| f64::from(unsafe { *x.add(i) });
    let mean = if parameters.centered { (0..len).map(at).sum::<f64>() / len as f64 } else { 0.0 };
    let square = |i: usize| (at(i) - mean) * (at(i) - mean);
    let variance = (0..len).map(square).sum::<f64>() / len as f64 + f64::from(parameters.eps);
    // A constant row with eps 0: the scale is 0 instead of infinity, because 0 times infinity is NaN.
    let scale = if variance == 0.0 { 0.0 } else { 1.0 / libm::sqrt(variance) };
    for i in 0..len {
        let z = (at(i) - mean) * scale;
        // SAFETY: `i < len`; `x[i]` is not read again.
        unsafe { *out.add(i) = z as f32 };
    }
    scale
}

/// Applies the parameters of a norm to the standard scores of a row: `out = standard * weight + bias`, with the same
/// bits as the last pass of the norm.
///
/// # Safety
/// There is a bias if `BIAS`. `standard` is valid for reads and `out` for writes of the norm's columns; they are the
/// same or disjoint.
#[inline(always)]
pub(super) unsafe fn learned<S: SimdF32, const BIAS: bool>(
    s: S,
    parameters: &Parameters<'_>,
    standard: *const f32,
    out: *mut f32,
) {
    // SAFETY: the caller's contract.
    unsafe {
        map_row::<S, 1, UNROLL>(
            s,
            parameters.columns(),
            [out],
            &[],
            #[inline(always)]
            |at| {
                let z = at.load(s, standard);
                [affine::<S, BIAS>(s, z, parameters.load::<S, BIAS>(s, at))]
            },
        );
    }
}

simd_op!(
    /// [`learned`] on a row in place, for rare rows, so that its code is not inlined several times.
    ///
    /// # Safety
    /// `row` is valid for reads and writes, and the bias for reads, of as many floats as the weight has.
    unsafe fn learned_row<S: SimdF32>(s: S, parameters: Parameters<'_>, row: *mut f32) {
        // SAFETY: the caller's contract.
        unsafe {
            match parameters.bias {
                Some(_) => learned::<S, true>(s, &parameters, row, row),
                None => learned::<S, false>(s, &parameters, row, row),
            }
        }
    }
);
