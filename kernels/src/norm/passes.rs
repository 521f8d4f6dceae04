//! The passes over a row. A layer normalization has three: [`means`] reads the row for the first time and computes its
//! approximate mean, [`terms_about`] computes the error of this mean and the variance, and the last one writes the
//! result. A root-mean-square normalization has two: [`root`] adds the squares instead. `CENTERED` selects the former.
//!
//! Each pass processes `R` rows in parallel, because a reduction is a chain of additions: a second row keeps the CPU
//! busy during the chain of the first one. If rows are too long for that, the passes of consecutive rows of a layer
//! normalization are interleaved.

use super::parameters::Parameters;
use crate::math;
use crate::parallel::Exec;
use crate::row_prefetch::PrefetchRow;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::rows::{RowVector, UNROLL, fold_parts, map_row};
use crate::simd::{SimdF32, array_of, simd_op};
use core::ops::Range;

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

/// Work on rows of which a few are processed in parallel. `CENTERED` for a layer normalization, otherwise a
/// root-mean-square one. Implementations are `#[inline(always)]`.
pub(super) trait RowGroups {
    /// Processes `R` rows from `row` on.
    ///
    /// # Safety
    /// All matrices have these rows, which are not empty and as long as the parameters.
    unsafe fn group<S: SimdF32, const CENTERED: bool, const R: usize>(&self, s: S, row: usize);

    /// Processes `rows` of `columns` elements, one at a time.
    ///
    /// # Safety
    /// As [`RowGroups::group`].
    #[inline(always)]
    unsafe fn singles<S: SimdF32, const CENTERED: bool>(
        &self,
        s: S,
        rows: Range<usize>,
        _columns: usize,
    ) {
        for row in rows {
            // SAFETY: the caller's contract.
            unsafe { self.group::<S, CENTERED, 1>(s, row) };
        }
    }
}

simd_op!(
    /// Processes `rows` of `columns` elements, in pairs if they are short.
    ///
    /// # Safety
    /// As [`RowGroups::group`].
    unsafe fn process_rows<S: SimdF32, G: RowGroups, const CENTERED: bool>(
        s: S,
        groups: G,
        rows: Range<usize>,
        columns: usize,
    ) {
        let Range { start: mut row, end } = rows;
        // SAFETY: the caller's contract.
        unsafe {
            if S::REGISTERS >= 32 && columns <= PAIRED {
                while row + 2 <= end {
                    groups.group::<S, CENTERED, 2>(s, row);
                    row += 2;
                }
            }
            groups.singles::<S, CENTERED>(s, row..end, columns);
        }
    }
);

/// Processes all rows of `shape` that belong to a norm with `parameters`, each task its own rows.
///
/// # Safety
/// All matrices have this shape and contiguous rows, and the columns are those of the parameters.
pub(super) unsafe fn for_row_groups(
    exec: Exec<'_>,
    shape @ [_, columns]: [usize; 2],
    centered: bool,
    groups: impl RowGroups + Copy + Sync,
) {
    // SAFETY: the caller's contract; `for_rows` gives each task its own rows.
    unsafe {
        if centered {
            for_rows(exec, shape, |rows| process_rows::<_, true>(groups, rows, columns));
        } else {
            for_rows(exec, shape, |rows| process_rows::<_, false>(groups, rows, columns));
        }
    }
}

/// The rows that a norm reads, and the sums that are normalized.
#[derive(Clone, Copy)]
pub(super) struct InputRows<'a> {
    /// The input, which is only read.
    pub(super) x: RowPtrs<'a>,
    /// The residual that is added to the input, and the output for the sum. The residual is only read.
    pub(super) add: Option<[RowPtrs<'a>; 2]>,
}

impl<'a> InputRows<'a> {
    /// The rows that are normalized, once sums are written.
    #[inline(always)]
    fn normalized(&self) -> RowPtrs<'a> {
        self.add.map_or(self.x, |[_, sum]| sum)
    }

    /// The first pass over `R` rows from `row` on: writes the sums with the residuals, and adds every vector to the
    /// total of its row with `add`, whose arguments are the row, the vector and its place, and the total.
    ///
    /// # Safety
    /// As [`terms`].
    #[inline(always)]
    unsafe fn fold<S: SimdF32, const R: usize>(
        &self,
        s: S,
        len: usize,
        row: usize,
        add: impl Fn(usize, RowVector, S::F32, &mut S::F32),
    ) -> [f32; R] {
        let (x, prefetch) = (self.x.rows::<R>(row), [self.x.next(s, row + R)]);
        let [total] = match self.add {
            None => fold_parts::<S, R, 1, 2>(
                s,
                len,
                &prefetch,
                #[inline(always)]
                // SAFETY: the caller's contract.
                |i, at, [total]| add(i, at, unsafe { at.load(s, x[i]) }, total),
            ),
            Some([residual, sum]) => {
                let (residual, sum) = (residual.rows::<R>(row), sum.rows::<R>(row));
                fold_parts::<S, R, 1, 2>(
                    s,
                    len,
                    &prefetch,
                    #[inline(always)]
                    |i, at, [total]| {
                        // SAFETY: the caller's contract.
                        unsafe {
                            let v = s.add(at.load(s, x[i]), at.load(s, residual[i]));
                            at.store(s, sum[i], v);
                            add(i, at, v, total);
                        }
                    },
                )
            }
        };
        total
    }
}

/// Normalizes rows in place or into another matrix.
#[derive(Clone, Copy)]
pub(super) struct NormRows<'a> {
    pub(super) parameters: Parameters<'a>,
    pub(super) input: InputRows<'a>,
    pub(super) out: RowPtrs<'a>,
}

impl RowGroups for NormRows<'_> {
    /// Each pass prefetches one operand of the rows after these, so that memory is always busy.
    #[inline(always)]
    unsafe fn group<S: SimdF32, const CENTERED: bool, const R: usize>(&self, s: S, row: usize) {
        let other = self.other().next(s, row + R);
        // SAFETY: the caller's contract; `terms` has written the sum.
        unsafe {
            let terms = terms::<S, CENTERED, R>(s, &self.parameters, &self.input, row, other);
            let prefetch = if CENTERED { self.out.next(s, row + R) } else { other };
            self.finish::<S, CENTERED, R>(s, row, terms, prefetch);
        }
    }

    /// The passes of consecutive short rows of a layer normalization are interleaved: a row is read for the first time
    /// before the previous one is finished, so that a pass need not wait for the result of the pass before it.
    #[inline(always)]
    unsafe fn singles<S: SimdF32, const CENTERED: bool>(
        &self,
        s: S,
        rows: Range<usize>,
        columns: usize,
    ) {
        let interleaved = CENTERED && columns <= MAX_INTERLEAVED;
        let mut before = None;
        // SAFETY: the caller's contract; sums are written before they are read.
        unsafe {
            if !interleaved {
                for row in rows {
                    self.group::<S, CENTERED, 1>(s, row);
                }
                return;
            }
            for row in rows.start..=rows.end {
                let mut mean = [0.0];
                if row < rows.end {
                    mean = means(s, columns, &self.input, row);
                }
                if let Some(terms) = before {
                    let prefetch = self.other().next(s, row + 1);
                    self.finish::<S, CENTERED, 1>(s, row - 1, terms, prefetch);
                }
                if row < rows.end {
                    let (x, prefetch) =
                        (self.input.normalized().rows(row), self.out.next(s, row + 1));
                    before = Some(terms_about(s, &self.parameters, x, mean, prefetch));
                }
            }
        }
    }
}

impl<'a> NormRows<'a> {
    /// The second matrix that is read, or the output.
    #[inline(always)]
    fn other(&self) -> RowPtrs<'a> {
        self.input.add.map_or(self.out, |[residual, _]| residual)
    }

    /// Writes the results of `R` rows from `row` on, whose sums are written.
    ///
    /// # Safety
    /// As [`RowGroups::group`].
    #[inline(always)]
    unsafe fn finish<S: SimdF32, const CENTERED: bool, const R: usize>(
        &self,
        s: S,
        row: usize,
        terms: [Terms; R],
        prefetch: [PrefetchRow; R],
    ) {
        // SAFETY: the caller's contract; the sum is written.
        unsafe {
            if terms.map(|terms| terms.f32_safe) == [true; R] {
                self.write::<S, CENTERED, R>(s, row, terms, &prefetch);
                return;
            }
            for i in 0..R {
                s.call_noinline(write_rare_row::<CENTERED>(self, row + i, terms[i]));
            }
        }
    }

    /// Writes the results of `R` rows for which f32 is accurate: the standard scores, times the weight and, if there is
    /// one, plus the bias.
    ///
    /// # Safety
    /// As [`RowGroups::group`]; the sum is written.
    #[inline(always)]
    unsafe fn write<S: SimdF32, const CENTERED: bool, const R: usize>(
        &self,
        s: S,
        row: usize,
        terms: [Terms; R],
        prefetch: &[PrefetchRow],
    ) {
        // SAFETY: the caller's contract. Only a layer normalization has a bias.
        unsafe {
            if CENTERED && self.parameters.bias.is_some() {
                self.write_affine::<S, CENTERED, true, R>(s, row, terms, prefetch);
            } else {
                self.write_affine::<S, CENTERED, false, R>(s, row, terms, prefetch);
            }
        }
    }

    /// As [`NormRows::write`].
    ///
    /// # Safety
    /// As [`NormRows::write`]; the norm has a bias if `BIAS`.
    #[inline(always)]
    unsafe fn write_affine<S: SimdF32, const CENTERED: bool, const BIAS: bool, const R: usize>(
        &self,
        s: S,
        row: usize,
        terms: [Terms; R],
        prefetch: &[PrefetchRow],
    ) {
        let (x, out) = (self.input.normalized().rows::<R>(row), self.out.rows::<R>(row));
        let of_row = array_of!(row in R => terms[row].splat(s));
        // SAFETY: the caller's contract.
        unsafe {
            map_row::<S, R, UNROLL>(
                s,
                self.parameters.columns(),
                out,
                prefetch,
                #[inline(always)]
                |at| {
                    array_of!(row in R => {
                        let z = standard_score::<S, CENTERED>(s, at.load(s, x[row]), of_row[row]);
                        self.parameters.affine::<S, BIAS>(s, at, z)
                    })
                },
            );
        }
    }
}

simd_op!(
    /// Writes the results of a row for which f32 is not accurate, or which is beside such a row.
    ///
    /// # Safety
    /// As [`NormRows::write`].
    unsafe fn write_rare_row<S: SimdF32, const CENTERED: bool>(
        s: S,
        norm: &NormRows<'_>,
        row: usize,
        terms: Terms,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            // Only a row of a pair is accurate here.
            if S::REGISTERS >= 32 && terms.f32_safe {
                norm.write::<S, CENTERED, 1>(s, row, [terms], &[]);
            } else {
                let out = norm.out.row(row);
                standard_row_wide(&norm.parameters, norm.input.normalized().row(row), out);
                learned(s, &norm.parameters, out, out);
            }
        }
    }
);

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

/// The terms of `R` rows from `row` on; writes the sums with the residuals. A layer normalization prefetches the rows
/// `prefetch` in its second pass.
///
/// # Safety
/// Inputs and residuals are valid for reads, sums for writes of the norm's columns, at least one. Rows of one number
/// are the same or disjoint, and a sum may be the input only if it is the residual too; a sum is disjoint from other
/// rows.
#[inline(always)]
pub(super) unsafe fn terms<S: SimdF32, const CENTERED: bool, const R: usize>(
    s: S,
    parameters: &Parameters<'_>,
    input: &InputRows<'_>,
    row: usize,
    prefetch: [PrefetchRow; R],
) -> [Terms; R] {
    // SAFETY: the caller's contract; `means` has written the sum.
    unsafe {
        if CENTERED {
            let mean = means(s, parameters.columns(), input, row);
            terms_about(s, parameters, input.normalized().rows(row), mean, prefetch)
        } else {
            root(s, parameters, input, row)
        }
    }
}

/// The approximate means of `R` rows; [`terms_about`] computes their errors. They are computed from the differences
/// from the first entry of a row.
///
/// # Safety
/// As [`terms`].
#[inline(always)]
unsafe fn means<S: SimdF32, const R: usize>(
    s: S,
    len: usize,
    input: &InputRows<'_>,
    row: usize,
) -> [f32; R] {
    // SAFETY: the rows are not empty.
    let mut means = unsafe {
        array_of!(i in R => {
            let x = *input.x.row(row + i);
            input.add.map_or(x, |[residual, _]| x + *residual.row(row + i))
        })
    };
    let origin = array_of!(i in R => s.splat(means[i]));
    // SAFETY: the caller's contract.
    let total: [_; R] = unsafe {
        input.fold(
            s,
            len,
            row,
            #[inline(always)]
            |i, at, v, total| *total = s.add(*total, at.zero_rest(s, s.sub(v, origin[i]))),
        )
    };
    let inverse = 1.0 / len as f32;
    for i in 0..R {
        means[i] += total[i] * inverse;
    }
    means
}

/// The terms of `R` rows with given approximate means, from the sums of the deviations and of their squares.
///
/// # Safety
/// `x` is valid for reads of the norm's columns.
#[inline(always)]
unsafe fn terms_about<S: SimdF32, const R: usize>(
    s: S,
    parameters: &Parameters<'_>,
    x: [*mut f32; R],
    mean: [f32; R],
    prefetch: [PrefetchRow; R],
) -> [Terms; R] {
    let len = parameters.columns();
    let means = array_of!(row in R => s.splat(mean[row]));
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
    array_of!(row in R => {
        let correction = total[row] * inverse;
        let variance = (squares[row] - total[row] * correction) * inverse;
        // Rounding can give a small negative number.
        let variance = if variance < 0.0 { 0.0 } else { variance } + parameters.eps;
        let scale = 1.0 / math::sqrt(variance);
        let shift = -correction * scale;
        Terms { mean: mean[row], scale, shift, f32_safe: F32_SAFE.contains(&variance) }
    })
}

/// The terms of `R` rows of a root-mean-square normalization.
///
/// # Safety
/// As [`terms`].
#[inline(always)]
unsafe fn root<S: SimdF32, const R: usize>(
    s: S,
    parameters: &Parameters<'_>,
    input: &InputRows<'_>,
    row: usize,
) -> [Terms; R] {
    let len = parameters.columns();
    // SAFETY: the caller's contract. Lanes after the end are zeros, which add nothing.
    let squares: [_; R] = unsafe {
        input.fold(
            s,
            len,
            row,
            #[inline(always)]
            |_, _, v, squares| *squares = s.mul_add(v, v, *squares),
        )
    };
    squares.map(|squares| {
        let mean = squares * (1.0 / len as f32) + parameters.eps;
        let (scale, f32_safe) = (1.0 / math::sqrt(mean), F32_SAFE.contains(&mean));
        Terms { mean: 0.0, scale, shift: 0.0, f32_safe }
    })
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
/// `standard` is valid for reads and `out` for writes of the norm's columns; they are the same or disjoint.
#[inline(always)]
pub(super) unsafe fn learned<S: SimdF32>(
    s: S,
    parameters: &Parameters<'_>,
    standard: *const f32,
    out: *mut f32,
) {
    macro_rules! map {
        ($bias:literal) => {
            map_row::<S, 1, UNROLL>(
                s,
                parameters.columns(),
                [out],
                &[],
                #[inline(always)]
                |at| [parameters.affine::<S, $bias>(s, at, at.load(s, standard))],
            )
        };
    }
    // SAFETY: the caller's contract.
    unsafe {
        match parameters.bias {
            Some(_) => map!(true),
            None => map!(false),
        }
    }
}
