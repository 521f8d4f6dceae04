//! Activation functions.
use crate::lanes::Lanes;

/// An activation function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// `x`
    #[default]
    Identity,
    /// `max(x, 0)`
    Relu,
}

#[inline(always)]
pub(crate) fn apply_lanes<S: Lanes>(s: S, activation: Activation, x: S::F32) -> S::F32 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => s.max(x, s.splat(0.0)),
    }
}
