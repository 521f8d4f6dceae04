//! A norm that saves its standard scores and one over the standard deviation of each row. It uses the passes of the
//! plain norm, but the last one writes two results. The output can be recomputed from the
//! standard scores.

use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::norm::parameters::Norm;
use crate::norm::passes::{self, Standard, moments};
use crate::norm::rms_passes::{self, root};
use crate::norm::simd_rows::{PAIRED, PrefetchRow, UNROLL, learned, load, prefetch_step, store};
use crate::parallel::Parallelism;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::simd::{SimdF32, SimdOp, simd_op};
use crate::sync_ptr::SharedMut;
use core::ops::Range;

/// `CENTERED` for a layer normalization, otherwise a root-mean-square one; `BIAS` if it has a bias.
struct ForwardSaveRows<'a, const CENTERED: bool, const BIAS: bool> {
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    eps: f32,
    rows: usize,
    x: RowPtrs<'a>,
    standard: RowPtrs<'a>,
    out: RowPtrs<'a>,
    /// One element per row.
    scale: *mut f32,
}

impl<const CENTERED: bool, const BIAS: bool> SimdOp for ForwardSaveRows<'_, CENTERED, BIAS> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let mut row = 0;
        // SAFETY: `run` checked with `RowPtrs` that all matrices have these rows of `columns` floats, with
        // `Norm::check` that weight and bias have `columns` floats, with `check_len` that there is a scale for each
        // row, and that there are columns; it sets `BIAS` if there is a bias. `for_rows` gives each task its own rows.
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

impl<const CENTERED: bool, const BIAS: bool> ForwardSaveRows<'_, CENTERED, BIAS> {
    /// Normalizes `R` rows from `row` on.
    ///
    /// # Safety
    /// All matrices have these rows, which are not empty and as long as the weight and the bias, and there is a scale
    /// for each of them. The norm has a bias if `BIAS`.
    #[inline(always)]
    unsafe fn group<S: SimdF32, const R: usize>(&self, s: S, row: usize) {
        let (len, eps) = (self.weight.len(), self.eps);
        let (x, standard) = (self.x.rows::<R>(row), self.standard.rows::<R>(row));
        let out = self.out.rows::<R>(row);
        let prefetch = [self.x.next(row + R), self.standard.next(row + R)];
        // SAFETY: the caller's contract; `ADD` is false, so only `x` is used.
        let (terms, f32_safe) = unsafe {
            if CENTERED {
                moments::<S, false, R>(s, len, eps, [x; 3], prefetch)
            } else {
                let (scale, f32_safe) = root::<S, false, R>(s, len, eps, [x; 3], prefetch[0]);
                (Standard { mean: [0.0; R], scale, shift: [0.0; R] }, f32_safe)
            }
        };
        let prefetch = self.out.next::<R>(row + R);
        for i in 0..R {
            // SAFETY: the caller's contract.
            unsafe {
                let scale = if f32_safe[i] {
                    self.finish(s, x[i], standard[i], out[i], terms.of(i), prefetch[i]);
                    terms.scale[i]
                } else {
                    let scale = if CENTERED {
                        passes::standard_row_wide(len, eps, x[i], standard[i])
                    } else {
                        rms_passes::standard_row_wide(len, eps, x[i], standard[i])
                    };
                    learned::<S, BIAS>(s, self.weight, self.bias, standard[i], out[i]);
                    // Infinity times a gradient of 0 would be NaN. NaN remains NaN.
                    if scale > f64::from(f32::MAX) { f32::MAX } else { scale as f32 }
                };
                *self.scale.add(row + i) = scale;
            }
        }
    }

    /// Writes both results of a row.
    ///
    /// # Safety
    /// As [`ForwardSaveRows::group`], for one row; `out` may be `x`.
    #[inline(always)]
    unsafe fn finish<S: SimdF32>(
        &self,
        s: S,
        x: *const f32,
        standard: *mut f32,
        out: *mut f32,
        terms: Standard<1>,
        prefetch: PrefetchRow,
    ) {
        let len = self.weight.len();
        let weight = self.weight.as_ptr();
        let bias = self.bias.map_or(core::ptr::null(), <[f32]>::as_ptr);
        let (mean, scale) = (s.splat(terms.mean[0]), s.splat(terms.scale[0]));
        let shift = s.splat(terms.shift[0]);
        macro_rules! vector {
            ($full:literal, $at:expr, $count:expr) => {{
                let (at, count) = ($at, $count);
                let w = load::<S, $full>(s, weight.add(at), count);
                let x = load::<S, $full>(s, x.add(at), count);
                let z = if CENTERED {
                    s.mul_add(s.sub(x, mean), scale, shift)
                } else {
                    s.mul(x, scale)
                };
                let y = if BIAS {
                    s.mul_add(z, w, load::<S, $full>(s, bias.add(at), count))
                } else {
                    s.mul(z, w)
                };
                store::<S, $full>(s, standard.add(at), z, count);
                store::<S, $full>(s, out.add(at), y, count);
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

/// If `x` is `None`, the input is `out`.
pub(super) fn run(
    isa: Isa,
    norm: Norm<'_>,
    x: Option<Matrix<'_>>,
    mut standard: MatrixMut<'_>,
    scale: &mut [f32],
    mut out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = [out.rows(), out.columns()];
    let name = if x.is_some() { "out" } else { "x" };
    let to = RowPtrs::written(name, &mut out, shape)?;
    let from = x.map_or(Ok(to), |x| RowPtrs::read("x", &x, shape))?;
    let standard = RowPtrs::written("standard", &mut standard, shape)?;
    norm.check(columns)?;
    Error::check_len("scale", rows, scale)?;
    if columns == 0 {
        scale.fill(0.0);
        return Ok(());
    }
    let scale = SharedMut::new(scale);
    for_rows(parallelism.workers(), rows, columns, &|range| {
        let [x, standard, out] = [from, standard, to].map(|ptr| ptr.from(range.start));
        let scale = scale.as_ptr().wrapping_add(range.start);
        let (rows, eps) = (range.len(), norm.eps());
        let (weight, bias) = norm.learned();
        macro_rules! run {
            ($centered:literal, $bias:literal) => {
                isa.dispatch(ForwardSaveRows::<$centered, $bias> {
                    weight,
                    bias,
                    eps,
                    rows,
                    x,
                    standard,
                    out,
                    scale,
                })
            };
        }
        match norm {
            Norm::Layer(_) if bias.is_some() => run!(true, true),
            Norm::Layer(_) => run!(true, false),
            Norm::Rms(_) => run!(false, false),
        }
    });
    Ok(())
}

simd_op!(
    fn recompute_rows<S: SimdF32>(
        s: S,
        weight: &[f32],
        bias: Option<&[f32]>,
        rows: Range<usize>,
        standard: RowPtrs<'_>,
        out: RowPtrs<'_>,
    ) {
        for row in rows {
            let (standard, out) = (standard.row(row), out.row(row));
            // SAFETY: `recompute` checked with `RowPtrs` that both matrices have these rows of `columns` floats, and with
            // `Norm::check` that weight and bias have `columns` floats; `for_rows` gives each task its own rows.
            unsafe {
                match bias {
                    Some(_) => learned::<S, true>(s, weight, bias, standard, out),
                    None => learned::<S, false>(s, weight, None, standard, out),
                }
            }
        }
    }
);

/// Recomputes the output from the saved standard scores.
pub(super) fn recompute(
    isa: Isa,
    norm: Norm<'_>,
    standard: Matrix<'_>,
    mut out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = [out.rows(), out.columns()];
    let standard = RowPtrs::read("standard", &standard, shape)?;
    let out = RowPtrs::written("out", &mut out, shape)?;
    norm.check(columns)?;
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let (weight, bias) = norm.learned();
    for_rows(parallelism.workers(), rows, columns, &|rows| {
        isa.dispatch(recompute_rows(weight, bias, rows, standard, out));
    });
    Ok(())
}
