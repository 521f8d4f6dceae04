//! Int8 products on x86-64 with VNNI (for AVX-512) or AVX-VNNI (for AVX2). One instruction does four times as many
//! multiply-adds in int8 as in f32.

use crate::arch::x86_64::features::{CachedCpuFlag, compiled_for_v3, compiled_for_v4};
use crate::simd::int8::{ActivationEncoding, Int8Dot, Int8Op};
use crate::simd::quantize::Round;
use core::arch::x86_64::{
    __cpuid, __cpuid_count, __m256, __m256i, __m512, __m512i, _mm256_add_epi32, _mm256_cvtepi32_ps,
    _mm256_dpbusd_avx_epi32, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_setzero_si256,
    _mm256_slli_epi32, _mm512_add_epi32, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32,
    _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_slli_epi32,
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

    /// Runs `kernel` with everything that is inlined into it compiled for this set.
    #[inline]
    pub(crate) fn enter<K: Int8Op>(self, kernel: K) -> K::Output {
        compiled_for_v4! {
            + "avx512vnni"
            fn inside<K: Int8Op>(vnni: Vnni512, kernel: K) -> K::Output {
                kernel.run::<Vnni512, 2, 2>(vnni)
            }
        }
        // SAFETY: both tokens exist, so this CPU has all of these features.
        unsafe { inside(self, kernel) }
    }
}

// SAFETY: `Self::I32` has sixteen lanes, as many as `V4` has of f32, and loads read one vector;
// `ROWS` and `TALL` are at most `MAX_MR`.
unsafe impl Int8Dot for Vnni512 {
    const ROWS: usize = 12;
    const TALL: usize = 12;
    const STORED: ActivationEncoding = ActivationEncoding::Unsigned;
    const SUMS: usize = 1;
    type Floats = V4;
    type I32 = __m512i;
    type I8x4 = __m512i;

    #[inline(always)]
    fn floats(self) -> V4 {
        self.floats
    }
    #[inline(always)]
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output {
        compiled_for_v4! {
            + "avx512vnni"
            #[inline(never)]
            fn inside<K: Int8Op>(vnni: Vnni512, kernel: K) -> K::Output {
                kernel.run::<Vnni512, 2, 2>(vnni)
            }
        }
        // SAFETY: `self` proves that the CPU has all of these features.
        unsafe { inside(self, kernel) }
    }
    #[inline(always)]
    fn zero(self) -> __m512i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn load_sums(self, from: *const i32) -> __m512i {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32) -> __m512i {
        // SAFETY: the caller's contract.
        unsafe { self.load_sums(from) }
    }
    #[inline(always)]
    unsafe fn row(self, from: *const i32) -> __m512i {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { _mm512_set1_epi32(*from) }
    }
    #[inline(always)]
    fn dot(self, sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm512_dpbusd_epi32(sum, a, b) }
    }
    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    fn join(self, high: __m512i, low: __m512i) -> __m512i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm512_add_epi32(_mm512_slli_epi32::<8>(high), low) }
    }
    #[inline(always)]
    fn to_f32(self, a: __m512i) -> __m512 {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    fn rounds(self) -> Option<impl Round> {
        Some(self.floats)
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

    /// Runs `kernel` with everything that is inlined into it compiled for this set.
    #[inline]
    pub(crate) fn enter<K: Int8Op>(self, kernel: K) -> K::Output {
        compiled_for_v3! {
            + "avxvnni"
            fn inside<K: Int8Op>(vnni: Vnni256, kernel: K) -> K::Output {
                kernel.run::<Vnni256, 4, 2>(vnni)
            }
        }
        // SAFETY: the token exists, and `detect_with` has checked AVX-VNNI with CPUID.
        unsafe { inside(self, kernel) }
    }
}

// SAFETY: `Self::I32` has eight lanes, as many as `V3` has of f32, and loads read one vector;
// `ROWS` and `TALL` are at most `MAX_MR`.
unsafe impl Int8Dot for Vnni256 {
    const ROWS: usize = 2;
    const TALL: usize = 6;
    const STORED: ActivationEncoding = ActivationEncoding::Unsigned;
    const SUMS: usize = 1;
    type Floats = V3;
    type I32 = __m256i;
    type I8x4 = __m256i;

    #[inline(always)]
    fn floats(self) -> V3 {
        self.floats
    }
    #[inline(always)]
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output {
        compiled_for_v3! {
            + "avxvnni"
            #[inline(never)]
            fn inside<K: Int8Op>(vnni: Vnni256, kernel: K) -> K::Output {
                kernel.run::<Vnni256, 4, 2>(vnni)
            }
        }
        // SAFETY: `self` proves that the CPU has all of these features.
        unsafe { inside(self, kernel) }
    }
    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn load_sums(self, from: *const i32) -> __m256i {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32) -> __m256i {
        // SAFETY: the caller's contract.
        unsafe { self.load_sums(from) }
    }
    #[inline(always)]
    unsafe fn row(self, from: *const i32) -> __m256i {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { _mm256_set1_epi32(*from) }
    }
    #[inline(always)]
    fn dot(self, sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm256_dpbusd_avx_epi32(sum, a, b) }
    }
    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    fn join(self, high: __m256i, low: __m256i) -> __m256i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm256_add_epi32(_mm256_slli_epi32::<8>(high), low) }
    }
    #[inline(always)]
    fn to_f32(self, a: __m256i) -> __m256 {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm256_cvtepi32_ps(a) }
    }
    #[inline(always)]
    fn rounds(self) -> Option<impl Round> {
        Some(self.floats)
    }
}
