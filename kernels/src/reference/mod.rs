//! The oracles: what every kernel computes, in f64, in the order of the formula, without a thought
//! for speed. They are written to be read, and the tests hold the kernels to them.
//!
//! Everything here is safe code on the same views that the kernels take; results go into the
//! caller's slices, as f64, so that the oracle's own error is some `2^-29` of what is judged by it.

pub mod attention;
pub mod gemm;

use crate::Activation;

/// `activation(x)`.
pub fn activation(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
    }
}
