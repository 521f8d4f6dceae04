//! The product with int8 weights, one element at a time. Unlike the other oracles it computes in f32, with the same
//! operations as the kernels, so results are equal, not only close.

use crate::error::{Error, Expected};
use crate::gemm::{Epilogue, PostOp, Quantization};
use crate::matrix::Matrix;

/// The quantization of a row or a column to integers of at most `levels`, and its scale.
#[derive(Clone, Copy, Debug)]
pub struct Rounded {
    /// The value of the integer 1: NaN if an element is not finite, zero if all elements are smaller than 1e-30.
    pub scale: f32,
    /// The factor from elements to integers; zero if all integers are zero.
    pub inverse: f32,
}

impl Rounded {
    /// The quantization of all `elements`.
    pub fn new(elements: impl Iterator<Item = f32>, levels: i32) -> Self {
        let mut largest = 0.0f32;
        for x in elements {
            if !x.is_finite() {
                return Self { scale: f32::NAN, inverse: 0.0 };
            }
            if x.abs() > largest {
                largest = x.abs();
            }
        }
        if largest < 1e-30 {
            return Self { scale: 0.0, inverse: 0.0 };
        }
        Self { scale: largest / levels as f32, inverse: levels as f32 / largest }
    }

    /// The integer of one element.
    pub fn integer(self, x: f32) -> i32 {
        if self.inverse == 0.0 { 0 } else { libm::rintf(x * self.inverse) as i32 }
    }
}

/// The largest integer of quantized rows of length `depth`. Columns are quantized to 127.
pub fn levels(precision: Quantization, depth: usize) -> i32 {
    match precision {
        Quantization::W8A8 => 127,
        Quantization::W8A16 if depth == 0 => 32639,
        Quantization::W8A16 => (i64::from(i32::MAX) / (127 * depth as i64)).min(32639) as i32,
    }
}

/// `out[m, n] = residual[m, n] + (scale * ((f32(S) * column scale) * row scale) + bias[n])`, in f32, where `S` is the
/// sum of the products of the integers of row `m` of `a` and column `n` of `weight`. Only the activations
/// [`Identity`](crate::Activation::Identity) and [`Relu`](crate::Activation::Relu) are supported, because they have
/// the same bits everywhere.
///
/// `a` is `[rows, depth]`, `weight` `[depth, columns]`, and `out` `[rows, columns]`, dense. `before` is the content of
/// the output before the call, which only [`PostOp::AddOutput`] and [`PostOp::MultiplyOutput`] read.
///
/// # Errors
/// As [`crate::gemm_int8`], or the length of `out` is not `rows * columns`.
pub fn gemm_int8(
    a: Matrix<'_>,
    weight: Matrix<'_>,
    precision: Quantization,
    epilogue: &Epilogue<'_>,
    before: Option<Matrix<'_>>,
    out: &mut [f32],
) -> Result<(), Error> {
    let (rows, depth, columns) = (a.rows(), weight.rows(), weight.columns());
    Error::check_size("columns", "a", Expected::Exactly(depth), a.columns())?;
    let len = rows.checked_mul(columns).ok_or(Error::TooLarge { operand: "out" })?;
    Error::check_len("out", len, out)?;
    if out.is_empty() {
        return Ok(());
    }
    for n in 0..columns {
        let column = Rounded::new((0..depth).map(|k| weight.at(k, n)), 127);
        for m in 0..rows {
            let row = Rounded::new((0..depth).map(|k| a.at(m, k)), levels(precision, depth));
            let sum: i64 = (0..depth)
                .map(|k| {
                    i64::from(row.integer(a.at(m, k))) * i64::from(column.integer(weight.at(k, n)))
                })
                .sum();
            // The sum fits 32 bits.
            let sum = sum as i32 as f32;
            let mut y = (sum * column.scale) * row.scale;
            if epilogue.scale != 1.0 {
                y *= epilogue.scale;
            }
            if let Some(bias) = epilogue.bias {
                y += bias[n];
            }
            if epilogue.activation == crate::Activation::Relu && y < 0.0 {
                y = 0.0;
            }
            let previous = before.map_or(0.0, |before| before.at(m, n));
            out[m * columns + n] = match epilogue.post_op {
                PostOp::AddOutput => previous + y,
                PostOp::MultiplyOutput => previous * y,
                PostOp::Add(residual) => residual.at(m, n) + y,
                _ => y,
            };
        }
    }
    Ok(())
}
