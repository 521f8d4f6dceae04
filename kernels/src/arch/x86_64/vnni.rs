//! Int8 products on x86-64 with VNNI (for AVX-512) or AVX-VNNI (for AVX2). One instruction does four times as many
//! multiply-adds in int8 as in f32.

use crate::arch::x86_64::features::{CachedCpuFlag, compiled_for_v3, compiled_for_v4};
use crate::arch::x86_64::widths::{avx2, avx512};
use crate::simd::int8::{BYTE, Int8Dot, Int8Op, MANTISSA, ONE, SimdI32, WordForm};
use crate::simd::u8_activations::ActivationEncoding;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use pulp::core_arch::x86::Avx512vnni;
use pulp::x86::{V3, V4};

/// Proof of AVX-512 and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Vnni512 {
    floats: V4,
    /// Never read: the value is the proof.
    _vnni: Avx512vnni,
}

impl Vnni512 {
    pub(crate) fn detect_with(floats: V4) -> Option<Self> {
        Avx512vnni::try_new().map(|vnni| Self { floats, _vnni: vnni })
    }
}

/// Proof of AVX2 and AVX-VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Vnni256 {
    floats: V3,
}

impl Vnni256 {
    pub(crate) fn detect_with(floats: V3) -> Option<Self> {
        static PRESENT: CachedCpuFlag = CachedCpuFlag::new();
        const AVX_VNNI: u32 = 1 << 4;
        // The first subleaf of leaf 7 reports whether a second one exists. `floats` proves AVX, and that the operating
        // system saves its registers.
        let present = PRESENT.answer(|| {
            __cpuid(0).eax >= 7
                && __cpuid_count(7, 0).eax >= 1
                && __cpuid_count(7, 1).eax & AVX_VNNI != 0
        });
        present.then_some(Self { floats })
    }
}

/// Implements [`Int8Dot`] for `$Vnni` with vectors of `$width`: `$rows` and `$tall` are `ROWS` and `TALL`.
macro_rules! vnni {
    (
        $Vnni:ident: $width:ident, $rows:literal, $tall:literal, $keys:literal keys,
        $compiled:ident + $feature:literal, <$nv:literal, $tv:literal>
    ) => {
        // SAFETY: loads and stores access one vector, `row` one word; the constants are at most `MAX_MR` and `MAX_KEYS`.
        unsafe impl Int8Dot for $Vnni {
            int8_items!($rows, $tall, Unsigned, |set| set.floats => $width::Token, $width::Ints);
            call_noinline!($compiled + $feature: Int8Dot, Int8Op<$nv, $tv>);
            word_items!(
                $width, Unsigned, $keys keys, signed = sub_epi8 0x8080_8080_u32,
                add_products(set, sum, unsigned, signed) = set.dot(sum, unsigned, signed)
            );

            #[inline(always)]
            unsafe fn load(self, from: *const i32) -> $width::Ints {
                // SAFETY: the caller's contract.
                unsafe { self.load_words(from) }
            }
            #[inline(always)]
            unsafe fn row(self, from: *const i32) -> $width::Ints {
                // SAFETY: the caller's contract.
                self.splat_word(unsafe { *from })
            }
            #[inline(always)]
            fn dot(self, sum: $width::Ints, a: $width::Ints, b: $width::Ints) -> $width::Ints {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe { $width::dpbusd(sum, a, b) }
            }
            #[inline(always)]
            fn pack(self, [a, b, c, d]: [$width::Floats; 4]) -> [$width::Ints; 2] {
                use $width::{or_bits, slli_epi32, to_ints, xor_bits};
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe {
                    // The upper bytes of `a` are those of `BYTE`. A shift moves those of the others out.
                    let a = xor_bits(to_ints(a), self.splat_word(BYTE.to_bits().cast_signed()));
                    let ab = or_bits(a, slli_epi32::<8>(to_ints(b)));
                    let abc = or_bits(ab, slli_epi32::<16>(to_ints(c)));
                    [or_bits(abc, slli_epi32::<24>(to_ints(d))); 2]
                }
            }
        }
    };
}
vnni!(Vnni512: avx512, 12, 12, 8 keys, compiled_for_v4 + "avx512vnni", <2, 2>);
vnni!(Vnni256: avx2, 2, 6, 5 keys, compiled_for_v3 + "avxvnni", <4, 2>);
