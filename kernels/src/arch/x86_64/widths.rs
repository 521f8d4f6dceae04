//! The integer intrinsics of AVX2 and AVX-512 under the same names, so that a macro over these modules writes code for
//! both once.

/// Functions that are the same for both widths.
macro_rules! functions {
    () => {
        /// Transposes four vectors within each 128 bits.
        ///
        /// # Safety
        /// The CPU has the instruction set.
        #[inline(always)]
        pub(crate) unsafe fn transpose_in_parts([a, b, c, d]: [Floats; 4]) -> [Floats; 4] {
            // SAFETY: the caller's contract.
            unsafe {
                let (ab_low, ab_high) = (unpacklo_ps(a, b), unpackhi_ps(a, b));
                let (cd_low, cd_high) = (unpacklo_ps(c, d), unpackhi_ps(c, d));
                [
                    shuffle_ps::<0b01_00_01_00>(ab_low, cd_low),
                    shuffle_ps::<0b11_10_11_10>(ab_low, cd_low),
                    shuffle_ps::<0b01_00_01_00>(ab_high, cd_high),
                    shuffle_ps::<0b11_10_11_10>(ab_high, cd_high),
                ]
            }
        }
    };
}

/// Vectors of 256 bits.
pub(super) mod avx2 {
    pub(crate) use core::arch::x86_64::{
        __m256 as Floats, __m256i as Ints, _mm256_add_epi32 as add_epi32,
        _mm256_and_si256 as and_bits, _mm256_broadcastsi128_si256 as broadcast_128,
        _mm256_castps_si256 as to_ints, _mm256_castsi256_ps as to_floats,
        _mm256_cvtepi32_ps as cvtepi32_ps, _mm256_cvtps_epi32 as cvtps_epi32,
        _mm256_dpbusd_avx_epi32 as dpbusd, _mm256_loadu_si256 as loadu,
        _mm256_madd_epi16 as madd_epi16, _mm256_max_epi32 as max_epi32, _mm256_or_si256 as or_bits,
        _mm256_packs_epi16 as packs_epi16, _mm256_packs_epi32 as packs_epi32,
        _mm256_packus_epi16 as packus_epi16, _mm256_set1_epi8 as set1_epi8,
        _mm256_set1_epi32 as set1_epi32, _mm256_setzero_si256 as setzero,
        _mm256_shuffle_epi8 as shuffle_epi8, _mm256_shuffle_ps as shuffle_ps,
        _mm256_slli_epi16 as slli_epi16, _mm256_slli_epi32 as slli_epi32,
        _mm256_srai_epi16 as srai_epi16, _mm256_srai_epi32 as srai_epi32,
        _mm256_storeu_si256 as storeu, _mm256_sub_epi8 as sub_epi8, _mm256_sub_epi16 as sub_epi16,
        _mm256_unpackhi_ps as unpackhi_ps, _mm256_unpacklo_ps as unpacklo_ps,
        _mm256_xor_si256 as xor_bits,
    };
    use core::arch::x86_64::{
        _mm_cvtsi128_si32, _mm_max_epi32, _mm_shuffle_epi32, _mm_storeu_ps, _mm256_castps256_ps128,
        _mm256_castsi256_si128, _mm256_extractf128_ps, _mm256_extracti128_si256,
        _mm256_permutevar8x32_ps, _mm256_setr_epi32,
    };
    pub(crate) use pulp::x86::V3 as Token;

    functions!();

    /// Parts of 128 bits in a vector.
    pub(crate) const PARTS: usize = 2;

    /// The largest lane.
    ///
    /// # Safety
    /// The CPU has AVX2.
    #[inline(always)]
    pub(crate) unsafe fn reduce_max_epi32(all: Ints) -> i32 {
        // SAFETY: the caller's contract.
        unsafe {
            let all =
                _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
            let all = _mm_max_epi32(all, _mm_shuffle_epi32::<0b01_00_11_10>(all));
            let all = _mm_max_epi32(all, _mm_shuffle_epi32::<0b10_11_00_01>(all));
            _mm_cvtsi128_si32(all)
        }
    }

    /// The first lane of each 128 bits, then the second of each, and so on.
    ///
    /// # Safety
    /// The CPU has AVX2.
    #[inline(always)]
    pub(crate) unsafe fn transpose_parts(x: Floats) -> Floats {
        // SAFETY: the caller's contract.
        unsafe { _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)) }
    }

    /// Stores 128 bits at each of [`PARTS`] places.
    ///
    /// # Safety
    /// The CPU has AVX2. `to` is valid for writes of four floats at each of `PARTS` offsets.
    #[inline(always)]
    pub(crate) unsafe fn store_parts(x: Floats, to: *mut f32, stride: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            _mm_storeu_ps(to, _mm256_castps256_ps128(x));
            _mm_storeu_ps(to.add(stride), _mm256_extractf128_ps::<1>(x));
        }
    }
}

/// Vectors of 512 bits.
pub(super) mod avx512 {
    pub(crate) use core::arch::x86_64::{
        __m512 as Floats, __m512i as Ints, _mm512_add_epi32 as add_epi32,
        _mm512_and_si512 as and_bits, _mm512_broadcast_i32x4 as broadcast_128,
        _mm512_castps_si512 as to_ints, _mm512_castsi512_ps as to_floats,
        _mm512_cvtepi32_ps as cvtepi32_ps, _mm512_cvtps_epi32 as cvtps_epi32,
        _mm512_dpbusd_epi32 as dpbusd, _mm512_loadu_si512 as loadu,
        _mm512_madd_epi16 as madd_epi16, _mm512_max_epi32 as max_epi32, _mm512_or_si512 as or_bits,
        _mm512_packs_epi16 as packs_epi16, _mm512_packs_epi32 as packs_epi32,
        _mm512_packus_epi16 as packus_epi16, _mm512_reduce_max_epi32 as reduce_max_epi32,
        _mm512_set1_epi8 as set1_epi8, _mm512_set1_epi32 as set1_epi32,
        _mm512_setzero_si512 as setzero, _mm512_shuffle_epi8 as shuffle_epi8,
        _mm512_shuffle_ps as shuffle_ps, _mm512_slli_epi16 as slli_epi16,
        _mm512_slli_epi32 as slli_epi32, _mm512_srai_epi16 as srai_epi16,
        _mm512_srai_epi32 as srai_epi32, _mm512_storeu_si512 as storeu,
        _mm512_sub_epi8 as sub_epi8, _mm512_sub_epi16 as sub_epi16,
        _mm512_unpackhi_ps as unpackhi_ps, _mm512_unpacklo_ps as unpacklo_ps,
        _mm512_xor_si512 as xor_bits,
    };
    use core::arch::x86_64::{
        _mm_storeu_ps, _mm512_castps512_ps128, _mm512_extractf32x4_ps, _mm512_permutexvar_ps,
        _mm512_setr_epi32,
    };
    pub(crate) use pulp::x86::V4 as Token;

    functions!();

    /// Parts of 128 bits in a vector.
    pub(crate) const PARTS: usize = 4;

    /// The first lane of each 128 bits, then the second of each, and so on.
    ///
    /// # Safety
    /// The CPU has AVX-512.
    #[inline(always)]
    pub(crate) unsafe fn transpose_parts(x: Floats) -> Floats {
        // SAFETY: the caller's contract.
        unsafe {
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            _mm512_permutexvar_ps(order, x)
        }
    }

    /// Stores 128 bits at each of [`PARTS`] places.
    ///
    /// # Safety
    /// The CPU has AVX-512. `to` is valid for writes of four floats at each of `PARTS` offsets.
    #[inline(always)]
    pub(crate) unsafe fn store_parts(x: Floats, to: *mut f32, stride: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            _mm_storeu_ps(to, _mm512_castps512_ps128(x));
            _mm_storeu_ps(to.add(stride), _mm512_extractf32x4_ps::<1>(x));
            _mm_storeu_ps(to.add(2 * stride), _mm512_extractf32x4_ps::<2>(x));
            _mm_storeu_ps(to.add(3 * stride), _mm512_extractf32x4_ps::<3>(x));
        }
    }
}
