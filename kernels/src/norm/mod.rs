//! Normalization of rows, alone or fused with the preceding residual addition. [`Norm`] selects the norm:
//!
//! * [`LayerNorm`] (Ba, Kiros and Hinton 2016), with or without a bias: `y = (x - mean) / sqrt(variance + eps) * weight
//!   + bias`.
//! * [`RmsNorm`] (Zhang and Sennrich 2019, "Root Mean Square Layer Normalization"; called `T5LayerNorm` in T5): `y = x /
//!   sqrt(mean(x^2) + eps) * weight`.
//!
//! Layer normalization uses the corrected two-pass variance (Chan, Golub and LeVeque 1983, "Algorithms for computing
//! the sample variance"): with `d = x - mean'` for an approximate mean, `variance = (sum d^2 - (sum d)^2 / n) / n`,
//! and `sum d / n` corrects the mean as well. The approximate mean is computed from `x - x_0`, so a constant row has
//! `d = 0` everywhere and gives exactly the bias. All passes over a row run while it is in the L1 cache, so each byte
//! of memory is read and written once.
//!
//! If the variance or the mean square of a row is outside the safe range of f32 (entries of 1e30, or tiny ones with
//! `eps` 0), the row is computed again in f64. Only sums `x + residual` that overflow f32 themselves cannot be
//! recovered.

mod parameters;
mod passes;
#[cfg(feature = "train")]
pub(crate) mod train;

pub use parameters::{LayerNorm, Norm, RmsNorm};

use crate::error::Error;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::Exec;
use crate::row_tasks::RowPtrs;
use passes::{InputRows, NormRows, for_row_groups};

/// The input of a norm `N`, `[rows, columns]` like the output `out`, and the sum that is normalized.
#[derive(Debug)]
pub enum NormInput<'a> {
    /// `out = N(x)`.
    Matrix(Matrix<'a>),
    /// `out = N(out)`.
    Output,
    /// `out = N(x + residual)`, with the sum rounded to f32.
    Sum {
        /// The first summand.
        x: Matrix<'a>,
        /// The second summand.
        residual: Matrix<'a>,
    },
    /// `out = N(x + out)`: the end of a post-norm block. The bits are those of [`NormInput::Sum`].
    SumWithOutput {
        /// The first summand; the second is the output.
        x: Matrix<'a>,
    },
    /// `residual += x; out = N(residual)`: the end of one pre-norm block and the start of the next. The bits of `out`
    /// are those of [`NormInput::Sum`].
    AddTo {
        /// The first summand.
        x: Matrix<'a>,
        /// The second summand, which becomes the sum.
        residual: MatrixMut<'a>,
    },
}

/// `out = N(x)` for every row of the input `[rows, columns]`; `out` has the same shape. All forms of [`NormInput`] read
/// and write memory once.
///
/// Error of a layer normalization: let `u = 2^-24`, `z` the exact normalized value before weight and bias, and `k =
/// columns / 64 + 8` the longest chain of additions. Each result is within `u (k (|z| + 2) |weight| + 2 |result|)` of
/// the exact one if the mean is at most 1e5 standard deviations from 0. Rows with infinities or NaN give NaN.
///
/// Error of a root-mean-square normalization: each result is within `u (columns / 128 + 12) |result| + 2^-149 (1 +
/// |weight|)` of the exact one; the second term is for subnormal numbers. NaN in a row makes the whole row NaN. An
/// infinity becomes NaN and makes the other elements 0, as in the formula.
///
/// # Errors
/// Shapes or lengths disagree, `eps` is negative, infinite or NaN, or the elements of a row are not contiguous.
///
/// ```
/// use simdformer_kernels::norm::{LayerNorm, Norm, NormInput, RmsNorm, norm};
/// use simdformer_kernels::{Exec, Isa, Matrix, MatrixMut};
///
/// let exec = Exec::serial(Isa::detect()?);
/// let layer = Norm::Layer(LayerNorm { weight: &[2.0, 2.0], bias: Some(&[0.5, 0.5]), eps: 0.0 });
/// let x = [1.0, 3.0, 7.0, 7.0];
/// let mut y = [0.0; 4];
/// let out = MatrixMut::new(&mut y, 2, 2)?;
/// norm(exec, layer, NormInput::Matrix(Matrix::new(&x, 2, 2)?), out)?;
/// assert_eq!(y, [-1.5, 2.5, 0.5, 0.5]);
///
/// let rms = Norm::Rms(RmsNorm { weight: &[0.5; 4], eps: 0.0 });
/// let mut x = [2.0, -2.0, 2.0, 2.0];
/// norm(exec, rms, NormInput::Output, MatrixMut::new(&mut x, 1, 4)?)?;
/// assert_eq!(x, [0.5, -0.5, 0.5, 0.5]);
///
/// let layer = Norm::Layer(LayerNorm { weight: &[1.0, 1.0], bias: None, eps: 0.0 });
/// let (mut stream, mut normed) = ([1.0, 2.0], [0.0; 2]);
/// let input = NormInput::AddTo {
///     x: Matrix::new(&[4.0, 7.0], 1, 2)?,
///     residual: MatrixMut::new(&mut stream, 1, 2)?,
/// };
/// norm(exec, layer, input, MatrixMut::new(&mut normed, 1, 2)?)?;
/// assert_eq!((stream, normed), ([5.0, 9.0], [-1.0, 1.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn norm(
    exec: Exec<'_>,
    norm: Norm<'_>,
    input: NormInput<'_>,
    mut out: MatrixMut<'_>,
) -> Result<(), Error> {
    let shape @ [_, columns] = [out.rows(), out.columns()];
    let to = RowPtrs::from_matrix_mut("out", &mut out, shape)?;
    let read = |operand, m| RowPtrs::from_matrix(operand, m, shape);
    let mut into;
    let (x, add) = match input {
        NormInput::Matrix(x) => (read("x", &x)?, None),
        NormInput::Output => (to, None),
        NormInput::Sum { x, residual } => {
            (read("x", &x)?, Some([read("residual", &residual)?, to]))
        }
        NormInput::SumWithOutput { x } => (read("x", &x)?, Some([to, to])),
        NormInput::AddTo { x, residual } => {
            let x = read("x", &x)?;
            into = residual;
            let sum = RowPtrs::from_matrix_mut("residual", &mut into, shape)?;
            (x, Some([sum, sum]))
        }
    };
    let parameters = norm.checked(columns)?;
    let groups = NormRows { parameters, input: InputRows { x, add }, out: to };
    // SAFETY: `RowPtrs` and `Norm::checked` checked the shapes.
    unsafe {
        for_row_groups(exec, shape, parameters.centered, groups);
    }
    Ok(())
}
