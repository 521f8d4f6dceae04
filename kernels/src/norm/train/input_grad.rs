//! The gradient of a norm's input: two sums along each row, then the result.

use crate::debug_slice::impl_debug;
use crate::error::Error;
use crate::input::Input;
use crate::matrix::{Matrix, MatrixMut};
use crate::norm::parameters::{Norm, Parameters};
use crate::norm::passes::{RowGroups, for_row_groups};
use crate::parallel::Exec;
use crate::row_prefetch::PrefetchRow;
use crate::row_tasks::RowPtrs;
use crate::rows::{UNROLL, fold_lanes, map_row};
use crate::simd::SimdF32;
use crate::train::WriteMode;

/// What a norm saved for its gradient, of rows `[rows, columns]`.
#[derive(Clone, Copy)]
pub struct SavedNorm<'a> {
    /// The standard scores, `[rows, columns]`.
    pub standard: Matrix<'a>,
    /// One over the standard deviation or over the root mean square of each row, `[rows]`.
    pub scale: &'a [f32],
}

impl_debug!(SavedNorm { standard, [scale] });

#[derive(Clone, Copy)]
struct InputGradRows<'a> {
    weight: &'a [f32],
    /// One element per row.
    scale: &'a [f32],
    standard: RowPtrs<'a>,
    d_out: RowPtrs<'a>,
    d_x: RowPtrs<'a>,
    write: WriteMode,
}

impl RowGroups for InputGradRows<'_> {
    #[inline(always)]
    unsafe fn group<S: SimdF32, const CENTERED: bool, const R: usize>(&self, s: S, row: usize) {
        let (standard, d_out) = (self.standard.rows::<R>(row), self.d_out.rows::<R>(row));
        let prefetch = [self.standard.next(s, row + R), self.d_out.next(s, row + R)];
        // SAFETY: the caller's contract.
        let [means, along] = unsafe { self.sums::<S, CENTERED, R>(s, standard, d_out, prefetch) };
        let inverse = 1.0 / self.weight.len() as f32;
        let (d_x, prefetch): (_, [_; R]) = (self.d_x.rows::<R>(row), self.d_x.next(s, row + R));
        for i in 0..R {
            let rows = [standard[i], d_out[i], d_x[i]];
            let terms = [means[i] * inverse, along[i] * inverse, self.scale[row + i]];
            // SAFETY: the caller's contract.
            unsafe {
                match self.write {
                    WriteMode::Store => {
                        self.finish::<S, CENTERED, false>(s, rows, terms, prefetch[i]);
                    }
                    WriteMode::Add => self.finish::<S, CENTERED, true>(s, rows, terms, prefetch[i]),
                }
            }
        }
    }
}

impl InputGradRows<'_> {
    /// The sums of `g`, if `CENTERED`, and of `g z` for each of `R` rows. As many lanes as four vectors hold are summed
    /// at a time, so that two sums fit in 16 registers.
    ///
    /// # Safety
    /// Rows are valid for reads of `weight.len()` floats.
    #[inline(always)]
    unsafe fn sums<S: SimdF32, const CENTERED: bool, const R: usize>(
        &self,
        s: S,
        standard: [*mut f32; R],
        d_out: [*mut f32; R],
        prefetch: [[PrefetchRow; R]; 2],
    ) -> [[f32; R]; 2] {
        let weight = self.weight.as_ptr();
        fold_lanes::<S, R, 2, UNROLL, 1>(
            s,
            self.weight.len(),
            &prefetch,
            #[inline(always)]
            |row, at, [g_sum, along]| {
                // SAFETY: the caller's contract. Lanes after the last element are zeros, which add nothing.
                unsafe {
                    let g = s.mul(at.load(s, weight), at.load(s, d_out[row]));
                    if CENTERED {
                        *g_sum = s.add(*g_sum, g);
                    }
                    *along = s.mul_add(g, at.load(s, standard[row]), *along);
                }
            },
        )
    }

    /// Writes a row: `scale (g - mean - z along)`, added to the content of `d_x` if `ADD`.
    ///
    /// # Safety
    /// As [`RowGroups::group`], for one row; `d_x` may be `d_out`.
    #[inline(always)]
    unsafe fn finish<S: SimdF32, const CENTERED: bool, const ADD: bool>(
        &self,
        s: S,
        [standard, d_out, d_x]: [*mut f32; 3],
        terms: [f32; 3],
        prefetch: PrefetchRow,
    ) {
        let weight = self.weight.as_ptr();
        let [mean, along, scale] = [s.splat(terms[0]), s.splat(-terms[1]), s.splat(terms[2])];
        // SAFETY: the caller's contract.
        unsafe {
            map_row::<S, 1, UNROLL>(
                s,
                self.weight.len(),
                [d_x],
                &[prefetch],
                #[inline(always)]
                |at| {
                    let g = s.mul(at.load(s, weight), at.load(s, d_out));
                    let g = if CENTERED { s.sub(g, mean) } else { g };
                    let v = s.mul(s.mul_add(at.load(s, standard), along, g), scale);
                    [if ADD { s.add(at.load(s, d_x), v) } else { v }]
                },
            );
        }
    }
}

/// The gradient of a norm's input: with `g = weight * d_out`, in every row `d_x = r (g - mean(g) - standard mean(g *
/// standard))`, stored or added; a root-mean-square normalization has no `mean(g)`. `saved` is what
/// [`norm_forward_save`](crate::train::norm_forward_save) saved; `r` is its `scale`. All matrices are `[rows,
/// columns]`. In place, `d_x` is the gradient of the output before the call.
///
/// Error, against the formula with the same `standard` and `scale`, without underflow: `u (columns / 64 + 15) r (|g| +
/// mean |g| + |standard| mean |g * standard|)`, with `u = 2^-24` and without `mean |g|` if the formula has no `mean(g)`.
/// Adding to the previous content takes one more rounding.
///
/// # Errors
/// As [`norm_forward_save`](crate::train::norm_forward_save).
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, Norm, RmsNorm};
/// use simdformer_kernels::train::{SavedNorm, WriteMode, norm_backward};
/// use simdformer_kernels::{Exec, Input, Isa, Matrix, MatrixMut};
///
/// let (exec, store) = (Exec::serial(Isa::best()), WriteMode::Store);
/// let norm = Norm::Layer(LayerNorm { weight: &[1.0; 4], bias: None, eps: 0.0 });
/// let standard = Matrix::new(&[-1.0, 1.0, 1.0, -1.0], 1, 4)?;
/// let saved = SavedNorm { standard, scale: &[2.0] };
/// let d_out = Input::Matrix(Matrix::new(&[4.0, 0.0, 0.0, 0.0], 1, 4)?);
/// let mut d_x = [0.0; 4];
/// norm_backward(exec, norm, saved, d_out, store, MatrixMut::new(&mut d_x, 1, 4)?)?;
/// // Both means have magnitude 1: the gradient is orthogonal to the constant vector and to `standard`.
/// assert_eq!(d_x, [4.0, 0.0, 0.0, -4.0]);
///
/// let norm = Norm::Rms(RmsNorm { weight: &[1.0, 3.0], eps: 0.0 });
/// let saved = SavedNorm { standard: Matrix::new(&[1.0, -1.0], 1, 2)?, scale: &[0.5] };
/// let mut d = [4.0, 0.0];
/// let d_x = MatrixMut::new(&mut d, 1, 2)?;
/// norm_backward(exec, norm, saved, Input::Output, store, d_x)?;
/// assert_eq!(d, [1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn norm_backward(
    exec: Exec<'_>,
    norm: Norm<'_>,
    SavedNorm { standard, scale }: SavedNorm<'_>,
    d_out: Input<'_>,
    write: WriteMode,
    mut d_x: MatrixMut<'_>,
) -> Result<(), Error> {
    let shape @ [rows, columns] = [d_x.rows(), d_x.columns()];
    let to = RowPtrs::from_matrix_mut("d_x", &mut d_x, shape)?;
    let from = d_out.rows("d_out", to, shape)?;
    let standard = RowPtrs::from_matrix("standard", &standard, shape)?;
    let Parameters { centered, weight, .. } = norm.checked(columns)?;
    Error::check_len("scale", rows, scale)?;
    let groups = InputGradRows { weight, scale, standard, d_out: from, d_x: to, write };
    // SAFETY: `RowPtrs` and `Norm::checked` checked the shapes.
    unsafe { for_row_groups(exec, shape, centered, groups) };
    Ok(())
}
