//! The product in a gated feed-forward block, `activation(gate) * inner` (Shazeer 2020, "GLU Variants Improve
//! Transformer"): its recomputation from its inputs, and its gradient.

use super::{Activation, with_activation};
use crate::error::Error;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Exec;
use crate::row_tasks::{RowPtrs, for_rows};
use crate::rows::map_row;
use crate::simd::simd_op;
use core::ops::Range;

simd_op!(
    /// If `BACKWARD`, the gradients of `gate` and `inner` overwrite them, computed from the gradient in `hidden`;
    /// otherwise `hidden` is written.
    fn gate_rows<S: SimdF32, const BACKWARD: bool>(
        s: S,
        activation: Activation,
        rows: Range<usize>,
        len: usize,
        gate: RowPtrs<'_>,
        inner: RowPtrs<'_>,
        hidden: RowPtrs<'_>,
    ) {
        for row in rows {
            let (gate, inner, hidden) = (gate.row(row), inner.row(row), hidden.row(row));
            // SAFETY: `gate` and `gate_backward` checked with `RowPtrs::from_matrix` and `RowPtrs::from_matrix_mut` that all matrices
            // have these rows of `len` floats; `for_rows` gives each task its own rows.
            unsafe {
                if BACKWARD {
                    with_activation!(activation, F => map_row::<S, 2, 1>(
                        s,
                        len,
                        [gate, inner],
                        &[],
                        #[inline(always)]
                        |at| {
                            let (g, d) = (at.load(s, gate), at.load(s, hidden));
                            let d_gate = F.times_derivative(s, g, s.mul(d, at.load(s, inner)));
                            [d_gate, s.mul(d, F.map(s, g))]
                        },
                    ));
                } else {
                    with_activation!(activation, F => map_row::<S, 1, 1>(
                        s,
                        len,
                        [hidden],
                        &[],
                        #[inline(always)]
                        |at| [s.mul(F.map(s, at.load(s, gate)), at.load(s, inner))],
                    ));
                }
            }
        }
    }
);

/// `hidden = activation(gate) * inner` for every element, all `[rows, columns]`. It has the same bits as two products
/// into one output, of which the second one uses a [`PostOp::MultiplyOutput`](crate::PostOp::MultiplyOutput), but
/// takes the results of the two products as inputs.
///
/// # Errors
/// Shapes differ, or the elements of a row are not contiguous.
///
/// ```
/// use simdformer_kernels::train::gate;
/// use simdformer_kernels::{Activation, Exec, Isa, Matrix, MatrixMut};
///
/// let (gates, inner) = (Matrix::new(&[-1.0, 3.0], 1, 2)?, Matrix::new(&[5.0, 7.0], 1, 2)?);
/// let mut hidden = [0.0; 2];
/// let view = MatrixMut::new(&mut hidden, 1, 2)?;
/// gate(Exec::serial(Isa::best()), Activation::Relu, gates, inner, view)?;
/// assert_eq!(hidden, [0.0, 21.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gate(
    exec: Exec<'_>,
    activation: Activation,
    gate: Matrix<'_>,
    inner: Matrix<'_>,
    mut hidden: MatrixMut<'_>,
) -> Result<(), Error> {
    let shape = [hidden.rows(), hidden.columns()];
    let gate = RowPtrs::from_matrix("gate", &gate, shape)?;
    let inner = RowPtrs::from_matrix("inner", &inner, shape)?;
    let hidden = RowPtrs::from_matrix_mut("hidden", &mut hidden, shape)?;
    for_rows(exec, shape, |rows| {
        gate_rows::<false>(activation, rows, shape[1], gate, inner, hidden)
    });
    Ok(())
}

/// The gradient of [`gate`], in place: `gate` becomes `d_hidden * inner * activation'(gate)` and `inner`
/// becomes `d_hidden * activation(gate)`. All `[rows, columns]`.
///
/// Error: one rounding per product, in addition to the errors of the activation and of its derivative (see
/// [`activation_backward`](crate::train::activation_backward)).
///
/// # Errors
/// Shapes differ, or the elements of a row are not contiguous.
///
/// ```
/// use simdformer_kernels::train::gate_backward;
/// use simdformer_kernels::{Activation, Exec, Isa, Matrix, MatrixMut};
///
/// let (mut gate, mut inner) = ([-1.0, 3.0], [5.0, 7.0]);
/// gate_backward(
///     Exec::serial(Isa::best()),
///     Activation::Relu,
///     MatrixMut::new(&mut gate, 1, 2)?,
///     MatrixMut::new(&mut inner, 1, 2)?,
///     Matrix::new(&[2.0, 2.0], 1, 2)?,
/// )?;
/// assert_eq!((gate, inner), ([0.0, 14.0], [0.0, 6.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn gate_backward(
    exec: Exec<'_>,
    activation: Activation,
    mut gate: MatrixMut<'_>,
    mut inner: MatrixMut<'_>,
    d_hidden: Matrix<'_>,
) -> Result<(), Error> {
    let shape = [gate.rows(), gate.columns()];
    let gate = RowPtrs::from_matrix_mut("gate", &mut gate, shape)?;
    let inner = RowPtrs::from_matrix_mut("inner", &mut inner, shape)?;
    let hidden = RowPtrs::from_matrix("d_hidden", &d_hidden, shape)?;
    for_rows(exec, shape, |rows| {
        gate_rows::<true>(activation, rows, shape[1], gate, inner, hidden)
    });
    Ok(())
}
