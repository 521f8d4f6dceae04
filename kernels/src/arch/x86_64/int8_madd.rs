//! Int8 products on x86-64 without VNNI: the code converts int8 to 16 bits, and one instruction multiplies pairs of
//! 16-bit numbers and adds the two products of each pair, exactly. (`vpmaddubsw`, which multiplies bytes directly,
//! saturates at 16 bits.)
//!
//! Of the four bytes of a word, the first and the third are one pair and the second and the fourth are the other,
//! because two shifts make the first pair and one shift makes the second. Each pair is multiplied with the same pair
//! of a row.

use crate::arch::x86_64::features::{compiled_for_v3, compiled_for_v4};
use crate::simd::int8::{ActivationEncoding, Int8Dot, Int8Op};
use crate::simd::quantize::Round;
use core::arch::x86_64::{
    __m256, __m256i, __m512, __m512i, _mm256_add_epi32, _mm256_cvtepi32_ps, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_set1_epi32, _mm256_setzero_si256, _mm256_slli_epi16,
    _mm256_slli_epi32, _mm256_srai_epi16, _mm512_add_epi32, _mm512_cvtepi32_ps, _mm512_loadu_si512,
    _mm512_madd_epi16, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_slli_epi16,
    _mm512_slli_epi32, _mm512_srai_epi16,
};
use pulp::x86::{V3, V4};

/// The two pairs of each lane.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<V> {
    first_and_third: V,
    second_and_fourth: V,
}

/// Proof of AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Madd256(pub(crate) V3);

impl Madd256 {
    /// Runs `kernel` with everything that is inlined into it compiled for this set.
    #[inline]
    pub(crate) fn enter<K: Int8Op>(self, kernel: K) -> K::Output {
        self.call_noinline(kernel)
    }
}

// SAFETY: `Self::I32` has eight lanes, as many as `V3` has of f32, and loads read one vector;
// `ROWS` and `TALL` are at most `MAX_MR`.
unsafe impl Int8Dot for Madd256 {
    const ROWS: usize = 2;
    const TALL: usize = 4;
    const STORED: ActivationEncoding = ActivationEncoding::Pairs;
    const SUMS: usize = 1;
    type Floats = V3;
    type I32 = __m256i;
    type I8x4 = Pairs<__m256i>;

    #[inline(always)]
    fn floats(self) -> V3 {
        self.0
    }
    #[inline(always)]
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output {
        compiled_for_v3! {
            #[inline(never)]
            fn inside<K: Int8Op>(set: Madd256, kernel: K) -> K::Output {
                kernel.run::<Madd256, 4, 2>(set)
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
    unsafe fn load(self, from: *const i32) -> Pairs<__m256i> {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe {
            let bytes = self.load_sums(from);
            Pairs {
                first_and_third: _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)),
                second_and_fourth: _mm256_srai_epi16::<8>(bytes),
            }
        }
    }
    #[inline(always)]
    unsafe fn row(self, from: *const i32) -> Pairs<__m256i> {
        // SAFETY: the caller's contract covers two words; `self` proves that the CPU has the instruction set.
        unsafe {
            Pairs {
                first_and_third: _mm256_set1_epi32(*from),
                second_and_fourth: _mm256_set1_epi32(*from.add(1)),
            }
        }
    }
    #[inline(always)]
    fn dot(self, sum: __m256i, a: Pairs<__m256i>, b: Pairs<__m256i>) -> __m256i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let sum = self.add(sum, _mm256_madd_epi16(a.first_and_third, b.first_and_third));
            self.add(sum, _mm256_madd_epi16(a.second_and_fourth, b.second_and_fourth))
        }
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
        Some(self.0)
    }
}

/// Proof of AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct Madd512(pub(crate) V4);

impl Madd512 {
    /// Runs `kernel` with everything that is inlined into it compiled for this set.
    #[inline]
    pub(crate) fn enter<K: Int8Op>(self, kernel: K) -> K::Output {
        self.call_noinline(kernel)
    }
}

// SAFETY: `Self::I32` has sixteen lanes, as many as `V4` has of f32, and loads read one vector;
// `ROWS` and `TALL` are at most `MAX_MR`.
unsafe impl Int8Dot for Madd512 {
    const ROWS: usize = 6;
    const TALL: usize = 6;
    const STORED: ActivationEncoding = ActivationEncoding::Pairs;
    const SUMS: usize = 1;
    type Floats = V4;
    type I32 = __m512i;
    type I8x4 = Pairs<__m512i>;

    #[inline(always)]
    fn floats(self) -> V4 {
        self.0
    }
    #[inline(always)]
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output {
        compiled_for_v4! {
            #[inline(never)]
            fn inside<K: Int8Op>(set: Madd512, kernel: K) -> K::Output {
                kernel.run::<Madd512, 2, 2>(set)
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
    unsafe fn load(self, from: *const i32) -> Pairs<__m512i> {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe {
            let bytes = self.load_sums(from);
            Pairs {
                first_and_third: _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(bytes)),
                second_and_fourth: _mm512_srai_epi16::<8>(bytes),
            }
        }
    }
    #[inline(always)]
    unsafe fn row(self, from: *const i32) -> Pairs<__m512i> {
        // SAFETY: the caller's contract covers two words; `self` proves that the CPU has the instruction set.
        unsafe {
            Pairs {
                first_and_third: _mm512_set1_epi32(*from),
                second_and_fourth: _mm512_set1_epi32(*from.add(1)),
            }
        }
    }
    #[inline(always)]
    fn dot(self, sum: __m512i, a: Pairs<__m512i>, b: Pairs<__m512i>) -> __m512i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let sum = self.add(sum, _mm512_madd_epi16(a.first_and_third, b.first_and_third));
            self.add(sum, _mm512_madd_epi16(a.second_and_fourth, b.second_and_fourth))
        }
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
        Some(self.0)
    }
}
