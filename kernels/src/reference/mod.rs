//! Reference implementations of every kernel, written for readability: one element at a time, in f64, directly from
//! the formula. The tests compare the kernels with these functions, and they document exactly what a kernel computes.
//! Inputs are f32, as in the kernels, and results are f64.

#[cfg(feature = "train")]
pub mod activation_derivative;
pub mod attention;
#[cfg(feature = "train")]
pub mod attention_backward;
pub mod dtype;
pub mod gemm;
#[cfg(feature = "train")]
pub mod gemm_gradient;
pub mod gemm_int8;
#[cfg(feature = "train")]
pub mod loss;
pub mod norm;
#[cfg(feature = "train")]
pub mod optimizer;

// ---- Activations ----

use crate::activation::Activation;
use crate::position::PositionEncoding;
use crate::softmax::FullyMasked;

/// The activation of one number.
pub fn activation(activation: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| {
        if x < 0.0 { libm::exp(x) / (1.0 + libm::exp(x)) } else { 1.0 / (1.0 + libm::exp(-x)) }
    };
    // The limit at negative infinity is 0, but the formula would give infinity times 0.
    let times = |factor: f64| if factor == 0.0 { 0.0 } else { x * factor };
    match activation {
        Activation::Identity => x,
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        // (1 + erf z) / 2 = erfc(-z) / 2, without the cancellation.
        Activation::Gelu => times(0.5 * libm::erfc(-x * core::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            let u = libm::sqrt(2.0 / core::f64::consts::PI) * (x + 0.044715 * x * x * x);
            // (1 + tanh u) / 2 = sigmoid(2 u), without the cancellation.
            times(sigmoid(2.0 * u))
        }
        Activation::Silu => times(sigmoid(x)),
        Activation::Tanh => libm::tanh(x),
        Activation::Sigmoid => sigmoid(x),
    }
}

// ---- Softmax ----

/// ln(sum of e^x) over a row; negative infinity for an empty row.
pub fn log_sum_exp(row: &[f32]) -> f64 {
    let max =
        row.iter().fold(f64::NEG_INFINITY, |m, &x| if f64::from(x) > m { x.into() } else { m });
    let shift = if max == f64::NEG_INFINITY { 0.0 } else { max };
    let sum: f64 = row.iter().map(|&x| libm::exp(f64::from(x) - shift)).sum();
    shift + libm::log(sum)
}

/// Element `column` of the log-softmax of a row whose first `length` columns are valid.
///
/// # Panics
/// If `length` is more than the number of columns.
pub fn log_softmax(row: &[f32], length: usize, fully_masked: FullyMasked, column: usize) -> f64 {
    let total = log_sum_exp(&row[..length]);
    if total == f64::NEG_INFINITY {
        match fully_masked {
            FullyMasked::Zeros => f64::NEG_INFINITY,
            FullyMasked::Uniform => -libm::log(row.len() as f64),
        }
    } else if column >= length {
        f64::NEG_INFINITY
    } else {
        f64::from(row[column]) - total
    }
}

/// Element `column` of the softmax of a row whose first `length` columns are valid.
///
/// # Panics
/// As [`log_softmax`].
pub fn softmax(row: &[f32], length: usize, fully_masked: FullyMasked, column: usize) -> f64 {
    libm::exp(log_softmax(row, length, fully_masked, column))
}

// ---- Embedding and positions ----

/// Column `column` of the encoding of `position` in `d` columns; for [`PositionEncoding::Learned`] the element of the
/// learned table.
///
/// # Panics
/// If the learned table has no such row or column, or if the position plus the offset overflows.
pub fn position(encoding: PositionEncoding<'_>, position: usize, column: usize, d: usize) -> f64 {
    let half = d / 2;
    let angle = |p: usize, exponent: f64| p as f64 / libm::pow(10000.0, exponent);
    match encoding {
        PositionEncoding::HalfSplit => {
            let sines = d - half;
            if column < sines {
                libm::sin(angle(position, 2.0 * column as f64 / d as f64))
            } else {
                libm::cos(angle(position, 2.0 * (column - sines) as f64 / d as f64))
            }
        }
        PositionEncoding::HalfSplitClosed { offset } => {
            let exponent = |k: usize| k as f64 / (half as f64 - 1.0);
            if column < half {
                libm::sin(angle(position + offset, exponent(column)))
            } else if column < 2 * half {
                libm::cos(angle(position + offset, exponent(column - half)))
            } else {
                0.0
            }
        }
        PositionEncoding::HalfSplitSingle { offset } => {
            let step = -(libm::log(10000.0) / (half as f64 - 1.0)) as f32;
            let angle = |k: usize| {
                let frequency = libm::exp(f64::from(k as f32 * step)) as f32;
                f64::from((position + offset) as f32 * frequency)
            };
            if column < half {
                libm::sin(angle(column))
            } else if column < 2 * half {
                libm::cos(angle(column - half))
            } else {
                0.0
            }
        }
        PositionEncoding::Interleaved => {
            let k = column / 2;
            let angle = angle(position, 2.0 * k as f64 / d as f64);
            if column.is_multiple_of(2) { libm::sin(angle) } else { libm::cos(angle) }
        }
        PositionEncoding::Learned { table, offset } => table.at(position + offset, column).into(),
    }
}

/// One element of an embedding: the element of the table, scaled, plus that of the position.
pub fn embedding(element: f32, scale: f32, position: f32) -> f64 {
    f64::from(element) * f64::from(scale) + f64::from(position)
}

// ---- Selection ----

/// The index of the entry with rank `rank` (0 is the best): larger values first, then lower
/// indices; NaN after every number.
pub fn rank(row: &[f32], rank: usize) -> Option<usize> {
    (0..row.len()).find(|&i| {
        let ahead = |&j: &usize| {
            if row[i].is_nan() {
                !row[j].is_nan() || j < i
            } else {
                row[j] > row[i] || (row[j] == row[i] && j < i)
            }
        };
        (0..row.len()).filter(ahead).count() == rank
    })
}
