//! Computes the candidates of a row in f32, in descending order of their upper bounds.

use super::product::{CANDIDATES, Candidate, PARTS};
use super::scan::ScanTask;
use crate::Matrix;
use crate::gemm::Column;
use crate::simd::{MAX_LANES, SimdF32, simd_op};

/// The column that [`argmax`](super::argmax) returns for a row that it cannot decide.
pub const UNDECIDED: u32 = u32::MAX;

/// Candidates that are computed together. The first group usually excludes the rest.
const GROUP: usize = 8;

simd_op!(
    /// The largest element of row `row` of `x` and its column.
    pub(super) fn rescore<S: SimdF32>(
        s: S,
        job: &ScanTask<'_>,
        x: &Matrix<'_>,
        row: usize,
    ) -> (u32, f32) {
        let mut buffer = [Candidate::default(); PARTS * CANDIDATES];
        let row = RescoredRow { job, x, row };
        let candidates = row.gather(&mut buffer);
        candidates.sort_unstable_by(|a, b| b.upper.total_cmp(&a.upper));
        let mut best = (UNDECIDED, f32::NEG_INFINITY);
        for group in candidates.chunks(GROUP.min(S::LANES)) {
            // An equal bound is not excluded: the element may tie and be in an earlier column.
            if group[0].upper < best.1 {
                break;
            }
            let values = row.elements(s, group);
            for (candidate, value) in group.iter().zip(values) {
                if value.is_nan() {
                    return (UNDECIDED, f32::NAN);
                }
                if value > best.1 || (value == best.1 && candidate.column < best.0) {
                    best = (candidate.column, value);
                }
            }
        }
        if best.1.is_finite() { best } else { (UNDECIDED, f32::NAN) }
    }
);

/// A row whose candidates are computed.
struct RescoredRow<'d, 'a> {
    job: &'d ScanTask<'a>,
    x: &'d Matrix<'d>,
    row: usize,
}

impl RescoredRow<'_, '_> {
    /// The candidates of all parts whose upper bound is not below the best lower bound.
    fn gather<'r>(&self, buffer: &'r mut [Candidate]) -> &'r mut [Candidate] {
        let lower_bound = self.job.rows.best(self.row).get();
        if lower_bound == f32::INFINITY {
            return &mut [];
        }
        let mut found = 0;
        for part in 0..PARTS {
            // SAFETY: the scan has finished, and this is the only task of row `self.row`, as [`ScanTask::list`]
            // requires.
            let (count, list) = unsafe { self.job.list(part, self.row) };
            for candidate in &list[..*count as usize] {
                if !(candidate.upper < lower_bound) {
                    buffer[found] = *candidate;
                    found += 1;
                }
            }
        }
        &mut buffer[..found]
    }

    /// The elements of the row in the columns of `group`, computed as `gemm` does: one sum each, `k` ascending, then
    /// the bias.
    #[inline(always)]
    fn elements<S: SimdF32>(&self, s: S, group: &[Candidate]) -> [f32; MAX_LANES] {
        let product = self.job.product;
        let mut at = [Column::F32 { start: core::ptr::null(), step: 0 }; MAX_LANES];
        let mut bias = [0.0; MAX_LANES];
        for (i, candidate) in group.iter().enumerate() {
            let column = candidate.column as usize;
            at[i] = match product.by_column {
                Some(matrix) => Column::F32 {
                    start: matrix.as_ptr().wrapping_add(column * matrix.row_stride()),
                    step: matrix.column_stride(),
                },
                None => product.weight.column(column),
            };
            bias[i] = product.bias.map_or(0.0, |bias| bias[column]);
        }
        let columns = &at[..group.len()];
        let mut sums = if columns.iter().all(|column| matches!(column, Column::F32 { .. })) {
            let mut floats = [(core::ptr::null(), 0); MAX_LANES];
            for (to, column) in floats.iter_mut().zip(columns) {
                if let Column::F32 { start, step } = *column {
                    *to = (start, step);
                }
            }
            let floats = &floats[..group.len()];
            // SAFETY: the scan lists only columns of the weight as candidates, `product::check` checked that
            // `by_column` has the same shape, and `k` is below the depth.
            self.sums(s, floats, |(start, step), k| unsafe { *start.wrapping_add(k * step) })
        } else {
            // SAFETY: the scan lists only columns of the weight as candidates, and `k` is below the depth.
            self.sums(s, columns, |column, k| unsafe { column.row(k) })
        };
        if product.bias.is_some() {
            // SAFETY: the array has `MAX_LANES` elements, at least one vector.
            sums = s.add(sums, unsafe { s.load(bias.as_ptr()) });
        }
        let mut values = [0.0; MAX_LANES];
        // SAFETY: the array has `MAX_LANES` elements, at least one vector.
        unsafe { s.store(values.as_mut_ptr(), sums) };
        values
    }

    /// The products of the row with `columns`, `k` ascending.
    #[inline(always)]
    fn sums<S: SimdF32, C: Copy>(
        &self,
        s: S,
        columns: &[C],
        element: impl Fn(C, usize) -> f32,
    ) -> S::F32 {
        let mut sums = s.splat(0.0);
        for k in 0..self.x.columns() {
            let mut weights = [0.0; MAX_LANES];
            for (weight, &column) in weights.iter_mut().zip(columns) {
                *weight = element(column, k);
            }
            // SAFETY: the array has `MAX_LANES` elements, at least one vector.
            let weights = unsafe { s.load(weights.as_ptr()) };
            sums = s.mul_add(s.splat(self.x.at(self.row, k)), weights, sums);
        }
        sums
    }
}
