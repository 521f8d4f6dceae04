//! A multiply-add that rounds once, for targets whose CPU may lack the FMA instruction.
//!
//! The product of two f32 is exact in f64, which has 53 bits. The sum with the third number is not exact. It is
//! rounded *to odd* (Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums: proved algorithms using
//! rounding to odd"). A number that is rounded to odd at 53 bits may be rounded again to 24 bits or fewer, and the
//! result is that of a single rounding. The error of the sum is computed by another sum (Knuth 1969; Møller 1965). It
//! shows whether the first sum was exact and on which side of it the exact value is.
//!
//! Rounding the sum to the nearest f64 and then to f32 is rarely wrong, and the possible errors can be detected.
//! Rounding never crosses an f64 number, so the exact sum and its f64 are on the same side of every midpoint of two
//! f32, unless the f64 *is* a midpoint. For normal f32 results, a midpoint has 24 bits, a one, and 28 zeros. Vectors are
//! rounded in this way, and vectors with a midpoint or a subnormal result are computed again with rounding to odd.

/// `a * b + c` in each lane, rounded once: the result of the FMA instruction for every input, except for the payload
/// of NaNs.
///
/// A separate function where it is emulated: inlined into every use by the scalar set it would be a seventh of all
/// code.
#[cfg(vectors = "x86_64")]
#[cfg_attr(target_feature = "fma", inline(always))]
#[cfg_attr(not(target_feature = "fma"), inline(never))]
pub(crate) fn mul_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
    x86::mul_add(a, b, c)
}

/// `a * b + c` in each lane, rounded once, by the CPU's instruction.
#[cfg(vectors = "aarch64")]
#[inline(always)]
pub(crate) fn mul_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
    use core::arch::aarch64::{vfmaq_f32, vld1q_f32, vst1q_f32};
    let mut out = [0.0; 8];
    for half in [0, 4] {
        // SAFETY: the target of the whole program has NEON; `half + 4 <= 8`, so the floats are inside all arrays.
        unsafe {
            let four = |of: &[f32; 8]| vld1q_f32(of.as_ptr().add(half));
            vst1q_f32(out.as_mut_ptr().add(half), vfmaq_f32(four(&c), four(&a), four(&b)));
        }
    }
    out
}

/// `a * b + c` in each lane, rounded once: the result of the FMA instruction for every input, except for the payload
/// of NaNs.
#[cfg(not(any(vectors = "x86_64", vectors = "aarch64")))]
#[inline(always)]
pub(crate) fn mul_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
    portable_mul_add(a, b, c)
}

/// Rounds the sum to f64 and to f32, and computes all lanes again where that may be wrong. The compiler makes vectors of
/// the first loop, where the target has them.
#[cfg(any(test, not(any(vectors = "x86_64", vectors = "aarch64"))))]
#[inline(always)]
fn portable_mul_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
    #[cold]
    #[inline(never)]
    fn round_to_odd(a: &[f32; 8], b: &[f32; 8], c: &[f32; 8]) -> [f32; 8] {
        core::array::from_fn(|i| emulated(a[i], b[i], c[i]))
    }

    let (mut out, mut doubtful) = ([0.0; 8], 0);
    for i in 0..8 {
        let sum = f64::from(a[i]) * f64::from(b[i]) + f64::from(c[i]);
        out[i] = sum as f32;
        // Midpoint: the 29 bits that f32 lacks are a one and zeros.
        let midpoint = (sum.to_bits() as u32) << 3 == 1 << 31;
        // Subnormal: not 0, and below 2^-126.
        let bits = out[i].to_bits() << 1;
        let subnormal = bits.wrapping_sub(1) < 2 * f32::MIN_POSITIVE.to_bits() - 1;
        doubtful |= u32::from(midpoint | subnormal);
    }
    if doubtful == 0 { out } else { round_to_odd(&a, &b, &c) }
}

#[cfg(vectors = "x86_64")]
mod x86 {
    use core::arch::x86_64::*;

    /// Floats `half..half + 4`.
    ///
    /// # Safety
    /// `half <= 4`.
    #[inline(always)]
    unsafe fn load(of: &[f32; 8], half: usize) -> __m128 {
        // SAFETY: the target of the whole program has SSE2; `half + 4 <= 8`, by the caller's contract.
        unsafe { _mm_loadu_ps(of.as_ptr().add(half)) }
    }

    #[inline(always)]
    fn join(halves: [__m128; 2]) -> [f32; 8] {
        let mut out = [0.0; 8];
        // SAFETY: the target of the whole program has SSE2; both halves are inside the array.
        unsafe {
            _mm_storeu_ps(out.as_mut_ptr(), halves[0]);
            _mm_storeu_ps(out.as_mut_ptr().add(4), halves[1]);
        }
        out
    }

    #[cfg(target_feature = "fma")]
    #[inline(always)]
    pub(crate) fn mul_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        // SAFETY: the target of the whole program has FMA; the halves begin at 0 and 4.
        let of = |half| unsafe { _mm_fmadd_ps(load(&a, half), load(&b, half), load(&c, half)) };
        join([of(0), of(4)])
    }

    /// Rounds the sum to f64 and to f32, and computes the vectors again where that may be wrong.
    #[cfg(not(target_feature = "fma"))]
    #[inline(always)]
    pub(crate) fn mul_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        // SAFETY: the target of the whole program has SSE2; the halves begin at 0 and 4.
        unsafe {
            let first = [load(&a, 0), load(&b, 0), load(&c, 0)];
            let second = [load(&a, 4), load(&b, 4), load(&c, 4)];
            let (mut sums, doubtful) = rounded_twice(first);
            let (mut others, other_doubtful) = rounded_twice(second);
            if _mm_movemask_epi8(_mm_or_si128(doubtful, other_doubtful)) != 0 {
                sums = round_to_odd(first[0], first[1], first[2]);
                others = round_to_odd(second[0], second[1], second[2]);
            }
            join([sums, others])
        }
    }

    /// The sums rounded to f64 and then to f32, and a mask of the lanes where that may be wrong.
    ///
    /// A sum that rounds to 0 is correct, because it is exact in f64: `c` is 0, or it is a multiple of 2^-149 and
    /// cancels nearly all of the product, which has 48 bits.
    #[cfg(not(target_feature = "fma"))]
    #[inline(always)]
    fn rounded_twice([a, b, c]: [__m128; 3]) -> (__m128, __m128i) {
        // SAFETY: the target of the whole program has SSE2.
        unsafe {
            let upper = |x| _mm_cvtps_pd(_mm_movehl_ps(x, x));
            let low = _mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b));
            let low = _mm_add_pd(low, _mm_cvtps_pd(c));
            let high = _mm_add_pd(_mm_mul_pd(upper(a), upper(b)), upper(c));
            let rounded = _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
            // Midpoint: the 29 bits that f32 lacks are a one and zeros.
            let words = _mm_shuffle_ps::<0x88>(_mm_castpd_ps(low), _mm_castpd_ps(high));
            let words = _mm_slli_epi32::<3>(_mm_castps_si128(words));
            let midpoint = _mm_cmpeq_epi32(words, _mm_set1_epi32(i32::MIN));
            // Subnormal: not 0, and below 2^-126. The first addition removes the sign bit. The second maps the
            // unsigned numbers from 1 on to signed numbers from the smallest on, and 0 to the largest.
            let bits = _mm_castps_si128(rounded);
            let from_least = _mm_add_epi32(_mm_add_epi32(bits, bits), _mm_set1_epi32(i32::MAX));
            let end = 2 * f32::MIN_POSITIVE.to_bits() as i32 + 1;
            let end = _mm_set1_epi32(end.wrapping_add(i32::MAX));
            let subnormal = _mm_cmplt_epi32(from_least, end);
            (rounded, _mm_or_si128(midpoint, subnormal))
        }
    }

    #[cfg(not(target_feature = "fma"))]
    #[cold]
    #[inline(never)]
    fn round_to_odd(a: __m128, b: __m128, c: __m128) -> __m128 {
        let mut lanes = [[0.0; 4]; 3];
        // SAFETY: the target of the whole program has SSE2; each array has four floats.
        unsafe {
            for (lanes, x) in lanes.iter_mut().zip([a, b, c]) {
                _mm_storeu_ps(lanes.as_mut_ptr(), x);
            }
            let [a, b, mut c] = lanes;
            for i in 0..4 {
                c[i] = super::emulated(a[i], b[i], c[i]);
            }
            _mm_loadu_ps(c.as_ptr())
        }
    }
}

#[cfg_attr(
    any(all(vectors = "x86_64", target_feature = "fma"), vectors = "aarch64"),
    allow(dead_code)
)]
#[inline(always)]
fn emulated(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    // No overflow or underflow is possible: the exponent range of f32 products and sums is a quarter of that of f64.
    let sum = product + c;
    let from_c = sum - product;
    let from_product = sum - from_c;
    let error = (product - from_product) + (c - from_c);
    let bits = sum.to_bits();
    // Of the two f64 around the exact sum, the odd one: `sum` itself, or its neighbor in the direction of the error.
    let down = (bits ^ error.to_bits()) >> 63;
    let odd = bits.wrapping_sub(down) | 1;
    // The error of an infinite sum is NaN.
    let inexact = error.abs() > 0.0;
    f64::from_bits(if inexact { odd } else { bits }) as f32
}

#[cfg(test)]
mod tests {
    use super::{emulated, mul_add, portable_mul_add};
    use simdformer_testing::effort::cases;

    /// Checks every implementation, in every lane.
    #[track_caller]
    fn check(a: f32, b: f32, c: f32) {
        let expected = a.mul_add(b, c);
        let same = |found: f32| {
            let same =
                found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(same, "{a:e} * {b:e} + {c:e}: {found:e} for {expected:e}");
        };
        same(emulated(a, b, c));
        for mul_add in [mul_add, portable_mul_add] {
            mul_add([a; 8], [b; 8], [c; 8]).into_iter().for_each(same);
            // With neighbor lanes that need no second computation.
            let lane = (a.to_bits() ^ c.to_bits()) as usize % 8;
            let with = |x: f32, other: f32| {
                let mut all = [other; 8];
                all[lane] = x;
                all
            };
            let found = mul_add(with(a, 3.0), with(b, 5.0), with(c, 1.0));
            for (i, found) in found.into_iter().enumerate() {
                if i == lane { same(found) } else { assert_eq!(found, 16.0) }
            }
        }
    }

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn bits(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        /// Any f32.
        fn float(&mut self) -> f32 {
            f32::from_bits(self.bits() as u32)
        }

        /// Near 1, with so few bits that sums and products are often midpoints of two f32.
        fn short(&mut self) -> f32 {
            let bits = self.bits();
            let fraction = (bits as u32 & 0x7f_ffff) & (u32::MAX << (bits >> 32 & 31).min(22));
            let exponent = 127 + ((bits >> 40) % 27) as u32 - 13;
            f32::from_bits((bits >> 63 << 31) as u32 | exponent << 23 | fraction)
        }
    }

    #[test]
    fn any_three_floats_give_what_std_gives() {
        let mut random = Random(1);
        for _ in 0..cases(300_000, 3_000_000) {
            check(random.float(), random.float(), random.float());
        }
    }

    #[test]
    fn sums_half_way_between_two_floats_are_rounded_once() {
        let mut random = Random(2);
        for _ in 0..cases(300_000, 3_000_000) {
            let (a, b) = (random.short(), random.short());
            check(a, b, random.short());
            // Cancellation, and sums that differ slightly from a midpoint.
            check(a, b, -(a * b));
            check(a, b, a * b * f32::from_bits(((random.bits() % 60) as u32 + 97) << 23));
        }
    }

    /// Results that are subnormal, with fewer bits, or that overflow.
    #[test]
    fn sums_at_both_ends_of_the_range_are_rounded_once() {
        let mut random = Random(3);
        for _ in 0..cases(100_000, 2_000_000) {
            let (a, b, c) = (random.short(), random.short(), random.short());
            for scale in [-140, -130, -127, -120, 113, 116, 120] {
                let half = f32::from_bits(((127 + scale / 2) as u32) << 23);
                let rest = f32::from_bits(((127 + scale - scale / 2) as u32) << 23);
                check(a * half, b * rest, c * half * rest);
            }
        }
    }

    #[test]
    fn special_numbers_give_what_std_gives() {
        let mut special = std::vec![0.0f32, 1.0, 1.5, f32::MAX, f32::INFINITY, f32::NAN];
        special.extend([f32::MIN_POSITIVE, f32::from_bits(1), f32::from_bits(0x7f_ffff)]);
        special.extend([f32::EPSILON, 1.0 + f32::EPSILON, 1.0 - f32::EPSILON / 2.0, 16_777_216.0]);
        let negative: std::vec::Vec<f32> = special.iter().map(|x| -x).collect();
        special.extend(negative);
        for &a in &special {
            for &b in &special {
                for &c in &special {
                    check(a, b, c);
                }
            }
        }
    }
}
