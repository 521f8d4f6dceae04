//! Int8 products on x86-64 with VNNI (for AVX-512) or AVX-VNNI (for AVX2). One instruction does four times as many
//! multiply-adds in int8 as in f32.

use crate::arch::x86_64::features::{CachedCpuFlag, compiled_for_v3, compiled_for_v4};
use crate::simd::int8::{Int8Dot, Int8Op, SimdI32};
use crate::simd::u8_activations::ActivationEncoding;
use core::arch::x86_64::{
    __cpuid, __cpuid_count, __m256i, __m512i, _mm256_dpbusd_avx_epi32, _mm256_set1_epi32,
    _mm512_dpbusd_epi32, _mm512_set1_epi32,
};
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

/// Implements [`Int8Dot`] for `$Vnni`: sums in `$Ints` with the token `$Token`; `$rows` and `$tall` are `ROWS` and `TALL`.
macro_rules! vnni {
    (
        $Vnni:ident: $Token:ty, $Ints:ty, $rows:literal, $tall:literal, $set1:ident, $dpbusd:ident,
        $compiled:ident + $feature:literal, <$nv:literal, $tv:literal>
    ) => {
        // SAFETY: a load reads one vector, `row` one word; `ROWS` and `TALL` are at most `MAX_MR`.
        unsafe impl Int8Dot for $Vnni {
            int8_items!($rows, $tall, Unsigned, |set| set.floats => $Token, $Ints);
            call_noinline!($compiled + $feature: Int8Dot, Int8Op<$nv, $tv>);

            #[inline(always)]
            unsafe fn load(self, from: *const i32) -> $Ints {
                // SAFETY: the caller's contract.
                unsafe { self.sums().load_sums(from) }
            }
            #[inline(always)]
            unsafe fn row(self, from: *const i32) -> $Ints {
                // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                unsafe { $set1(*from) }
            }
            #[inline(always)]
            fn dot(self, sum: $Ints, a: $Ints, b: $Ints) -> $Ints {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe { $dpbusd(sum, a, b) }
            }
        }
    };
}
vnni!(Vnni512: V4, __m512i, 12, 12, _mm512_set1_epi32, _mm512_dpbusd_epi32,
    compiled_for_v4 + "avx512vnni", <2, 2>);
vnni!(Vnni256: V3, __m256i, 2, 6, _mm256_set1_epi32, _mm256_dpbusd_avx_epi32,
    compiled_for_v3 + "avxvnni", <4, 2>);
