//! Int8 products whose lanes are rows on x86-64: with VNNI or AVX-VNNI on bytes, without on pairs of 16-bit numbers.

use crate::arch::x86_64::int8_madd::{Madd256, Madd512};
use crate::arch::x86_64::vnni::{Vnni256, Vnni512};
use crate::simd::int8::{Int8Dot, SimdI32};
use crate::simd::int8_lanes::{BYTE, Int8Lanes, MANTISSA, ONE, WordForm};
use core::arch::x86_64::{
    __m256, __m256i, __m512, __m512i, _mm256_and_si256, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_cvtps_epi32, _mm256_madd_epi16, _mm256_or_si256, _mm256_set1_epi32, _mm256_slli_epi32,
    _mm256_storeu_si256, _mm256_sub_epi8, _mm256_sub_epi16, _mm256_xor_si256, _mm512_castps_si512,
    _mm512_castsi512_ps, _mm512_cvtps_epi32, _mm512_madd_epi16, _mm512_set1_epi32,
    _mm512_slli_epi32, _mm512_storeu_si512, _mm512_sub_epi8, _mm512_sub_epi16,
    _mm512_ternarylogic_epi32,
};
use pulp::x86::{V3, V4};

/// Operations on words of one width. The CPU has AVX2, or AVX-512.
mod wide256 {
    use super::*;

    pub(super) type Floats = __m256;
    pub(super) type Ints = __m256i;
    pub(super) use super::{
        _mm256_castps_si256 as to_ints, _mm256_castsi256_ps as to_floats,
        _mm256_cvtps_epi32 as cvtps_epi32, _mm256_madd_epi16 as madd,
        _mm256_set1_epi32 as set1_epi32, _mm256_slli_epi32 as slli_epi32,
        _mm256_storeu_si256 as storeu, _mm256_sub_epi8 as sub_epi8, _mm256_sub_epi16 as sub_epi16,
    };

    /// `(a & b) | c`.
    #[inline(always)]
    pub(super) unsafe fn and_or(a: Ints, b: Ints, c: Ints) -> Ints {
        // SAFETY: the caller's contract.
        unsafe { _mm256_or_si256(_mm256_and_si256(a, b), c) }
    }
    /// `(a ^ b) | c`.
    #[inline(always)]
    pub(super) unsafe fn xor_or(a: Ints, b: Ints, c: Ints) -> Ints {
        // SAFETY: the caller's contract.
        unsafe { _mm256_or_si256(_mm256_xor_si256(a, b), c) }
    }
    /// `a | b | c`.
    #[inline(always)]
    pub(super) unsafe fn or3(a: Ints, b: Ints, c: Ints) -> Ints {
        // SAFETY: the caller's contract.
        unsafe { _mm256_or_si256(_mm256_or_si256(a, b), c) }
    }
}

/// As [`wide256`], for AVX-512.
mod wide512 {
    use super::*;

    pub(super) type Floats = __m512;
    pub(super) type Ints = __m512i;
    pub(super) use super::{
        _mm512_castps_si512 as to_ints, _mm512_castsi512_ps as to_floats,
        _mm512_cvtps_epi32 as cvtps_epi32, _mm512_madd_epi16 as madd,
        _mm512_set1_epi32 as set1_epi32, _mm512_slli_epi32 as slli_epi32,
        _mm512_storeu_si512 as storeu, _mm512_sub_epi8 as sub_epi8, _mm512_sub_epi16 as sub_epi16,
    };

    /// `(a & b) | c`.
    #[inline(always)]
    pub(super) unsafe fn and_or(a: Ints, b: Ints, c: Ints) -> Ints {
        // SAFETY: the caller's contract.
        unsafe { _mm512_ternarylogic_epi32::<0xea>(a, b, c) }
    }
    /// `(a ^ b) | c`.
    #[inline(always)]
    pub(super) unsafe fn xor_or(a: Ints, b: Ints, c: Ints) -> Ints {
        // SAFETY: the caller's contract.
        unsafe { _mm512_ternarylogic_epi32::<0xbe>(a, b, c) }
    }
    /// `a | b | c`.
    #[inline(always)]
    pub(super) unsafe fn or3(a: Ints, b: Ints, c: Ints) -> Ints {
        // SAFETY: the caller's contract.
        unsafe { _mm512_ternarylogic_epi32::<0xfe>(a, b, c) }
    }
}

/// Implements [`Int8Lanes`] for `$Set` with the vectors of `$wide`.
macro_rules! lanes {
    (
        $Set:ident: $Token:ty, $wide:ident, $form:ident, $keys:literal keys,
        add_products($set:ident, $sum:ident, $unsigned:ident, $signed:ident) = $products:expr,
        pack($a:ident, $b:ident, $c:ident, $d:ident) = $pack:expr,
        signed = $sub:ident, $offset:literal
    ) => {
        // SAFETY: vectors of 32-bit lanes, as many as `Floats` has; loads and stores access one vector.
        unsafe impl Int8Lanes for $Set {
            const FORM: WordForm = WordForm::$form;
            const KEYS: usize = $keys;
            type LaneFloats = $Token;
            type Words = $wide::Ints;
            type Totals = $wide::Ints;

            #[inline(always)]
            fn lane_floats(self) -> $Token {
                self.sums().floats()
            }
            #[inline(always)]
            unsafe fn load_words(self, from: *const i32) -> $wide::Ints {
                // SAFETY: the caller's contract.
                unsafe { self.sums().load_sums(from) }
            }
            #[inline(always)]
            unsafe fn store_words(self, to: *mut i32, words: $wide::Ints) {
                // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                unsafe { $wide::storeu(to.cast(), words) }
            }
            #[inline(always)]
            fn splat_word(self, word: i32) -> $wide::Ints {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe { $wide::set1_epi32(word) }
            }
            #[inline(always)]
            fn totals(self, start: $wide::Ints) -> $wide::Ints {
                start
            }
            #[inline(always)]
            fn add_products(
                self,
                $sum: $wide::Ints,
                $unsigned: $wide::Ints,
                $signed: $wide::Ints,
            ) -> $wide::Ints {
                let $set = self;
                $products
            }
            #[inline(always)]
            fn totals_to_f32(self, sum: $wide::Ints) -> $wide::Floats {
                self.sums().to_f32(sum)
            }
            #[inline(always)]
            fn float_of_bits(self, bits: $wide::Floats) -> [$wide::Floats; 2] {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe {
                    let bits = $wide::cvtps_epi32(bits);
                    let (mask, one) = ($wide::set1_epi32(MANTISSA), $wide::set1_epi32(ONE));
                    [$wide::to_floats(bits), $wide::to_floats($wide::and_or(bits, mask, one))]
                }
            }
            #[inline(always)]
            fn pack(self, elements: [$wide::Floats; 4]) -> [$wide::Ints; 2] {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe {
                    let [$a, $b, $c, $d] = [
                        $wide::to_ints(elements[0]),
                        $wide::to_ints(elements[1]),
                        $wide::to_ints(elements[2]),
                        $wide::to_ints(elements[3]),
                    ];
                    $pack
                }
            }
            #[inline(always)]
            fn signed(self, packed: $wide::Ints) -> $wide::Ints {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe { $wide::$sub(packed, $wide::set1_epi32($offset.cast_signed())) }
            }
        }
    };
}

/// [`lanes`] for a set with products of bytes.
macro_rules! byte_lanes {
    ($Set:ident: $Token:ty, $wide:ident, $keys:literal keys) => {
        lanes!($Set: $Token, $wide, Unsigned, $keys keys,
            add_products(set, sum, unsigned, signed) = set.dot(sum, unsigned, signed),
            pack(a, b, c, d) = {
                use $wide::{or3, set1_epi32, slli_epi32, xor_or};
                // The upper bytes of `a` are those of `BYTE`. A shift moves those of the others out.
                let ab = xor_or(a, set1_epi32(BYTE.to_bits().cast_signed()), slli_epi32::<8>(b));
                [or3(ab, slli_epi32::<16>(c), slli_epi32::<24>(d)); 2]
            },
            signed = sub_epi8, 0x8080_8080_u32);
    };
}

/// [`lanes`] for a set with products of 16-bit numbers.
macro_rules! half_lanes {
    ($Set:ident: $Token:ty, $wide:ident, $keys:literal keys) => {
        lanes!($Set: $Token, $wide, Halves, $keys keys,
            // SAFETY: `set` proves that the CPU has the instructions.
            add_products(set, sum, unsigned, signed) = set.sums().add(sum, unsafe { $wide::madd(unsigned, signed) }),
            pack(a, b, c, d) = {
                use $wide::{set1_epi32, slli_epi32, xor_or};
                let byte = set1_epi32(BYTE.to_bits().cast_signed());
                [xor_or(a, byte, slli_epi32::<16>(b)), xor_or(c, byte, slli_epi32::<16>(d))]
            },
            signed = sub_epi16, 0x0080_0080_u32);
    };
}

byte_lanes!(Vnni512: V4, wide512, 8 keys);
byte_lanes!(Vnni256: V3, wide256, 5 keys);
half_lanes!(Madd512: V4, wide512, 8 keys);
half_lanes!(Madd256: V3, wide256, 5 keys);
