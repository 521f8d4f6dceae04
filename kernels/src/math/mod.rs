//! Elementary functions on vectors: exp, erf, sigmoid and tanh. All instruction sets use the same source.
//!
//! The coefficients come from `derive/coefficients.py`. Error bounds are in units in the last place (ULP) of the exact
//! result. They were measured on every instruction set over every f32 of the range in which the
//! function is not linear or constant: exp is within 0.90, sigmoid within 2.5, tanh within 3, erf within 3.7e-7
//! absolute. No result triggers the CPU's slow path for subnormal numbers: results below the smallest normal f32 are
//! replaced by zero before they are computed.

use crate::isa::Isa;
use crate::rows::map_slice;
use crate::simd::{SimdF32, simd_op};

/// ln(2^-126), rounded towards zero: the exp of smaller values is below the smallest normal f32.
pub(crate) const EXP_LOWEST: f32 = -87.336_54;
/// 1.5 * 2^23. Adding it shifts the fraction out of the mantissa: round to nearest even.
const MAGIC: f32 = 12_582_912.0;
/// ln 2 in two parts. The first part has 15 significant bits, so its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;

/// exp(x) as `p * 2^n` with integral `n` and `p` in about [0.7, 1.42]. Where `x` is not in the range of exp, the pair
/// is unspecified, but NaN gives a NaN `p`.
#[inline(always)]
fn exp_parts<S: SimdF32>(s: S, x: S::F32) -> (S::F32, S::F32) {
    let magic = s.splat(MAGIC);
    let n = s.sub(s.mul_add(x, s.splat(core::f32::consts::LOG2_E), magic), magic);
    let t = s.mul_add(n, s.splat(-LN2_HIGH), x);
    let t = s.mul_add(n, s.splat(-LN2_LOW), t);
    let q = s.mul_add(s.splat(0.001_381_459_9), t, s.splat(0.008_368_717));
    let q = s.mul_add(q, t, s.splat(0.041_668_39));
    let q = s.mul_add(q, t, s.splat(0.166_665_21));
    let q = s.mul_add(q, t, s.splat(0.499_999_94));
    let one = s.splat(1.0);
    // 1 + t + q t^2
    let p = s.mul_add(s.mul_add(q, t, one), t, one);
    (p, n)
}

/// e^x for every x: at most 1 ULP off; 0 below -87.33654, where the result would be subnormal;
/// infinity above 88.72284; NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    // The bounds limit the exponent to 128 and are outside the range at both ends. `min` and `max` return their second
    // argument for NaN.
    let bound = 88.9;
    let (p, n) = exp_parts(s, s.max(s.splat(-bound), s.min(s.splat(bound), x)));
    let most = s.min(n, s.splat(127.0));
    let y = s.ldexp_masked(s.not_less(x, s.splat(EXP_LOWEST)), p, most);
    // n - most is 1 for the last half binade, and 0 before.
    s.mul_add(y, s.sub(n, most), y)
}

/// e^x for `x <= 0`, as softmax needs it: at most 1 ULP off; exactly 0 below -87.33654, so for
/// `f32::MIN` and negative infinity too; NaN for NaN. Also right for `x` up to 88.
#[inline(always)]
pub(crate) fn exp_nonpositive<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    exp_from(s, x, s.splat(EXP_LOWEST))
}

/// The value that is subtracted from numbers with this maximum before [`exp_nonpositive`]: the maximum itself, except
/// for negative infinity, because negative infinity minus itself is NaN.
#[inline(always)]
pub(crate) fn exp_shift(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// As [`exp_nonpositive`], and exactly 0 below `lowest`, which must be at least [`EXP_LOWEST`].
#[inline(always)]
pub(crate) fn exp_from<S: SimdF32>(s: S, x: S::F32, lowest: S::F32) -> S::F32 {
    let keep = s.not_less(x, lowest);
    let (p, n) = exp_parts(s, x);
    s.ldexp_masked(keep, p, n)
}

/// The error function: at most 4.8e-7 off in absolute terms; exactly 1 or -1 from 3.93 on; NaN
/// for NaN.
///
/// A rational function `x P(x^2) / Q(x^2)` with positive coefficients, so there is no cancellation.
#[inline(always)]
pub(crate) fn erf<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    let x = s.max(s.splat(-3.93), s.min(s.splat(3.93), x));
    let u = s.mul(x, x);
    let p = s.mul_add(s.splat(1.985_770_5e-6), u, s.splat(0.000_292_962_6));
    let p = s.mul_add(p, u, s.splat(0.004_120_159));
    let p = s.mul_add(p, u, s.splat(0.053_829_06));
    let p = s.mul_add(p, u, s.splat(0.198_658_59));
    let p = s.mul_add(p, u, s.splat(1.128_378_9));
    let q = s.mul_add(s.splat(3.785_298_4e-5), u, s.splat(0.001_249_024_3));
    let q = s.mul_add(q, u, s.splat(0.015_673_688));
    let q = s.mul_add(q, u, s.splat(0.117_512_53));
    let q = s.mul_add(q, u, s.splat(0.509_386_3));
    let q = s.mul_add(q, u, s.splat(1.0));
    let y = s.div(s.mul(x, p), q);
    s.max(s.splat(-1.0), s.min(s.splat(1.0), y))
}

/// `numerator * sigmoid(x)` with one division; `sigmoid(x)` is exactly 0 below -87.33654 and
/// exactly 1 above, at most 3 ULP off between; NaN for NaN.
#[inline(always)]
pub(crate) fn times_sigmoid<S: SimdF32>(s: S, numerator: S::F32, x: S::F32) -> S::F32 {
    let zero = s.splat(0.0);
    let one = s.splat(1.0);
    // exp of the negative magnitude never overflows: e^x / (1 + e^x) or 1 / (1 + e^-x).
    let e = exp_nonpositive(s, s.sub(zero, s.abs(x)));
    let top = s.select(s.less(x, zero), e, one);
    s.div(s.mul(numerator, top), s.add(one, e))
}

/// `1 / (1 + e^-x)`; see [`times_sigmoid`].
#[inline(always)]
pub(crate) fn sigmoid<S: SimdF32>(s: S, x: S::F32) -> S::F32 {
    times_sigmoid(s, s.splat(1.0), x)
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
            map_slice(
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

/// `x = e^x` for each element, for example to convert log-probabilities to probabilities. Error: at most 1 ULP. The
/// result is 0 below -87.33654, where it would be subnormal; infinity above 88.72284; NaN for NaN.
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
