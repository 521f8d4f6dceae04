//! The derivatives of the activations.

use crate::activation::Activation;
use core::f64::consts::{FRAC_1_SQRT_2, PI};

/// The derivative of an activation at `x`: 0 at 0 for ReLU, and the limits at infinities.
pub fn derivative(activation: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| super::activation(Activation::Sigmoid, x);
    // `x * factor`, or the limit 0 where the factor underflows to 0.
    let times = |x: f64, factor: f64| if factor == 0.0 { 0.0 } else { x * factor };
    match activation {
        Activation::Identity => 1.0,
        Activation::Relu => match x {
            x if x > 0.0 => 1.0,
            x if x <= 0.0 => 0.0,
            nan => nan,
        },
        Activation::Gelu => {
            let density = libm::exp(-0.5 * x * x) / libm::sqrt(2.0 * PI);
            0.5 * libm::erfc(-x * FRAC_1_SQRT_2) + times(x, density)
        }
        Activation::GeluTanh => {
            // x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
            let root = libm::sqrt(2.0 / PI);
            let u = root * (x + 0.044715 * x * x * x);
            let bell = sigmoid(2.0 * u) * sigmoid(-2.0 * u);
            sigmoid(2.0 * u) + times(2.0 * root * x * (1.0 + 3.0 * 0.044715 * x * x), bell)
        }
        Activation::Silu => sigmoid(x) + times(x, sigmoid(x) * sigmoid(-x)),
        // 1 - tanh^2 without the cancellation.
        Activation::Tanh => 4.0 * sigmoid(2.0 * x) * sigmoid(-2.0 * x),
        Activation::Sigmoid => sigmoid(x) * sigmoid(-x),
    }
}
