//! Quantizes floats to words of bytes on x86-64. Conversions round to nearest even. Each narrowing instruction takes
//! two vectors and alternates 128 bits of one with 128 bits of the other.

use crate::simd::quantize::{LINES, Round};
use core::arch::x86_64::{
    __m256, __m256i, __m512, __m512i, _mm_cvtsi128_si32, _mm_max_epi32, _mm_setr_epi8,
    _mm_shuffle_epi32, _mm_storeu_ps, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_castps_si256, _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_castsi256_si128,
    _mm256_cvtps_epi32, _mm256_extractf128_ps, _mm256_extracti128_si256, _mm256_max_epi32,
    _mm256_packs_epi16, _mm256_packs_epi32, _mm256_packus_epi16, _mm256_permutevar8x32_ps,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_shuffle_ps, _mm256_srai_epi32, _mm256_unpackhi_ps,
    _mm256_unpacklo_ps, _mm256_xor_si256, _mm512_and_si512, _mm512_broadcast_i32x4,
    _mm512_castps_si512, _mm512_castps512_ps128, _mm512_castsi512_ps, _mm512_cvtps_epi32,
    _mm512_extractf32x4_ps, _mm512_max_epi32, _mm512_packs_epi16, _mm512_packs_epi32,
    _mm512_packus_epi16, _mm512_permutexvar_ps, _mm512_reduce_max_epi32, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_setr_epi32, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_shuffle_ps, _mm512_srai_epi32, _mm512_unpackhi_ps, _mm512_unpacklo_ps, _mm512_xor_si512,
};
use pulp::x86::{V3, V4};

impl Round for V4 {
    type Magnitudes = __m512i;

    #[inline(always)]
    fn none(self) -> __m512i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    fn larger(self, so_far: __m512i, x: __m512) -> __m512i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let magnitude =
                _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fff_ffff));
            _mm512_max_epi32(so_far, magnitude)
        }
    }
    #[inline(always)]
    fn largest(self, [a, b, c, d]: [__m512i; 4]) -> i32 {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let all = _mm512_max_epi32(_mm512_max_epi32(a, b), _mm512_max_epi32(c, d));
            _mm512_reduce_max_epi32(all)
        }
    }
    #[inline(always)]
    fn bytes(self, [a, b, c, d]: [__m512; 4]) -> __m512 {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let ab = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
            let cd = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
            let bytes = _mm512_packs_epi16(ab, cd);
            _mm512_castsi512_ps(_mm512_xor_si512(bytes, _mm512_set1_epi8(i8::MIN)))
        }
    }
    #[inline(always)]
    fn digits(self, [a, b, c, d]: [__m512; 4]) -> [__m512; 2] {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let (a, b) = (_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
            let (c, d) = (_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
            let ab = _mm512_packs_epi32(_mm512_srai_epi32::<8>(a), _mm512_srai_epi32::<8>(b));
            let cd = _mm512_packs_epi32(_mm512_srai_epi32::<8>(c), _mm512_srai_epi32::<8>(d));
            let high = _mm512_xor_si512(_mm512_packs_epi16(ab, cd), _mm512_set1_epi8(i8::MIN));
            let byte = _mm512_set1_epi32(0xff);
            let ab = _mm512_packs_epi32(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
            let cd = _mm512_packs_epi32(_mm512_and_si512(c, byte), _mm512_and_si512(d, byte));
            let low = _mm512_packus_epi16(ab, cd);
            [_mm512_castsi512_ps(high), _mm512_castsi512_ps(low)]
        }
    }
    #[inline(always)]
    fn pairs(self, [a, b, c, d]: [__m512; 4]) -> [__m512; 2] {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let order = _mm512_broadcast_i32x4(_mm_setr_epi8(
                0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,
            ));
            let ab = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
            let cd = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
            // The two words of each four elements become adjacent.
            let ab = _mm512_castsi512_ps(_mm512_shuffle_epi8(ab, order));
            let cd = _mm512_castsi512_ps(_mm512_shuffle_epi8(cd, order));
            [_mm512_shuffle_ps::<0b10_00_10_00>(ab, cd), _mm512_shuffle_ps::<0b11_01_11_01>(ab, cd)]
        }
    }
    #[inline(always)]
    fn in_order(self, words: __m512) -> __m512 {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            _mm512_permutexvar_ps(
                _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                words,
            )
        }
    }
    #[inline(always)]
    unsafe fn store_columns(self, [a, b, c, d]: [__m512; LINES], to: *mut f32, stride: usize) {
        // SAFETY: `self` proves that the CPU has the instructions; the rest is the caller's contract.
        unsafe {
            let (ab_low, ab_high) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
            let (cd_low, cd_high) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
            // Within each 128 bits: the first word of all lines, then the second, and so on.
            let columns = [
                _mm512_shuffle_ps::<0b01_00_01_00>(ab_low, cd_low),
                _mm512_shuffle_ps::<0b11_10_11_10>(ab_low, cd_low),
                _mm512_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high),
                _mm512_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high),
            ];
            for (v, column) in columns.into_iter().enumerate() {
                _mm_storeu_ps(to.add(4 * v * stride), _mm512_castps512_ps128(column));
                _mm_storeu_ps(to.add((4 * v + 1) * stride), _mm512_extractf32x4_ps::<1>(column));
                _mm_storeu_ps(to.add((4 * v + 2) * stride), _mm512_extractf32x4_ps::<2>(column));
                _mm_storeu_ps(to.add((4 * v + 3) * stride), _mm512_extractf32x4_ps::<3>(column));
            }
        }
    }
}

impl Round for V3 {
    type Magnitudes = __m256i;

    #[inline(always)]
    fn none(self) -> __m256i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    fn larger(self, so_far: __m256i, x: __m256) -> __m256i {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let magnitude =
                _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fff_ffff));
            _mm256_max_epi32(so_far, magnitude)
        }
    }
    #[inline(always)]
    fn largest(self, [a, b, c, d]: [__m256i; 4]) -> i32 {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let all = _mm256_max_epi32(_mm256_max_epi32(a, b), _mm256_max_epi32(c, d));
            let all =
                _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
            let all = _mm_max_epi32(all, _mm_shuffle_epi32::<0b01_00_11_10>(all));
            let all = _mm_max_epi32(all, _mm_shuffle_epi32::<0b10_11_00_01>(all));
            _mm_cvtsi128_si32(all)
        }
    }
    #[inline(always)]
    fn bytes(self, [a, b, c, d]: [__m256; 4]) -> __m256 {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let ab = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
            let cd = _mm256_packs_epi32(_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
            let bytes = _mm256_packs_epi16(ab, cd);
            _mm256_castsi256_ps(_mm256_xor_si256(bytes, _mm256_set1_epi8(i8::MIN)))
        }
    }
    #[inline(always)]
    fn digits(self, [a, b, c, d]: [__m256; 4]) -> [__m256; 2] {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let (a, b) = (_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
            let (c, d) = (_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
            let ab = _mm256_packs_epi32(_mm256_srai_epi32::<8>(a), _mm256_srai_epi32::<8>(b));
            let cd = _mm256_packs_epi32(_mm256_srai_epi32::<8>(c), _mm256_srai_epi32::<8>(d));
            let high = _mm256_xor_si256(_mm256_packs_epi16(ab, cd), _mm256_set1_epi8(i8::MIN));
            let byte = _mm256_set1_epi32(0xff);
            let ab = _mm256_packs_epi32(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte));
            let cd = _mm256_packs_epi32(_mm256_and_si256(c, byte), _mm256_and_si256(d, byte));
            let low = _mm256_packus_epi16(ab, cd);
            [_mm256_castsi256_ps(high), _mm256_castsi256_ps(low)]
        }
    }
    #[inline(always)]
    fn pairs(self, [a, b, c, d]: [__m256; 4]) -> [__m256; 2] {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(
                0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,
            ));
            let ab = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
            let cd = _mm256_packs_epi32(_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
            // The two words of each four elements become adjacent.
            let ab = _mm256_castsi256_ps(_mm256_shuffle_epi8(ab, order));
            let cd = _mm256_castsi256_ps(_mm256_shuffle_epi8(cd, order));
            [_mm256_shuffle_ps::<0b10_00_10_00>(ab, cd), _mm256_shuffle_ps::<0b11_01_11_01>(ab, cd)]
        }
    }
    #[inline(always)]
    fn in_order(self, words: __m256) -> __m256 {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { _mm256_permutevar8x32_ps(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)) }
    }
    #[inline(always)]
    unsafe fn store_columns(self, [a, b, c, d]: [__m256; LINES], to: *mut f32, stride: usize) {
        // SAFETY: `self` proves that the CPU has the instructions; the rest is the caller's contract.
        unsafe {
            let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
            // Within each 128 bits: the first word of all lines, then the second, and so on.
            let columns = [
                _mm256_shuffle_ps::<0b01_00_01_00>(ab_low, cd_low),
                _mm256_shuffle_ps::<0b11_10_11_10>(ab_low, cd_low),
                _mm256_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high),
                _mm256_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high),
            ];
            for (v, column) in columns.into_iter().enumerate() {
                _mm_storeu_ps(to.add(2 * v * stride), _mm256_castps256_ps128(column));
                _mm_storeu_ps(to.add((2 * v + 1) * stride), _mm256_extractf128_ps::<1>(column));
            }
        }
    }
}
