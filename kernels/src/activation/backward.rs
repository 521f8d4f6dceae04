//! An activation whose input is kept, and its gradient.

use super::derivative::{slope_row, with_slope};
use super::row_ptrs::{RowPtrs, SyncPtrs};
use super::{Activation, ActivationError};
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Parallelism;
use crate::rows::{for_rows, sweep};
use crate::simd::{SimdF32, SimdOp};
use core::ops::Range;

struct BackwardRows {
    activation: Activation,
    rows: Range<usize>,
    columns: usize,
    pre: RowPtrs,
    d: RowPtrs,
}

impl SimdOp for BackwardRows {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        for row in self.rows {
            let (pre, d) = (self.pre.row(row), self.d.row(row));
            // SAFETY: `activation_backward` checked with `RowPtrs::read` and `RowPtrs::written` that
            // both places hold these rows of `columns` floats; `for_rows` gives each task rows of
            // its own.
            unsafe { slope_row(s, self.activation, pre, d, self.columns) };
        }
    }
}

/// `d = d * activation'(pre)` for every element of `d`, where `pre`, of the same shape, is what the
/// activation was applied to.
///
/// Error: as many units in the last place as rounding the product takes, and `|d|` times the absolute
/// error of the derivative: 0 for `Identity` and `Relu`, `8e-7` for `Gelu`, `4e-7` for `GeluTanh` and
/// `Silu`, and 4e-7 of itself for `Tanh` and `Sigmoid`, below 1e-37 of which there is only 0.
/// Derivatives are their limits in the tails, never NaN; a `pre` of NaN gives NaN. `Relu` passes nothing
/// back at 0.
///
/// # Errors
/// Shapes differ, or the elements of a row are not side by side.
///
/// ```
/// use simdformer_kernels::train::activation_backward;
/// use simdformer_kernels::{Activation, Isa, Matrix, MatrixMut, Parallelism};
///
/// let pre = Matrix::new(&[-1.0, 0.0, 2.0], 1, 3)?;
/// let mut d = [5.0, 6.0, 7.0];
/// let view = MatrixMut::new(&mut d, 1, 3)?;
/// activation_backward(Isa::best(), Activation::Relu, pre, view, Parallelism::Serial)?;
/// assert_eq!(d, [0.0, 0.0, 7.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn activation_backward(
    isa: Isa,
    activation: Activation,
    pre: Matrix<'_>,
    mut d: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), ActivationError> {
    let shape @ [rows, columns] = [d.rows(), d.columns()];
    let places = [RowPtrs::read(&pre, shape)?, RowPtrs::written(&mut d, shape)?];
    if columns == 0 {
        return Ok(());
    }
    // SAFETY: both views live as long as this call; tasks write rows of their own.
    let places = unsafe { SyncPtrs::new(places) };
    for_rows(parallelism.workers(), rows, columns, &|rows| {
        let [pre, d] = places.places();
        isa.dispatch(BackwardRows { activation, rows, columns, pre, d });
    });
    Ok(())
}

struct RecomputeRows {
    activation: Activation,
    rows: Range<usize>,
    columns: usize,
    pre: RowPtrs,
    out: RowPtrs,
}

impl SimdOp for RecomputeRows {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        for row in self.rows {
            let (pre, out) = (self.pre.row(row), self.out.row(row));
            // SAFETY: `activation_recompute` checked with `RowPtrs::read` and `RowPtrs::written` that both
            // places hold these rows of `columns` floats; `for_rows` gives each task rows of its
            // own.
            unsafe { with_slope!(self.activation, f => sweep(s, f, pre, out, self.columns)) };
        }
    }
}

/// `out = activation(pre)`: [`activation::apply`](crate::activation::apply) from one matrix to another, with
/// the bits that an [`Epilogue`](crate::Epilogue) gives.
///
/// # Errors
/// Shapes differ, or the elements of a row are not side by side.
///
/// ```
/// use simdformer_kernels::train::activation_recompute;
/// use simdformer_kernels::{Activation, Isa, Matrix, MatrixMut, Parallelism};
///
/// let pre = Matrix::new(&[-1.0, 0.0, 2.0], 1, 3)?;
/// let mut out = [0.0; 3];
/// let view = MatrixMut::new(&mut out, 1, 3)?;
/// activation_recompute(Isa::best(), Activation::Relu, pre, view, Parallelism::Serial)?;
/// assert_eq!(out, [0.0, 0.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn activation_recompute(
    isa: Isa,
    activation: Activation,
    pre: Matrix<'_>,
    mut out: MatrixMut<'_>,
    parallelism: Parallelism<'_>,
) -> Result<(), ActivationError> {
    let shape @ [rows, columns] = [out.rows(), out.columns()];
    let places = [RowPtrs::read(&pre, shape)?, RowPtrs::written(&mut out, shape)?];
    if columns == 0 {
        return Ok(());
    }
    // SAFETY: both views live as long as this call; tasks write rows of their own.
    let places = unsafe { SyncPtrs::new(places) };
    for_rows(parallelism.workers(), rows, columns, &|rows| {
        let [pre, out] = places.places();
        isa.dispatch(RecomputeRows { activation, rows, columns, pre, out });
    });
    Ok(())
}
