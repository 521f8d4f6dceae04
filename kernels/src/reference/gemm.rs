//! The matrix product and its epilogue, three loops and one line.

use crate::gemm::{Epilogue, GemmError, Residual};
use crate::matrix::Matrix;

/// `out[m, n] = residual[m, n] + activation(scale * sum_k A[m, k] W[k, n] + bias[n])`, or that times what
/// the output held under [`Residual::Gate`], for `a`
/// `[rows, depth]` and `weight` `[depth, columns]`, into `out`, `[rows, columns]` end to end.
///
/// `before` is what the output held before the call; only [`Residual::Output`] and [`Residual::Gate`] read
/// it.
///
/// `magnitude`, `[rows, columns]`, receives
/// `|scale| sum_k |A[m, k]| |W[k, n]| + |bias[n]| + |residual[m, n]|`, what rounding errors are
/// relative to: an f32 kernel with one accumulator makes at most `depth + 3` roundings, each of a
/// number that is at most this large, so it stays within `(depth + 3) 2^-24 magnitude` but for
/// second-order terms. Under a gate it is the gate's magnitude times that of what it multiplies, and likewise
/// under a derivative.
///
/// # Errors
/// As [`crate::gemm`]; an `out` or `magnitude` of another length than `rows * columns` is
/// [`GemmError::PackedLength`].
pub fn gemm(
    a: Matrix<'_>,
    weight: Matrix<'_>,
    epilogue: &Epilogue<'_>,
    before: Option<Matrix<'_>>,
    out: &mut [f64],
    magnitude: &mut [f64],
) -> Result<(), GemmError> {
    let (rows, depth, columns) = (a.rows(), weight.rows(), weight.columns());
    if a.columns() != depth {
        return Err(GemmError::Depth { expected: depth, found: a.columns() });
    }
    if let Some(bias) = epilogue.bias
        && bias.len() != columns
    {
        return Err(GemmError::Bias { expected: columns, found: bias.len() });
    }
    let residual = match epilogue.residual {
        Residual::None => None,
        Residual::Output | Residual::Gate => before,
        Residual::Matrix(residual) => Some(residual),
        #[cfg(feature = "train")]
        Residual::Derivative { pre, .. } => Some(pre),
    };
    if !matches!(epilogue.residual, Residual::None) {
        let found = residual.map_or((0, 0), |r| (r.rows(), r.columns()));
        if found != (rows, columns) {
            return Err(GemmError::ResidualShape { expected: (rows, columns), found });
        }
    }
    let expected = rows.checked_mul(columns).ok_or(GemmError::TooLarge)?;
    for found in [out.len(), magnitude.len()] {
        if found != expected {
            return Err(GemmError::PackedLength { expected, found });
        }
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
            let added = residual.map_or(0.0, |residual| f64::from(residual.at(m, n)));
            let activated = super::activation(epilogue.activation, scale * sum + bias);
            let product = scale.abs() * absolute + bias.abs();
            let at = m * columns + n;
            (out[at], magnitude[at]) = match epilogue.residual {
                Residual::Gate => (added * activated, added.abs() * product),
                #[cfg(feature = "train")]
                Residual::Derivative { of, .. } => {
                    let slope = super::activation_derivative::slope(of, added);
                    (slope * activated, slope.abs() * product)
                }
                _ => (added + activated, added.abs() + product),
            };
        }
    }
    Ok(())
}
