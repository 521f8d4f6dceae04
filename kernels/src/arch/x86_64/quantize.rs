//! Quantizes floats to words of bytes on x86-64. Conversions round to nearest even. Each narrowing instruction takes
//! two vectors and alternates 128 bits of one with 128 bits of the other.

use crate::simd::quantize::{LINES, Round};
use core::arch::x86_64::_mm_setr_epi8;

/// Implements [`Round`] for the token of a module of `widths`.
macro_rules! round {
    ($width:ident) => {
        const _: () = {
            use crate::arch::x86_64::widths::$width::*;

            impl Round for Token {
                type Magnitudes = Ints;

                #[inline(always)]
                fn none(self) -> Ints {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe { setzero() }
                }
                #[inline(always)]
                fn larger(self, so_far: Ints, x: Floats) -> Ints {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe {
                        let magnitude = and_bits(to_ints(x), set1_epi32(0x7fff_ffff));
                        max_epi32(so_far, magnitude)
                    }
                }
                #[inline(always)]
                fn largest(self, [a, b, c, d]: [Ints; 4]) -> i32 {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe {
                        let all = max_epi32(max_epi32(a, b), max_epi32(c, d));
                        reduce_max_epi32(all)
                    }
                }
                #[inline(always)]
                fn bytes(self, [a, b, c, d]: [Floats; 4]) -> Floats {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe {
                        let ab = packs_epi32(cvtps_epi32(a), cvtps_epi32(b));
                        let cd = packs_epi32(cvtps_epi32(c), cvtps_epi32(d));
                        let bytes = packs_epi16(ab, cd);
                        to_floats(xor_bits(bytes, set1_epi8(i8::MIN)))
                    }
                }
                #[inline(always)]
                fn digits(self, [a, b, c, d]: [Floats; 4]) -> [Floats; 2] {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe {
                        let (a, b) = (cvtps_epi32(a), cvtps_epi32(b));
                        let (c, d) = (cvtps_epi32(c), cvtps_epi32(d));
                        let ab = packs_epi32(srai_epi32::<8>(a), srai_epi32::<8>(b));
                        let cd = packs_epi32(srai_epi32::<8>(c), srai_epi32::<8>(d));
                        let high = xor_bits(packs_epi16(ab, cd), set1_epi8(i8::MIN));
                        let byte = set1_epi32(0xff);
                        let ab = packs_epi32(and_bits(a, byte), and_bits(b, byte));
                        let cd = packs_epi32(and_bits(c, byte), and_bits(d, byte));
                        let low = packus_epi16(ab, cd);
                        [to_floats(high), to_floats(low)]
                    }
                }
                #[inline(always)]
                fn pairs(self, [a, b, c, d]: [Floats; 4]) -> [Floats; 2] {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe {
                        let order = broadcast_128(_mm_setr_epi8(
                            0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,
                        ));
                        let ab = packs_epi32(cvtps_epi32(a), cvtps_epi32(b));
                        let cd = packs_epi32(cvtps_epi32(c), cvtps_epi32(d));
                        // The two words of each four elements become adjacent.
                        let ab = to_floats(shuffle_epi8(ab, order));
                        let cd = to_floats(shuffle_epi8(cd, order));
                        [shuffle_ps::<0b10_00_10_00>(ab, cd), shuffle_ps::<0b11_01_11_01>(ab, cd)]
                    }
                }
                #[inline(always)]
                fn in_order(self, words: Floats) -> Floats {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe { transpose_parts(words) }
                }
                #[inline(always)]
                unsafe fn store_columns(self, lines: [Floats; LINES], to: *mut f32, stride: usize) {
                    // SAFETY: `self` proves that the CPU has the instructions; the rest is the caller's contract.
                    unsafe {
                        // Within each 128 bits: the first word of all lines, then the second, and so on.
                        let columns = transpose_in_parts(lines);
                        for (v, column) in columns.into_iter().enumerate() {
                            store_parts(column, to.add(PARTS * v * stride), stride);
                        }
                    }
                }
            }
        };
    };
}
round!(avx2);
round!(avx512);
