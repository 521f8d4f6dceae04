//! Int8 products whose lanes are rows on AArch64.

use crate::arch::aarch64::dotprod::{NeonDot, NeonMadd};
use crate::simd::int8::{Int8Dot, SimdI32};
use crate::simd::int8_lanes::{Int8Lanes, MANTISSA, ONE, WordForm};
use core::arch::aarch64::{
    float32x4_t, int32x4_t, vandq_s32, vcvtnq_s32_f32, vdupq_n_s32, veorq_s32, vorrq_s32,
    vreinterpretq_f32_s32, vreinterpretq_s8_s32, vreinterpretq_s32_f32, vsliq_n_s32, vst1q_s32,
};
use pulp::aarch64::Neon;

/// Implements [`Int8Lanes`] for `$Set`: `$totals` makes sums of a vector of numbers.
macro_rules! lanes {
    ($Set:ident, $keys:literal keys, |$set:ident, $start:ident| $totals:expr) => {
        // SAFETY: vectors of four lanes; loads and stores access one vector.
        unsafe impl Int8Lanes for $Set {
            const FORM: WordForm = WordForm::Signed;
            const KEYS: usize = $keys;
            type LaneFloats = Neon;
            type Words = int32x4_t;
            type Totals = <Self as Int8Dot>::I32;

            #[inline(always)]
            fn lane_floats(self) -> Neon {
                self.sums().floats()
            }
            #[inline(always)]
            unsafe fn load_words(self, from: *const i32) -> int32x4_t {
                // SAFETY: the caller's contract.
                unsafe { self.lane_floats().load_sums(from) }
            }
            #[inline(always)]
            unsafe fn store_words(self, to: *mut i32, words: int32x4_t) {
                // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                unsafe { vst1q_s32(to, words) }
            }
            #[inline(always)]
            fn splat_word(self, word: i32) -> int32x4_t {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe { vdupq_n_s32(word) }
            }
            #[inline(always)]
            fn totals(self, $start: int32x4_t) -> Self::Totals {
                let $set = self;
                $totals
            }
            #[inline(always)]
            fn add_products(
                self,
                sum: Self::Totals,
                unsigned: int32x4_t,
                signed: int32x4_t,
            ) -> Self::Totals {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe {
                    self.dot(sum, vreinterpretq_s8_s32(unsigned), vreinterpretq_s8_s32(signed))
                }
            }
            #[inline(always)]
            fn totals_to_f32(self, sum: Self::Totals) -> float32x4_t {
                self.sums().to_f32(sum)
            }
            #[inline(always)]
            fn float_of_bits(self, bits: float32x4_t) -> [float32x4_t; 2] {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe {
                    let bits = vcvtnq_s32_f32(bits);
                    let one = vorrq_s32(vandq_s32(bits, vdupq_n_s32(MANTISSA)), vdupq_n_s32(ONE));
                    [vreinterpretq_f32_s32(bits), vreinterpretq_f32_s32(one)]
                }
            }
            #[inline(always)]
            fn pack(self, [a, b, c, d]: [float32x4_t; 4]) -> [int32x4_t; 2] {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe {
                    let word = vsliq_n_s32::<8>(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(b));
                    let word = vsliq_n_s32::<16>(word, vreinterpretq_s32_f32(c));
                    let word = vsliq_n_s32::<24>(word, vreinterpretq_s32_f32(d));
                    // Elements less 128.
                    [veorq_s32(word, vdupq_n_s32(i32::from_le_bytes([0x80; 4]))); 2]
                }
            }
            #[inline(always)]
            fn signed(self, packed: int32x4_t) -> int32x4_t {
                packed
            }
        }
    };
}
lanes!(NeonDot, 4 keys, |_set, start| start);
lanes!(NeonMadd, 2 keys, |set, start| {
    let mut lanes = [0; 4];
    // SAFETY: `lanes` has four numbers; `set` proves that the CPU has the instruction set.
    unsafe {
        vst1q_s32(lanes.as_mut_ptr(), start);
        set.sums().load_sums(lanes.as_ptr())
    }
});
