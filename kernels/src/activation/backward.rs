//! The gradient of an activation from its saved input.

use super::Activation;
use super::derivative::times_derivative_row;
use crate::error::Error;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Exec;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::simd::simd_op;
use core::ops::Range;

simd_op!(
    fn backward_rows<S: SimdF32>(
        s: S,
        activation: Activation,
        rows: Range<usize>,
        columns: usize,
        pre: RowPtrs<'_>,
        d: RowPtrs<'_>,
    ) {
        for row in rows {
            // SAFETY: `activation_backward` checked with `RowPtrs::from_matrix` and `RowPtrs::from_matrix_mut` that both matrices
            // have these rows of `columns` floats; `for_rows` gives each task its own rows.
            unsafe { times_derivative_row(s, activation, pre.row(row), d.row(row), columns) };
        }
    }
);

/// `d = d * activation'(pre)` for every element of `d`. `pre` is the input of the activation and has the same shape as
/// `d`.
///
/// Error: the rounding of the product, plus `|d|` times the absolute error of the derivative: 0 for `Identity` and
/// `Relu`, `8e-7` for `Gelu`, `4e-7` for `GeluTanh` and `Silu`. For `Tanh` and `Sigmoid` the derivative has a relative
/// error of 4e-7; derivatives below 1e-37 become 0. Derivatives are the limits for large `|pre|`, never NaN; a `pre`
/// of NaN gives NaN. The derivative of `Relu` at 0 is 0.
///
/// # Errors
/// Shapes differ, or the elements of a row are not contiguous.
///
/// ```
/// use simdformer_kernels::train::activation_backward;
/// use simdformer_kernels::{Activation, Exec, Isa, Matrix, MatrixMut};
///
/// let pre = Matrix::new(&[-1.0, 0.0, 2.0], 1, 3)?;
/// let mut d = [5.0, 6.0, 7.0];
/// let view = MatrixMut::new(&mut d, 1, 3)?;
/// activation_backward(Exec::serial(Isa::best()), Activation::Relu, pre, view)?;
/// assert_eq!(d, [0.0, 0.0, 7.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn activation_backward(
    exec: Exec<'_>,
    activation: Activation,
    pre: Matrix<'_>,
    mut d: MatrixMut<'_>,
) -> Result<(), Error> {
    let shape = [d.rows(), d.columns()];
    let (pre, d) =
        (RowPtrs::from_matrix("pre", &pre, shape)?, RowPtrs::from_matrix_mut("d", &mut d, shape)?);
    for_rows(exec, shape, |rows| backward_rows(activation, rows, shape[1], pre, d));
    Ok(())
}
