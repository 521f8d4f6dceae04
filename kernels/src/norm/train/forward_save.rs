//! A norm that saves its standard scores and one over the standard deviation of each row. It uses the passes of the
//! plain norm, but the last one writes two results. The output can be recomputed from the
//! standard scores.

use crate::error::Error;
use crate::input::Input;
use crate::matrix::{Matrix, MatrixMut};
use crate::norm::parameters::{Norm, Parameters};
use crate::norm::passes::{
    InputRows, RowGroups, Terms, for_row_groups, learned, standard_row_wide, standard_score, terms,
};
use crate::parallel::Exec;
use crate::row_prefetch::PrefetchRow;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::rows::{UNROLL, map_row};
use crate::simd::{SimdF32, simd_op};
use crate::sync_ptr::SharedMut;
use core::ops::Range;

#[derive(Clone, Copy)]
struct ForwardSaveRows<'a> {
    parameters: Parameters<'a>,
    input: InputRows<'a>,
    standard: RowPtrs<'a>,
    out: RowPtrs<'a>,
    /// One element per row.
    scale: SharedMut<'a>,
}

impl RowGroups for ForwardSaveRows<'_> {
    #[inline(always)]
    unsafe fn group<S: SimdF32, const CENTERED: bool, const R: usize>(&self, s: S, row: usize) {
        let parameters = &self.parameters;
        let prefetch = self.standard.next(s, row + R);
        // SAFETY: the caller's contract.
        let terms = unsafe { terms::<S, CENTERED, R>(s, parameters, &self.input, row, prefetch) };
        let prefetch: [_; R] = self.out.next(s, row + R);
        for i in 0..R {
            let row = row + i;
            let (x, standard) = (self.input.x.row(row), self.standard.row(row));
            let to = [standard, self.out.row(row)];
            // SAFETY: the caller's contract.
            unsafe {
                let scale = if !terms[i].f32_safe {
                    let scale = standard_row_wide(parameters, x, standard);
                    learned(s, parameters, standard, to[1]);
                    // Infinity times a gradient of 0 would be NaN. NaN remains NaN.
                    if scale > f64::from(f32::MAX) { f32::MAX } else { scale as f32 }
                } else if parameters.bias.is_some() {
                    self.finish::<S, CENTERED, true>(s, x, to, terms[i], prefetch[i])
                } else {
                    self.finish::<S, CENTERED, false>(s, x, to, terms[i], prefetch[i])
                };
                *self.scale.as_ptr().add(row) = scale;
            }
        }
    }
}

impl ForwardSaveRows<'_> {
    /// Writes both results of a row, the standard scores and the output, and returns the scale.
    ///
    /// # Safety
    /// As [`RowGroups::group`], for one row; the output may be `x`. There is a bias if `BIAS`.
    #[inline(always)]
    unsafe fn finish<S: SimdF32, const CENTERED: bool, const BIAS: bool>(
        &self,
        s: S,
        x: *const f32,
        to: [*mut f32; 2],
        terms: Terms,
        prefetch: PrefetchRow,
    ) -> f32 {
        let of_row = terms.splat(s);
        // SAFETY: the caller's contract.
        unsafe {
            map_row::<S, 2, UNROLL>(
                s,
                self.parameters.columns(),
                to,
                &[prefetch],
                #[inline(always)]
                |at| {
                    let z = standard_score::<S, CENTERED>(s, at.load(s, x), of_row);
                    [z, self.parameters.affine::<S, BIAS>(s, at, z)]
                },
            );
        }
        terms.scale
    }
}

/// `out = N(x)` with exactly the bits of [`norm()`](crate::norm::norm()). It also saves the standard scores, `(x - mean)
/// r` or, for a root-mean-square normalization, `x r`, in `standard`, `[rows, columns]` like `x` and `out`, and `r = 1 /
/// sqrt(variance + eps)` or `1 / sqrt(mean(x^2) + eps)` in `scale`, `[rows]`.
///
/// If the variance or the mean square and `eps` are 0, `r` and the scores are 0. An `r` that overflows f32 becomes
/// `f32::MAX`. Rows without columns have an `r` of 0.
///
/// Error, with `u = 2^-24`. Layer normalization: with the `z` and `k` of [`norm()`](crate::norm::norm()), a standard
/// score is within `u k (|z| + 2)` of the exact one and `r` within `u k r`, plus `2^-149` if `r` is subnormal.
/// Root-mean-square normalization: `r` and the standard scores have a relative error of at most `u (columns / 128 +
/// 12)`, plus `2^-149` if they are subnormal.
///
/// # Errors
/// As [`norm()`](crate::norm::norm()), or the number of scales differs from the number of rows.
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, Norm, RmsNorm};
/// use simdformer_kernels::train::norm_forward_save;
/// use simdformer_kernels::{Exec, Input, Isa, Matrix, MatrixMut};
///
/// let exec = Exec::serial(Isa::best());
/// let (mut standard, mut scale, mut out) = ([0.0; 4], [0.0; 2], [0.0; 4]);
/// norm_forward_save(
///     exec,
///     Norm::Layer(LayerNorm { weight: &[2.0, 2.0], bias: Some(&[0.5, 0.5]), eps: 0.0 }),
///     Input::Matrix(Matrix::new(&[1.0, 3.0, 7.0, 7.0], 2, 2)?),
///     MatrixMut::new(&mut standard, 2, 2)?,
///     &mut scale,
///     MatrixMut::new(&mut out, 2, 2)?,
/// )?;
/// assert_eq!(standard, [-1.0, 1.0, 0.0, 0.0]);
/// assert_eq!(scale, [1.0, 0.0]);
/// assert_eq!(out, [-1.5, 2.5, 0.5, 0.5]);
///
/// let rms = Norm::Rms(RmsNorm { weight: &[5.0, 3.0], eps: 0.0 });
/// let (mut x, mut standard, mut scale) = ([2.0, -2.0], [0.0; 2], [0.0]);
/// let keep = MatrixMut::new(&mut standard, 1, 2)?;
/// let out = MatrixMut::new(&mut x, 1, 2)?;
/// norm_forward_save(exec, rms, Input::Output, keep, &mut scale, out)?;
/// assert_eq!((standard, scale, x), ([1.0, -1.0], [0.5], [5.0, -3.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn norm_forward_save(
    exec: Exec<'_>,
    norm: Norm<'_>,
    x: Input<'_>,
    mut standard: MatrixMut<'_>,
    scale: &mut [f32],
    mut out: MatrixMut<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = [out.rows(), out.columns()];
    let to = RowPtrs::from_matrix_mut("out", &mut out, shape)?;
    let x = x.rows("x", to, shape)?;
    let standard = RowPtrs::from_matrix_mut("standard", &mut standard, shape)?;
    let parameters = norm.checked(columns)?;
    Error::check_len("scale", rows, scale)?;
    if columns == 0 {
        scale.fill(0.0);
    }
    let scale = SharedMut::new(scale);
    let input = InputRows { x, add: None };
    let groups = ForwardSaveRows { parameters, input, standard, out: to, scale };
    // SAFETY: `RowPtrs` and `Norm::checked` checked the shapes, and `check_len` that there is a scale for each row.
    unsafe {
        for_row_groups(exec, shape, parameters.centered, groups);
    }
    Ok(())
}

simd_op!(
    fn recompute_rows<S: SimdF32>(
        s: S,
        parameters: Parameters<'_>,
        rows: Range<usize>,
        standard: RowPtrs<'_>,
        out: RowPtrs<'_>,
    ) {
        for row in rows {
            let (standard, out) = (standard.row(row), out.row(row));
            // SAFETY: `norm_recompute` checked with `RowPtrs` that both matrices have these rows of `columns` floats, and with
            // `Norm::checked` that weight and bias have `columns` floats; `for_rows` gives each task its own rows.
            unsafe { learned(s, &parameters, standard, out) };
        }
    }
);

/// `out = standard * weight + bias`: recomputes the `out` of [`norm_forward_save`] with the same bits. One rounding per
/// element.
///
/// # Errors
/// As [`norm_forward_save`].
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, Norm};
/// use simdformer_kernels::train::norm_recompute;
/// use simdformer_kernels::{Exec, Isa, Matrix, MatrixMut};
///
/// let norm = Norm::Layer(LayerNorm { weight: &[2.0, 3.0], bias: Some(&[0.5, 0.5]), eps: 0.0 });
/// let (standard, mut out) = (Matrix::new(&[-1.0, 1.0], 1, 2)?, [0.0; 2]);
/// let view = MatrixMut::new(&mut out, 1, 2)?;
/// norm_recompute(Exec::serial(Isa::best()), norm, standard, view)?;
/// assert_eq!(out, [-1.5, 3.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn norm_recompute(
    exec: Exec<'_>,
    norm: Norm<'_>,
    standard: Matrix<'_>,
    mut out: MatrixMut<'_>,
) -> Result<(), Error> {
    let shape @ [_, columns] = [out.rows(), out.columns()];
    let standard = RowPtrs::from_matrix("standard", &standard, shape)?;
    let out = RowPtrs::from_matrix_mut("out", &mut out, shape)?;
    let parameters = norm.checked(columns)?;
    for_rows(exec, shape, |rows| recompute_rows(parameters, rows, standard, out));
    Ok(())
}
