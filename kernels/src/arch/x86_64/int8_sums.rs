//! Sums of int8 products on x86-64.

use crate::simd::int8::SimdI32;
use crate::simd::quantize::Round;

/// Implements [`SimdI32`] for the token of a module of `widths`.
macro_rules! sums {
    ($width:ident) => {
        const _: () = {
            use crate::arch::x86_64::widths::$width::*;

            // SAFETY: `Ints` has as many lanes of 32 bits as `Floats`, and a load reads one vector.
            unsafe impl SimdI32 for Token {
                type Floats = Self;
                type I32 = Ints;

                #[inline(always)]
                fn floats(self) -> Self {
                    self
                }
                #[inline(always)]
                fn splat_i32(self, x: i32) -> Ints {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe { set1_epi32(x) }
                }
                #[inline(always)]
                unsafe fn load_sums(self, from: *const i32) -> Ints {
                    // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                    unsafe { loadu(from.cast()) }
                }
                #[inline(always)]
                fn add(self, a: Ints, b: Ints) -> Ints {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe { add_epi32(a, b) }
                }
                #[inline(always)]
                fn join(self, high: Ints, low: Ints) -> Ints {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe { add_epi32(slli_epi32::<8>(high), low) }
                }
                #[inline(always)]
                fn to_f32(self, a: Ints) -> Floats {
                    // SAFETY: `self` proves that the CPU has the instructions.
                    unsafe { cvtepi32_ps(a) }
                }
                #[inline(always)]
                fn rounds(self) -> Option<impl Round> {
                    Some(self)
                }
            }
        };
    };
}
sums!(avx2);
sums!(avx512);
