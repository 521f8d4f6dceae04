//! A multiply-add that rounds once, for targets whose CPU may lack the instruction.
//!
//! The product of two f32 is exact in f64, which has 53 bits. The sum with the third number is not: it is
//! rounded *to odd* (Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums: proved
//! algorithms using rounding to odd"), and what is rounded to odd at 53 bits may be rounded again, to the
//! 24 bits of an f32 or fewer, with the result of a single rounding. The error of a sum, which says whether
//! it was exact and to which side of it the truth lies, is another sum (Knuth 1969; Møller 1965).

/// `a * b + c`, rounded once: what the CPU's instruction gives, for every input (which NaN aside).
#[inline(always)]
pub(super) fn mul_add(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "fma"))]
    {
        use core::arch::x86_64::{_mm_cvtss_f32, _mm_fmadd_ss, _mm_set_ss};
        // SAFETY: the whole program is compiled for FMA.
        unsafe { _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c))) }
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "fma")))]
    emulated(a, b, c)
}

#[inline(always)]
#[cfg_attr(all(target_arch = "x86_64", target_feature = "fma"), allow(dead_code))]
fn emulated(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    // Nothing overflows or vanishes: exponents of products and sums of f32 are a quarter of f64's.
    let sum = product + c;
    let from_c = sum - product;
    let from_product = sum - from_c;
    let error = (product - from_product) + (c - from_c);
    let bits = sum.to_bits();
    // The odd one of the two f64 around the exact sum: `sum` itself, or its neighbour towards the error.
    let down = (bits ^ error.to_bits()) >> 63;
    let odd = bits.wrapping_sub(down) | 1;
    // The error of an infinite sum is NaN.
    let inexact = error.abs() > 0.0;
    f64::from_bits(if inexact { odd } else { bits }) as f32
}

#[cfg(test)]
mod tests {
    use super::{emulated, mul_add};

    #[track_caller]
    fn check(a: f32, b: f32, c: f32) {
        let expected = a.mul_add(b, c);
        for found in [emulated(a, b, c), mul_add(a, b, c)] {
            let same =
                found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(same, "{a:e} * {b:e} + {c:e}: {found:e} for {expected:e}");
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

        /// Near 1, with so few bits that sums and products often lie half-way between two f32.
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
        for _ in 0..3_000_000 {
            check(random.float(), random.float(), random.float());
        }
    }

    #[test]
    fn sums_half_way_between_two_floats_are_rounded_once() {
        let mut random = Random(2);
        for _ in 0..3_000_000 {
            let (a, b) = (random.short(), random.short());
            check(a, b, random.short());
            // Cancellation, and a hair beside a tie.
            check(a, b, -(a * b));
            check(a, b, a * b * f32::from_bits(((random.bits() % 60) as u32 + 97) << 23));
        }
    }

    /// Results that are subnormal, where an f32 has fewer bits, or that overflow.
    #[test]
    fn sums_at_both_ends_of_the_range_are_rounded_once() {
        let mut random = Random(3);
        for _ in 0..2_000_000 {
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
