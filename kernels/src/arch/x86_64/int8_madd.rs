//! Int8 products on x86-64 without VNNI: the code converts int8 to 16 bits, and one instruction multiplies pairs of
//! 16-bit numbers and adds the two products of each pair, exactly. (`vpmaddubsw`, which multiplies bytes directly,
//! saturates at 16 bits.)
//!
//! Of the four bytes of a word, the first and the third are one pair and the second and the fourth are the other,
//! because two shifts make the first pair and one shift makes the second. Each pair is multiplied with the same pair
//! of a row.

use crate::arch::x86_64::features::{compiled_for_v3, compiled_for_v4};
use crate::simd::int8::{Int8Dot, Int8Op, SimdI32};
use crate::simd::u8_activations::ActivationEncoding;
use core::arch::x86_64::{
    __m256i, __m512i, _mm256_madd_epi16, _mm256_set1_epi32, _mm256_slli_epi16, _mm256_srai_epi16,
    _mm512_madd_epi16, _mm512_set1_epi32, _mm512_slli_epi16, _mm512_srai_epi16,
};
use pulp::x86::{V3, V4};

/// The two pairs of each lane.
#[derive(Clone, Copy)]
pub(crate) struct BytePairs<V> {
    first_and_third: V,
    second_and_fourth: V,
}

/// Proof of AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Madd256(pub(crate) V3);

/// Proof of AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct Madd512(pub(crate) V4);

/// Implements [`Int8Dot`] for `$Madd`: sums in `$Ints` with the token `$Token`; `$rows` and `$tall` are `ROWS` and `TALL`.
macro_rules! madd {
    (
        $Madd:ident: $Token:ty, $Ints:ty, $rows:literal, $tall:literal,
        $set1:ident, $slli:ident, $srai:ident, $madd:ident,
        $compiled:ident, <$nv:literal, $tv:literal>
    ) => {
        // SAFETY: a load reads one vector, `row` two words; `ROWS` and `TALL` are at most `MAX_MR`.
        unsafe impl Int8Dot for $Madd {
            int8_items!($rows, $tall, Pairs, |set| set.0 => $Token, BytePairs<$Ints>);
            call_noinline!($compiled: Int8Dot, Int8Op<$nv, $tv>);

            #[inline(always)]
            unsafe fn load(self, from: *const i32) -> BytePairs<$Ints> {
                // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                unsafe {
                    let bytes = self.sums().load_sums(from);
                    BytePairs {
                        first_and_third: $srai::<8>($slli::<8>(bytes)),
                        second_and_fourth: $srai::<8>(bytes),
                    }
                }
            }
            #[inline(always)]
            unsafe fn row(self, from: *const i32) -> BytePairs<$Ints> {
                // SAFETY: the caller's contract covers two words; `self` proves that the CPU has the instruction set.
                unsafe {
                    BytePairs { first_and_third: $set1(*from), second_and_fourth: $set1(*from.add(1)) }
                }
            }
            #[inline(always)]
            fn dot(self, sum: $Ints, a: BytePairs<$Ints>, b: BytePairs<$Ints>) -> $Ints {
                let sum = self.dot_pair(sum, a.first_and_third, b.first_and_third);
                self.dot_pair(sum, a.second_and_fourth, b.second_and_fourth)
            }
            #[inline(always)]
            fn pairs(self, of: BytePairs<$Ints>) -> [$Ints; 2] {
                [of.first_and_third, of.second_and_fourth]
            }
            #[inline(always)]
            unsafe fn row_pair(self, from: *const i32) -> $Ints {
                // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                unsafe { $set1(*from) }
            }
            #[inline(always)]
            fn dot_pair(self, sum: $Ints, a: $Ints, b: $Ints) -> $Ints {
                // SAFETY: `self` proves that the CPU has the instructions.
                self.sums().add(sum, unsafe { $madd(a, b) })
            }
        }
    };
}
madd!(Madd256: V3, __m256i, 2, 6,
    _mm256_set1_epi32, _mm256_slli_epi16, _mm256_srai_epi16, _mm256_madd_epi16,
    compiled_for_v3, <4, 2>);
madd!(Madd512: V4, __m512i, 6, 6,
    _mm512_set1_epi32, _mm512_slli_epi16, _mm512_srai_epi16, _mm512_madd_epi16,
    compiled_for_v4, <2, 2>);
