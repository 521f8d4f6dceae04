//! The gradients of a linear layer `Y = X W^T + b`, with `W` stored as `[outputs, inputs]`; each is a sum.
//!
//! Each function also returns the sum of the magnitudes, to which rounding errors are relative.

use super::gemm::check_results;
use crate::error::{Error, Expected};
use crate::matrix::Matrix;

/// `dW[n, m] = before[n, m] + sum_k dY[k, n] X[k, m]` for `d_y` `[rows, outputs]` and `x` `[rows, inputs]`, into
/// `out`, `[outputs, inputs]`, dense. `before`, `[outputs, inputs]`, is the previous gradient.
///
/// `magnitude`, `[outputs, inputs]`, gets `|before[n, m]| + sum_k |dY[k, n]| |X[k, m]|`.
///
/// # Errors
/// As [`crate::train::weight_gradient`], or the length of `out` or `magnitude` is not `outputs * inputs`.
pub fn weight_gradient(
    d_y: Matrix<'_>,
    x: Matrix<'_>,
    before: Option<Matrix<'_>>,
    out: &mut [f64],
    magnitude: &mut [f64],
) -> Result<(), Error> {
    let (rows, outputs, inputs) = (d_y.rows(), d_y.columns(), x.columns());
    Error::check_size("rows", "x", Expected::Exactly(rows), x.rows())?;
    if let Some(before) = before {
        before.check_shape("before", [outputs, inputs])?;
    }
    check_results([outputs, inputs], out, magnitude)?;
    if out.is_empty() {
        return Ok(());
    }
    for n in 0..outputs {
        for m in 0..inputs {
            let start = before.map_or(0.0, |before| f64::from(before.at(n, m)));
            let (mut sum, mut absolute) = (start, start.abs());
            for k in 0..rows {
                let product = f64::from(d_y.at(k, n)) * f64::from(x.at(k, m));
                sum += product;
                absolute += product.abs();
            }
            (out[n * inputs + m], magnitude[n * inputs + m]) = (sum, absolute);
        }
    }
    Ok(())
}

/// `db[n] = before[n] + sum_k dY[k, n]` for `d_y` `[rows, outputs]`, into `out`, `[outputs]`.
///
/// `magnitude`, `[outputs]`, gets `|before[n]| + sum_k |dY[k, n]|`.
///
/// # Errors
/// The length of `before`, `out` or `magnitude` is not `outputs`.
pub fn bias_gradient(
    d_y: Matrix<'_>,
    before: Option<&[f32]>,
    out: &mut [f64],
    magnitude: &mut [f64],
) -> Result<(), Error> {
    let (rows, outputs) = (d_y.rows(), d_y.columns());
    if let Some(before) = before {
        Error::check_len("before", outputs, before)?;
    }
    check_results([outputs, 1], out, magnitude)?;
    for n in 0..outputs {
        let start = before.map_or(0.0, |before| f64::from(before[n]));
        let (mut sum, mut absolute) = (start, start.abs());
        for k in 0..rows {
            sum += f64::from(d_y.at(k, n));
            absolute += f64::from(d_y.at(k, n)).abs();
        }
        (out[n], magnitude[n]) = (sum, absolute);
    }
    Ok(())
}
