//! An update by Adam, and the gradient of an embedding lookup.

use crate::matrix::Matrix;
use crate::optimizer::Adam;

/// A parameter and its two moments, in that order, after an update by PyTorch's AdamW formula.
pub fn adam(settings: &Adam, before: [f64; 3], gradient: f64) -> [f64; 3] {
    let Adam { rate, beta1, beta2, epsilon, weight_decay, step, clip } = *settings;
    let [parameter, first, second] = before;
    let gradient = gradient * clip;
    let first = beta1 * first + (1.0 - beta1) * gradient;
    let second = beta2 * second + (1.0 - beta2) * gradient * gradient;
    let [correction1, correction2] = [beta1, beta2].map(|beta| 1.0 - libm::pow(beta, step as f64));
    let root = libm::sqrt(second) / libm::sqrt(correction2) + epsilon;
    let decayed = parameter * (1.0 - rate * weight_decay);
    [decayed - rate / correction1 * first / root, first, second]
}

/// The gradient of element `(row, column)` of a table from lookups of `ids` with the gradients `d_x` `[tokens,
/// columns]`, and the sum of the magnitudes of its summands.
///
/// # Panics
/// If `d_x` has fewer rows than there are ids, or no such column.
pub fn embedding_gradient(
    ids: &[u32],
    d_x: Matrix<'_>,
    scale: f32,
    skip: Option<u32>,
    row: u32,
    column: usize,
) -> [f64; 2] {
    let (mut sum, mut absolute) = (0.0, 0.0);
    for (token, &id) in ids.iter().enumerate() {
        if id == row && Some(id) != skip {
            let part = f64::from(scale) * f64::from(d_x.at(token, column));
            sum += part;
            absolute += part.abs();
        }
    }
    [sum, absolute]
}
