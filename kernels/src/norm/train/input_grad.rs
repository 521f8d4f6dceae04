//! The gradient of a norm's input: two sums along each row, then the result.

use super::SavedNorm;
use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::norm::parameters::Norm;
use crate::norm::simd_rows::{PAIRED, PrefetchRow, UNROLL, load, prefetch_step, store};
use crate::parallel::Parallelism;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::simd::{MOST_VECTORS, SimdF32, SimdOp, VIRTUAL, sum_of_lanes};
use crate::train::WriteMode;

/// `CENTERED` for a layer normalization; `ADD` to add to the content of `d_x`.
struct InputGradRows<'a, const CENTERED: bool, const ADD: bool> {
    weight: &'a [f32],
    rows: usize,
    standard: RowPtrs<'a>,
    d_out: RowPtrs<'a>,
    d_x: RowPtrs<'a>,
    /// One element per row.
    scale: *const f32,
}

impl<const CENTERED: bool, const ADD: bool> SimdOp for InputGradRows<'_, CENTERED, ADD> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let mut row = 0;
        // SAFETY: `run` checked with `RowPtrs` that all matrices have these rows of `columns` floats, with
        // `Norm::check` that the weight has `columns` floats, with `check_len` that there is a scale for each row, and
        // that there are columns. `for_rows` gives each task its own rows.
        unsafe {
            if S::REGISTERS >= 32 && self.weight.len() <= PAIRED {
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

impl<const CENTERED: bool, const ADD: bool> InputGradRows<'_, CENTERED, ADD> {
    /// Computes `R` rows from `row` on.
    ///
    /// # Safety
    /// All matrices have these rows, which are not empty and as long as the weight, and there is a scale for each of
    /// them.
    #[inline(always)]
    unsafe fn group<S: SimdF32, const R: usize>(&self, s: S, row: usize) {
        let (standard, d_out) = (self.standard.rows::<R>(row), self.d_out.rows::<R>(row));
        let prefetch = [self.standard.next(row + R), self.d_out.next(row + R)];
        // SAFETY: the caller's contract.
        let sums = unsafe { sums::<S, CENTERED, R>(s, self.weight, standard, d_out, prefetch) };
        let inverse = 1.0 / self.weight.len() as f32;
        let (d_x, prefetch) = (self.d_x.rows::<R>(row), self.d_x.next::<R>(row + R));
        for i in 0..R {
            let [mean, along] = [sums[i][0] * inverse, sums[i][1] * inverse];
            // SAFETY: the caller's contract.
            unsafe {
                let scale = *self.scale.add(row + i);
                self.finish(s, [standard[i], d_out[i], d_x[i]], [mean, along, scale], prefetch[i]);
            }
        }
    }

    /// Writes a row: `scale (g - mean - z along)`.
    ///
    /// # Safety
    /// As [`InputGradRows::group`], for one row; `d_x` may be `d_out`, unless `ADD`.
    #[inline(always)]
    unsafe fn finish<S: SimdF32>(
        &self,
        s: S,
        [standard, d_out, d_x]: [*mut f32; 3],
        terms: [f32; 3],
        prefetch: PrefetchRow,
    ) {
        let len = self.weight.len();
        let weight = self.weight.as_ptr();
        let [mean, along, scale] = [s.splat(terms[0]), s.splat(-terms[1]), s.splat(terms[2])];
        macro_rules! vector {
            ($full:literal, $at:expr, $count:expr) => {{
                let (at, count) = ($at, $count);
                let w = load::<S, $full>(s, weight.add(at), count);
                let z = load::<S, $full>(s, standard.add(at), count);
                let g = s.mul(w, load::<S, $full>(s, d_out.add(at), count));
                let g = if CENTERED { s.sub(g, mean) } else { g };
                let mut v = s.mul(s.mul_add(z, along, g), scale);
                if ADD {
                    v = s.add(load::<S, $full>(s, d_x.add(at), count), v);
                }
                store::<S, $full>(s, d_x.add(at), v, count);
            }};
        }
        let mut i = 0;
        while i + UNROLL * S::LANES <= len {
            prefetch_step(s, prefetch, i);
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
}

/// The sum of `g`, if `CENTERED`, and the sum of `g z` for each of `R` rows, in virtual lanes. A pass computes as many
/// lanes as four vectors hold, so that two sums fit in 16 registers. Prefetches the next rows.
///
/// # Safety
/// Rows are valid for reads of `weight.len()` floats.
#[inline(always)]
unsafe fn sums<S: SimdF32, const CENTERED: bool, const R: usize>(
    s: S,
    weight: &[f32],
    standard: [*mut f32; R],
    d_out: [*mut f32; R],
    prefetch: [[PrefetchRow; R]; 2],
) -> [[f32; 2]; R] {
    let len = weight.len();
    let weight = weight.as_ptr();
    let zero = s.splat(0.0);
    let group = UNROLL * S::LANES;
    let mut lanes = [[[zero; MOST_VECTORS]; 2]; R];
    for first in 0..VIRTUAL / group {
        let mut sums = [[[zero; UNROLL]; 2]; R];
        macro_rules! vector {
            ($full:literal, $row:expr, $j:expr, $at:expr, $count:expr) => {{
                let (row, j, at, count) = ($row, $j, $at, $count);
                // Lanes after the last element are zeros, which add nothing.
                let w = load::<S, $full>(s, weight.add(at), count);
                let g = s.mul(w, load::<S, $full>(s, d_out[row].add(at), count));
                let z = load::<S, $full>(s, standard[row].add(at), count);
                if CENTERED {
                    sums[row][0][j] = s.add(sums[row][0][j], g);
                }
                sums[row][1][j] = s.mul_add(g, z, sums[row][1][j]);
            }};
        }
        let mut i = first * group;
        while i + group <= len {
            for row in 0..R {
                prefetch_step(s, prefetch[0][row], i);
                prefetch_step(s, prefetch[1][row], i);
                for j in 0..UNROLL {
                    // SAFETY: `i + UNROLL * LANES <= len`, within all rows.
                    unsafe { vector!(true, row, j, i + j * S::LANES, S::LANES) };
                }
            }
            i += VIRTUAL;
        }
        for j in 0..UNROLL {
            let at = i + j * S::LANES;
            if at < len {
                let count = (len - at).min(S::LANES);
                for row in 0..R {
                    // SAFETY: `at + count <= len`, within all rows.
                    unsafe { vector!(false, row, j, at, count) };
                }
            }
        }
        for row in 0..R {
            for j in 0..UNROLL {
                for which in 0..2 {
                    lanes[row][which][first * UNROLL + j] = sums[row][which][j];
                }
            }
        }
    }
    let mut totals = [[0.0; 2]; R];
    for row in 0..R {
        if CENTERED {
            totals[row][0] = sum_of_lanes(s, lanes[row][0]);
        }
        totals[row][1] = sum_of_lanes(s, lanes[row][1]);
    }
    totals
}

/// If `d_out` is `None`, it is `d_x`; this is allowed only if the gradient is stored.
pub(super) fn run(
    isa: Isa,
    norm: Norm<'_>,
    SavedNorm { standard, scale }: SavedNorm<'_>,
    d_out: Option<Matrix<'_>>,
    write: WriteMode,
    mut d_x: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = [d_x.rows(), d_x.columns()];
    let name = if d_out.is_some() { "d_x" } else { "d" };
    let to = RowPtrs::written(name, &mut d_x, shape)?;
    let from = d_out.map_or(Ok(to), |d_out| RowPtrs::read("d_out", &d_out, shape))?;
    let standard = RowPtrs::read("standard", &standard, shape)?;
    norm.check(columns)?;
    Error::check_len("scale", rows, scale)?;
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let (weight, _) = norm.learned();
    for_rows(parallelism.workers(), rows, columns, &|range| {
        let [standard, d_out, d_x] = [standard, from, to].map(|ptr| ptr.from(range.start));
        let (rows, scale) = (range.len(), scale[range].as_ptr());
        macro_rules! run {
            ($centered:literal, $add:literal) => {
                isa.dispatch(InputGradRows::<$centered, $add> {
                    weight,
                    rows,
                    standard,
                    d_out,
                    d_x,
                    scale,
                })
            };
        }
        match (norm, write) {
            (Norm::Layer(_), WriteMode::Store) => run!(true, false),
            (Norm::Layer(_), WriteMode::Add) => run!(true, true),
            (Norm::Rms(_), WriteMode::Store) => run!(false, false),
            (Norm::Rms(_), WriteMode::Add) => run!(false, true),
        }
    });
    Ok(())
}
