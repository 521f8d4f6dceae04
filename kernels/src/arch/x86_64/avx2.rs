//! AVX2 with FMA: 8 lanes, 16 registers.

use crate::arch::x86_64::features::compiled_for_v3;
use crate::arch::x86_64::widths::avx2::transpose_in_parts;
use crate::simd::table::{POWERS, Table};
use crate::simd::vector::{SimdF32, SimdOp};
use core::arch::x86_64::{__m256, __m256i, _CMP_LT_OQ, _CMP_NLT_UQ};
use pulp::x86::V3;

/// Eight words with all bits set, then eight zeros: eight words from an offset are a mask of the first lanes.
static WINDOW: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

#[inline(always)]
fn mask_of(lanes: V3, count: usize) -> __m256i {
    let start = 8 - if count < 8 { count } else { 8 };
    // SAFETY: `start <= 8`, so eight words from it are inside the table.
    unsafe { lanes.avx._mm256_loadu_si256(WINDOW.as_ptr().add(start).cast()) }
}

// SAFETY: 8 lanes, panels of 2 x 8 = 16; the masked operations touch only the lanes of their mask.
unsafe impl SimdF32 for V3 {
    sizes!(8 lanes, 2 in a panel, 16 registers);
    type F32 = __m256;
    type Mask = __m256;

    call_noinline!(compiled_for_v3: SimdF32, SimdOp);
    without_half_vectors!();

    prefetch_items!();
    memory_access! {
        load(s, from: *const f32) -> __m256 = s.avx._mm256_loadu_ps(from);
        store(s, to: *mut f32, v: __m256) = s.avx._mm256_storeu_ps(to, v);
        // Masked lanes are not accessed.
        store_prefix(s, to: *mut f32, v: __m256, count: usize) =
            s.avx._mm256_maskstore_ps(to, mask_of(s, count), v);
        // 8 rows of 8 floats.
        transpose(s, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) = {
            let mut t = [s.splat(0.0); 8];
            for half in 0..2 {
                let from = from.add(4 * half * from_stride);
                let (a, b) = (s.load(from), s.load(from.add(from_stride)));
                let (c, d) = (s.load(from.add(2 * from_stride)), s.load(from.add(3 * from_stride)));
                t[4 * half..][..4].copy_from_slice(&transpose_in_parts([a, b, c, d]));
            }
            for c in 0..4 {
                let low = s.avx._mm256_permute2f128_ps::<0x20>(t[c], t[4 + c]);
                let high = s.avx._mm256_permute2f128_ps::<0x31>(t[c], t[4 + c]);
                s.store(to.add(c * to_stride), low);
                s.store(to.add((c + 4) * to_stride), high);
            }
        };
    }

    #[inline(always)]
    unsafe fn load_prefix(self, from: *const f32, count: usize) -> __m256 {
        // A CPU does not access the lanes outside of the mask. QEMU 7.2 reads the whole vector and faults if the address of
        // an empty prefix is not valid.
        let from = if count == 0 { WINDOW.as_ptr().cast() } else { from };
        // SAFETY: masked lanes are not accessed; the caller's contract covers the others.
        unsafe { self.avx._mm256_maskload_ps(from, mask_of(self, count)) }
    }
    // Each vector of weights is one piece of assembly, which the compiler neither splits nor merges with another: it
    // would keep parts of vectors in registers for later, and tiles have no free registers.
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const f32, part: usize) -> __m256 {
        asm_load!(lower: "avx2", ymm_reg -> __m256, "vmovups {0}, ymmword ptr [{1}]", "vpslld {0}, {0}, 16");
        asm_load!(upper: "avx", ymm_reg -> __m256, "vandps {0}, {2}, ymmword ptr [{1}]", mask: __m256i);
        // SAFETY: the token proves AVX2; the rest is the caller's contract.
        unsafe {
            match part {
                0 => lower(from),
                _ => upper(from, self.avx._mm256_set1_epi32(-1 << 16)),
            }
        }
    }
    #[inline(always)]
    unsafe fn load_bf16_alone(self, from: *const f32, part: usize) -> __m256 {
        asm_load!(upper: "avx2", ymm_reg -> __m256,
            "vmovups {0}, ymmword ptr [{1}]", "vpsrld {0}, {0}, 16", "vpslld {0}, {0}, 16");
        // SAFETY: the token proves AVX2; the rest is the caller's contract.
        unsafe { if part == 0 { self.load_bf16(from, part) } else { upper(from) } }
    }
    // The intrinsic would be a call: the token does not include F16C, which `Isa` checks separately.
    #[inline(always)]
    unsafe fn load_f16(self, from: *const f32, part: usize) -> __m256 {
        asm_load!(lower: "avx", ymm_reg -> __m256, "vcvtph2ps {0}, xmmword ptr [{1}]");
        asm_load!(upper: "avx", ymm_reg -> __m256, "vcvtph2ps {0}, xmmword ptr [{1} + 16]");
        // SAFETY: the contract of `SimdF32::load_f16`: the eight numbers of `part` can be read. `Isa` makes no token of
        // AVX2 without F16C.
        unsafe { if part == 0 { lower(from) } else { upper(from) } }
    }

    of_two!(avx: add = _mm256_add_ps, sub = _mm256_sub_ps, mul = _mm256_mul_ps, div = _mm256_div_ps,
        max = _mm256_max_ps, min = _mm256_min_ps);
    lanewise! {
        splat(s, x: f32) = s.avx._mm256_set1_ps(x);
        #[cfg(feature = "train")]
        sqrt(s, a) = s.avx._mm256_sqrt_ps(a);
        mul_add(s, a, b, c) = s.fma._mm256_fmadd_ps(a, b, c);
        abs(s, a) = s.avx._mm256_andnot_ps(s.splat(-0.0), a);
        copy_sign(s, magnitude, sign) = {
            let negative = s.avx._mm256_or_ps(magnitude, s.splat(-0.0));
            s.avx._mm256_blendv_ps(s.abs(magnitude), negative, sign)
        };
        lookup(s, table: &'static Table, index) = {
            // SAFETY: a table has sixteen floats.
            let table = unsafe { s.load(table.as_ptr()) };
            s.avx2._mm256_permutevar8x32_ps(table, s.avx._mm256_castps_si256(index))
        };
        exp_result(s, _x, t, p) = {
            let fraction = s.avx._mm256_castps_si256(s.lookup(&POWERS, t));
            let exponent = s.avx2._mm256_slli_epi32::<20>(s.avx._mm256_castps_si256(t));
            let power = s.avx2._mm256_add_epi32(fraction, exponent);
            // 0 where the exponent is 0; it is never negative.
            let power = s.avx2._mm256_sign_epi32(power, exponent);
            let power = s.avx._mm256_castsi256_ps(power);
            s.mul_add(power, p, power)
        };

        less(s, a, b) -> __m256 = s.avx._mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
        not_less(s, a, b) -> __m256 = s.avx._mm256_cmp_ps::<_CMP_NLT_UQ>(a, b);
        first(s, count: usize) -> __m256 = s.avx._mm256_castsi256_ps(mask_of(s, count));
        select(s, mask: __m256, yes, no) = s.avx._mm256_blendv_ps(no, yes, mask);
        any(s, mask: __m256) -> bool = s.avx._mm256_movemask_ps(mask) != 0;

        reduce_add(s, a) -> f32 = {
            let upper = s.avx._mm256_extractf128_ps::<1>(a);
            let four = s.sse._mm_add_ps(s.avx._mm256_castps256_ps128(a), upper);
            let two = s.sse._mm_add_ps(four, s.sse._mm_movehl_ps(four, four));
            s.sse._mm_cvtss_f32(s.sse._mm_add_ss(two, s.sse3._mm_movehdup_ps(two)))
        };
        reduce_max(s, a) -> f32 = {
            let upper = s.avx._mm256_extractf128_ps::<1>(a);
            let four = s.sse._mm_max_ps(s.avx._mm256_castps256_ps128(a), upper);
            let two = s.sse._mm_max_ps(four, s.sse._mm_movehl_ps(four, four));
            s.sse._mm_cvtss_f32(s.sse._mm_max_ss(two, s.sse3._mm_movehdup_ps(two)))
        };
    }
}
