//! The matrix product and its epilogue, as three loops.

use crate::error::{Error, Expected};
use crate::gemm::{Epilogue, PostOp};
use crate::matrix::Matrix;

/// `out[m, n] = residual[m, n] + activation(scale * sum_k A[m, k] W[k, n] + bias[n])`, or with
/// [`PostOp::MultiplyOutput`] the activation times the previous content of the output. `a` is `[rows, depth]`,
/// `weight` `[depth, columns]`, and `out` `[rows, columns]`, dense.
///
/// `before` is the content of the output before the call; only [`PostOp::AddOutput`] and [`PostOp::MultiplyOutput`]
/// read it.
///
/// `magnitude`, `[rows, columns]`, gets `|scale| sum_k |A[m, k]| |W[k, n]| + |bias[n]| + |residual[m, n]|`, to which
/// rounding errors are relative: an f32 kernel with one accumulator makes at most `depth + 3` roundings, each of a
/// number of at most this magnitude, so its error is at most `(depth + 3) 2^-24 magnitude`, except for second-order
/// terms. With a gate it is the gate's magnitude times that of the other factor, and likewise with a derivative.
///
/// # Errors
/// As [`crate::gemm`], or the length of `out` or `magnitude` is not `rows * columns`.
pub fn gemm(
    a: Matrix<'_>,
    weight: Matrix<'_>,
    epilogue: &Epilogue<'_>,
    before: Option<Matrix<'_>>,
    out: &mut [f64],
    magnitude: &mut [f64],
) -> Result<(), Error> {
    let (rows, depth, columns) = (a.rows(), weight.rows(), weight.columns());
    Error::check_size("columns", "a", Expected::Exactly(depth), a.columns())?;
    if let Some(bias) = epilogue.bias {
        Error::check_len("bias", columns, bias)?;
    }
    let other = match epilogue.post_op {
        PostOp::None => None,
        PostOp::AddOutput | PostOp::MultiplyOutput => before,
        PostOp::Add(other) => Some(other),
        #[cfg(feature = "train")]
        PostOp::ActivationBackward { pre, .. } => Some(pre),
    };
    if !matches!(epilogue.post_op, PostOp::None) {
        let (operand, expected) = ("post_op", [rows, columns]);
        let missing = Error::Shape { operand, expected, found: [0, 0] };
        other.ok_or(missing)?.check_shape(operand, expected)?;
    }
    check_results([rows, columns], out, magnitude)?;
    if out.is_empty() {
        return Ok(());
    }

    for m in 0..rows {
        for n in 0..columns {
            let (mut sum, mut absolute) = (0.0, 0.0);
            for k in 0..depth {
                let product = f64::from(a.at(m, k)) * f64::from(weight.at(k, n));
                sum += product;
                absolute += product.abs();
            }
            let scale = f64::from(epilogue.scale);
            let bias = epilogue.bias.map_or(0.0, |bias| f64::from(bias[n]));
            let added = other.map_or(0.0, |other| f64::from(other.at(m, n)));
            let activated = super::activation(epilogue.activation, scale * sum + bias);
            let product = scale.abs() * absolute + bias.abs();
            let at = m * columns + n;
            (out[at], magnitude[at]) = match epilogue.post_op {
                PostOp::MultiplyOutput => (added * activated, added.abs() * product),
                #[cfg(feature = "train")]
                PostOp::ActivationBackward { activation, .. } => {
                    let derivative = super::activation_derivative::derivative(activation, added);
                    (derivative * activated, derivative.abs() * product)
                }
                _ => (added + activated, added.abs() + product),
            };
        }
    }
    Ok(())
}

/// Checks that both results have the elements of `[rows, columns]`.
pub(super) fn check_results(
    [rows, columns]: [usize; 2],
    out: &[f64],
    magnitude: &[f64],
) -> Result<(), Error> {
    let len = rows.checked_mul(columns).ok_or(Error::TooLarge { operand: "out" })?;
    Error::check_len("out", len, out)?;
    Error::check_len("magnitude", len, magnitude)
}
