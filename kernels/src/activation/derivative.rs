//! The derivatives of the activations, multiplied by the gradient of the output.
//!
//! Bounds are absolute errors of the derivative against the exact one over every f32, measured on every instruction
//! set. All derivatives except that of ReLU use `e = exp(-|..|)`, which never overflows, in formulas without
//! cancellation for large arguments. If one factor grows to infinity where the other is already 0, the first one is
//! clamped.

use super::gelu::distribution;
use super::{Activation, with_activation};
use crate::math;
use crate::rows::{UNROLL, map_row};
use crate::simd::SimdF32;

impl Activation {
    /// `d * f'(x)` of a vector, where `f` is [`Activation::map`].
    #[inline(always)]
    pub(crate) fn times_derivative<S: SimdF32>(self, s: S, x: S::F32, d: S::F32) -> S::F32 {
        match self {
            Self::Identity => d,
            // `d` for `x > 0`; 0 for `x <= 0`, for every `d`.
            Self::Relu => {
                let zero = s.splat(0.0);
                // If one argument is NaN, `max` returns the second.
                s.select(s.less(zero, x), d, s.abs(s.max(zero, x)))
            }
            Self::Gelu => {
                const ONE_OVER_SQRT_TAU: f32 = 0.398_942_3;
                let below = distribution(s, x);
                // The exponential is exactly 0 for |x| >= 13.3.
                let density = math::exp_nonpositive(s, s.mul(s.mul(x, x), s.splat(-0.5)));
                let along = s.mul(clamped(s, x, 14.0), s.splat(ONE_OVER_SQRT_TAU));
                s.mul(d, s.mul_add(along, density, below))
            }
            Self::GeluTanh => {
                // As in the function itself: u = x (c + 0.044715 c x^2), c = 2 sqrt(2/pi).
                const C: f32 = 1.595_769_2;
                let factor = s.mul_add(s.mul(x, x), s.splat(C * 0.044_715), s.splat(C));
                // The exponential is exactly 0 for |x| >= 10.1. x u' = x c + 3 x 0.044715 c x^2.
                let x_clamped = clamped(s, x, 12.0);
                let square = s.mul(x_clamped, x_clamped);
                let along = s.mul_add(square, s.splat(C * 3.0 * 0.044_715), s.splat(C));
                s.mul(d, of_gated(s, s.mul(x, factor), s.mul(x_clamped, along)))
            }
            Self::Silu => {
                // The exponential is exactly 0 for |x| >= 87.4.
                s.mul(d, of_gated(s, x, clamped(s, x, 90.0)))
            }
            // `1 - tanh^2` is four times the derivative of the sigmoid at `2 x`.
            Self::Tanh => {
                let e = math::exp_nonpositive(s, s.mul(s.abs(x), s.splat(-2.0)));
                let below = s.add(s.splat(1.0), e);
                s.mul(d, s.div(s.mul(s.splat(4.0), e), s.mul(below, below)))
            }
            Self::Sigmoid => {
                let e = math::exp_nonpositive(s, s.sub(s.splat(0.0), s.abs(x)));
                let below = s.add(s.splat(1.0), e);
                s.mul(d, s.div(e, s.mul(below, below)))
            }
        }
    }
}

/// The derivative of `x sigmoid(u)`: `sigmoid(u) + x_du sigmoid'(u)`, where `x_du` is `x` times the derivative of `u`
/// and must be finite.
#[inline(always)]
fn of_gated<S: SimdF32>(s: S, u: S::F32, x_du: S::F32) -> S::F32 {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let e = math::exp_nonpositive(s, s.sub(zero, s.abs(u)));
    let below = s.add(one, e);
    let top = s.select(s.less(u, zero), e, one);
    // (top (1 + e) + x_du e) / (1 + e)^2
    s.div(s.mul_add(x_du, e, s.mul(top, below)), s.mul(below, below))
}

/// `x` clamped to `-bound..=bound`; NaN gives NaN.
#[inline(always)]
fn clamped<S: SimdF32>(s: S, x: S::F32, bound: f32) -> S::F32 {
    s.max(s.splat(-bound), s.min(s.splat(bound), x))
}

/// `d = d * activation'(x)` for `len` floats, with the `match` outside the loop.
///
/// # Safety
/// `x` is valid for reads and `d` for reads and writes of `len` floats; they are disjoint.
#[inline(always)]
pub(crate) unsafe fn times_derivative_row<S: SimdF32>(
    s: S,
    activation: Activation,
    x: *const f32,
    d: *mut f32,
    len: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        with_activation!(activation, F => map_row::<S, 1, UNROLL>(
            s,
            len,
            [d],
            &[],
            #[inline(always)]
            |at| [F.times_derivative(s, at.load(s, x), at.load(s, d))],
        ));
    }
}
