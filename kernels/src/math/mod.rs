//! Elementary functions on vectors: exp, sigmoid and tanh. All instruction sets use the same source.
//!
//! The coefficients come from `derive/coefficients.py`. Error bounds are in units in the last place (ULP) of the exact
//! result. The tests check them on every instruction set: by day for some of the f32 in the range in which the
//! function is not linear or constant, with `bounds_hold_for_every_f32`, an ignored test, for all. No result triggers the CPU's slow path for subnormal numbers: results below
//! 2^-125.9375, which is a little above the smallest normal f32, are replaced by zero before they are computed.

use crate::isa::Isa;
use crate::rows::{UNROLL, map_slice};
pub(crate) use crate::simd::EXP_ZERO;
use crate::simd::{SimdF32, simd_op};
use core::f32::consts::LN_2;

/// 1.5 * 2^20 + 126. Adding it shifts the fraction after three binary digits out of the mantissa: round to the nearest
/// eighth, ties to even. The lowest 12 bits of the sum are the number of eighths plus 1008.
const MAGIC: f32 = 1_572_990.0;

/// By how much ln 2 as f32 is too large. Times an exponent of 126 it changes e^x by up to four units in the last place.
const LN_2_EXCESS: f32 = (LN_2 as f64 - core::f64::consts::LN_2) as f32;

/// The numbers from which [`SimdF32::exp_result`] makes e^x: the sum that has the eighths of `x log2 e`, and e^f - 1 of
/// the rest.
///
/// e^x is `2^(k / 8) e^f` with the `k` eighths that are nearest to `x log2 e`. A table has the powers of the lowest
/// three bits of `k`, the others are added to the exponent, and `f` is so small, at most ln(2) / 16, that a polynomial
/// of degree three is enough. The difference of `x` and the eighths times ln 2 as f32 is exact. The rest of ln 2 is
/// added to it.
#[inline(always)]
fn exp_parts<S: SimdF32>(s: S, x: S::F32) -> (S::F32, S::F32) {
    let magic = s.splat(MAGIC);
    let t = s.mul_add(x, s.splat(core::f32::consts::LOG2_E), magic);
    let eighths = s.sub(t, magic);
    let f = s.mul_add(eighths, s.splat(-LN_2), x);
    let f = s.mul_add(eighths, s.splat(LN_2_EXCESS), f);
    let q = s.mul_add(s.splat(0.166_668_58), f, s.splat(0.500_064_55));
    (t, s.mul(f, s.mul_add(q, f, s.splat(1.0))))
}

/// e^x for every x: at most 1.2 ULP off; 0 up to -87.29323; infinity above 88.72284; NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    // `min` returns its second argument for NaN.
    let x = s.exp_argument(s.min(s.splat(88.9), x));
    let (t, p) = exp_parts(s, x);
    // For positive numbers half of the result is computed, which is always finite.
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let halved = s.select(s.less(zero, x), one, zero);
    let y = s.exp_result(x, s.sub(t, halved), p);
    s.mul_add(y, halved, y)
}

/// e^x for `x <= 0`, as softmax needs it: at most 1.2 ULP off; exactly 0 up to -87.29323, so for
/// `f32::MIN` and negative infinity too; exactly 1 for 0; NaN for NaN. Also right for `x` up to 88.
#[inline(always)]
pub(crate) fn exp_nonpositive<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    exp_bounded(s, s.exp_argument(x))
}

/// [`exp_nonpositive`] of numbers that are not below [`EXP_ZERO`].
#[inline(always)]
fn exp_bounded<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    let (t, p) = exp_parts(s, x);
    s.exp_result(x, t, p)
}

/// The value that is subtracted from numbers with this maximum before [`exp_nonpositive`]: the maximum itself, except
/// for negative infinity, because negative infinity minus itself is NaN.
#[inline(always)]
pub(crate) fn exp_shift(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// As [`exp_nonpositive`], and exactly 0 below `lowest`.
#[cfg(feature = "train")]
#[inline(always)]
pub(crate) fn exp_from<S: SimdF32>(s: S, x: S::F32, lowest: S::F32) -> S::F32 {
    s.select(s.not_less(x, lowest), exp_nonpositive(s, x), s.splat(0.0))
}

/// `-|x|`, at least [`EXP_ZERO`]; NaN for NaN.
#[inline(always)]
fn minus_magnitude<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    s.max(s.splat(EXP_ZERO), s.copy_sign(x, s.splat(-0.0)))
}

/// `1 / (1 + e^-x)`: exactly 0 up to -87.29323 and exactly 1 above 87.29323, at most 3 ULP off between; NaN for
/// NaN.
#[inline(always)]
pub(crate) fn sigmoid<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    let one = s.splat(1.0);
    // exp of the negative magnitude never overflows: e^x / (1 + e^x) or 1 / (1 + e^-x).
    let e = exp_bounded(s, minus_magnitude(s, x));
    let top = s.select(s.less(x, s.splat(0.0)), e, one);
    s.div(top, s.add(one, e))
}

/// `x / (1 + e^-x)`: at most 4 ULP off, and 0 up to -87.29323; `x` from 87.29323 on; NaN for NaN.
#[inline(always)]
pub(crate) fn silu<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    // x sigmoid(x) = max(x, 0) - |x| sigmoid(-|x|)
    let minus = minus_magnitude(s, x);
    let e = exp_bounded(s, minus);
    let below = s.div(s.mul(minus, e), s.add(s.splat(1.0), e));
    // If one argument of `max` is NaN, the result is the second.
    s.add(s.max(s.splat(0.0), x), below)
}

/// The hyperbolic tangent: at most 5 ULP off; exactly 1 or -1 in the tails; NaN for NaN.
#[inline(always)]
pub(crate) fn tanh<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    let one = s.splat(1.0);
    let magnitude = s.abs(x);
    let e = exp_nonpositive(s, s.mul(magnitude, s.splat(-2.0)));
    let far = s.copy_sign(s.div(s.sub(one, e), s.add(one, e)), x);
    // Near zero `1 - e` loses digits to cancellation, so a polynomial is used there.
    let u = s.mul(x, x);
    let p = s.mul_add(s.splat(-0.051_331_07), u, s.splat(0.133_231_64));
    let p = s.mul_add(p, u, s.splat(-0.333_332_06));
    let near = s.mul_add(s.mul(p, u), x, x);
    s.select(s.less(magnitude, s.splat(0.25)), near, far)
}

simd_op!(
    fn exp_slice<S: SimdF32>(s: S, x: &mut [f32]) {
        let (start, len) = (x.as_mut_ptr(), x.len());
        // SAFETY: the pointer and length of a slice.
        unsafe {
            map_slice::<S, UNROLL>(
                s,
                start,
                start,
                len,
                #[inline(always)]
                |x| exp(s, x),
            );
        }
    }
);

/// `x = e^x` for each element, for example to convert log-probabilities to probabilities. Error: at most 1.2 units in the
/// last place. The result is 0 up to -87.29323, where it would be subnormal or nearly; infinity above
/// 88.72284; NaN for NaN.
///
/// ```
/// use simdformer_kernels::{Isa, math};
///
/// let mut x = [0.0, f32::NEG_INFINITY, 1.0];
/// math::exp_in_place(Isa::best(), &mut x);
/// assert_eq!(x[..2], [1.0, 0.0]);
/// assert!((x[2] - 2.718_281_8).abs() < 3e-7);
/// ```
pub fn exp_in_place(isa: Isa, x: &mut [f32]) {
    isa.dispatch(exp_slice(x));
}

/// The square root of one number, correctly rounded; NaN below zero.
#[inline(always)]
pub(crate) fn sqrt(x: f32) -> f32 {
    #[cfg(vectors = "x86_64")]
    {
        use core::arch::x86_64::{_mm_cvtss_f32, _mm_set_ss, _mm_sqrt_ss};
        // SAFETY: the target of the whole program has SSE.
        unsafe { _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))) }
    }
    #[cfg(not(vectors = "x86_64"))]
    libm::sqrtf(x)
}

#[cfg(test)]
mod tests;
