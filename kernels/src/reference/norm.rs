//! The norms in f64, and their gradients.

/// The kind of norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Layer normalization.
    Layer,
    /// Root-mean-square normalization.
    Rms,
}

/// The mean that is subtracted from a row, and one over the divisor, or 0 if the divisor is 0.
pub fn center_and_scale(norm: Norm, x: &[f64], eps: f64) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = match norm {
        Norm::Layer => x.iter().sum::<f64>() / n,
        Norm::Rms => 0.0,
    };
    let square = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n + eps;
    (mean, if square == 0.0 { 0.0 } else { 1.0 / libm::sqrt(square) })
}

/// Element `column` of a normalized row, before weight and bias.
///
/// # Panics
/// If there is no such column.
pub fn standard(norm: Norm, x: &[f64], eps: f64, column: usize) -> f64 {
    let (mean, scale) = center_and_scale(norm, x, eps);
    (x[column] - mean) * scale
}

/// Element `column` of the gradient of a row, from the gradient of the standard scores, `g = weight * d_out`.
///
/// # Panics
/// If there is no such column, or if the lengths differ.
pub fn backward(norm: Norm, x: &[f64], eps: f64, g: &[f64], column: usize) -> f64 {
    let (mean, scale) = center_and_scale(norm, x, eps);
    let z = |i: usize| (x[i] - mean) * scale;
    formula(norm, x.len(), &z, scale, &|i| g[i], column)
}

/// As [`backward`], from the standard scores and one over the divisor.
///
/// # Panics
/// If there is no such column, or if the lengths differ.
pub fn backward_of_standard(
    norm: Norm,
    standard: &[f32],
    scale: f32,
    g: &[f64],
    column: usize,
) -> f64 {
    formula(norm, g.len(), &|i| standard[i].into(), scale.into(), &|i| g[i], column)
}

fn formula(
    norm: Norm,
    n: usize,
    z: &dyn Fn(usize) -> f64,
    scale: f64,
    g: &dyn Fn(usize) -> f64,
    column: usize,
) -> f64 {
    let mean = |f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
    let along = z(column) * mean(&|i| g(i) * z(i));
    match norm {
        Norm::Layer => scale * (g(column) - mean(g) - along),
        Norm::Rms => scale * (g(column) - along),
    }
}
