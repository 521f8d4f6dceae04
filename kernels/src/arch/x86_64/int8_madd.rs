//! Int8 products on x86-64 without VNNI: the code converts int8 to 16 bits, and one instruction multiplies pairs of
//! 16-bit numbers and adds the two products of each pair, exactly. (`vpmaddubsw`, which multiplies bytes directly,
//! saturates at 16 bits.)
//!
//! Of the four bytes of a word, the first and the third are one pair and the second and the fourth are the other,
//! because two shifts make the first pair and one shift makes the second. Each pair is multiplied with the same pair
//! of a row.

use crate::arch::x86_64::features::{compiled_for_v3, compiled_for_v4};
use crate::arch::x86_64::widths::{avx2, avx512};
use crate::simd::int8::{BYTE, Int8Dot, Int8Op, MANTISSA, ONE, SimdI32, WordForm};
use crate::simd::u8_activations::ActivationEncoding;
use pulp::x86::{V3, V4};

/// Proof of AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Madd256(pub(crate) V3);

/// Proof of AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct Madd512(pub(crate) V4);

/// Implements [`Int8Dot`] for `$Madd` with vectors of `$width`: one vector has the first pair of each lane, and one the second.
/// `$rows` and `$tall` are `ROWS` and `TALL`.
macro_rules! madd {
    (
        $Madd:ident: $width:ident, $rows:literal, $tall:literal, $keys:literal keys,
        $compiled:ident, <$nv:literal, $tv:literal>
    ) => {
        // SAFETY: loads and stores access one vector, `row` two words; the constants are at most `MAX_MR` and `MAX_KEYS`.
        unsafe impl Int8Dot for $Madd {
            int8_items!($rows, $tall, Pairs, |set| set.0 => $width::Token, [$width::Ints; 2]);
            call_noinline!($compiled: Int8Dot, Int8Op<$nv, $tv>);
            word_items!(
                $width, Halves, $keys keys, signed = sub_epi16 0x0080_0080_u32,
                add_products(set, sum, unsigned, signed) = {
                    // SAFETY: `set` proves that the CPU has the instructions.
                    set.sums().add(sum, unsafe { $width::madd_epi16(unsigned, signed) })
                }
            );

            #[inline(always)]
            unsafe fn load(self, from: *const i32) -> [$width::Ints; 2] {
                use $width::{slli_epi16, srai_epi16};
                // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                unsafe {
                    let bytes = self.load_words(from);
                    [srai_epi16::<8>(slli_epi16::<8>(bytes)), srai_epi16::<8>(bytes)]
                }
            }
            #[inline(always)]
            unsafe fn row(self, from: *const i32) -> [$width::Ints; 2] {
                // SAFETY: the caller's contract covers two words.
                unsafe { [self.splat_word(*from), self.splat_word(*from.add(1))] }
            }
            #[inline(always)]
            fn dot(self, sum: $width::Ints, a: Self::I8x4, b: Self::I8x4) -> $width::Ints {
                let sum = self.add_products(sum, a[0], b[0]);
                self.add_products(sum, a[1], b[1])
            }
            #[inline(always)]
            fn pairs(self, of: [$width::Ints; 2]) -> [$width::Ints; 2] {
                of
            }
            #[inline(always)]
            fn pack(self, [a, b, c, d]: [$width::Floats; 4]) -> [$width::Ints; 2] {
                use $width::{or_bits, slli_epi32, to_ints, xor_bits};
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe {
                    let byte = self.splat_word(BYTE.to_bits().cast_signed());
                    let (a, c) = (xor_bits(to_ints(a), byte), xor_bits(to_ints(c), byte));
                    [
                        or_bits(a, slli_epi32::<16>(to_ints(b))),
                        or_bits(c, slli_epi32::<16>(to_ints(d))),
                    ]
                }
            }
        }
    };
}
madd!(Madd256: avx2, 2, 6, 5 keys, compiled_for_v3, <4, 2>);
madd!(Madd512: avx512, 6, 6, 8 keys, compiled_for_v4, <2, 2>);
