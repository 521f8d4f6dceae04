//! Cross-entropy with label smoothing and its gradient, directly from the definition.

use crate::loss::{Smoothing, SmoothingOver};

/// The target probability of column `column` of `columns` for the target `target`.
pub fn wanted(smoothing: Smoothing, columns: usize, target: usize, column: usize) -> f64 {
    let (epsilon, v) = (f64::from(smoothing.epsilon), columns as f64);
    match smoothing.over {
        SmoothingOver::All if column == target => 1.0 - epsilon + epsilon / v,
        SmoothingOver::All => epsilon / v,
        SmoothingOver::Others if column == target => 1.0 - epsilon,
        SmoothingOver::Others => epsilon / (v - 1.0),
    }
}

/// The maximum of a row and ln(sum of e^(z - maximum)).
fn log_sum_exp(logits: &[f64]) -> (f64, f64) {
    let max = logits.iter().fold(f64::NEG_INFINITY, |m, &z| if z > m { z } else { m });
    // The exponential of the largest logit is exactly 1, and the sum of the others may be much smaller.
    let mut first = true;
    let mut others = 0.0;
    for &z in logits {
        if z == max && first {
            first = false;
        } else {
            others += libm::exp(z - max);
        }
    }
    (max, libm::log1p(others))
}

/// `-sum_j q_j ln p_j`, where `p` is the softmax of the row and `q` is [`wanted`]. Columns with a target probability
/// of 0 do not contribute, whatever their logit is.
///
/// # Panics
/// If `target` is not a column.
pub fn cross_entropy(logits: &[f64], target: usize, smoothing: Smoothing) -> f64 {
    assert!(target < logits.len(), "target {target} of {} columns", logits.len());
    let (max, total) = log_sum_exp(logits);
    let mut loss = 0.0;
    for (column, &z) in logits.iter().enumerate() {
        let q = wanted(smoothing, logits.len(), target, column);
        if q > 0.0 {
            loss += q * (total + (max - z));
        }
    }
    loss
}

/// `p_j - q_j` of column `column`: the derivative of [`cross_entropy`] with respect to that logit.
///
/// # Panics
/// If there is no such column.
pub fn cross_entropy_gradient(
    logits: &[f64],
    target: usize,
    smoothing: Smoothing,
    column: usize,
) -> f64 {
    let (max, total) = log_sum_exp(logits);
    let p = libm::exp(logits[column] - max - total);
    p - wanted(smoothing, logits.len(), target, column)
}
