//! AVX-512 (F, BW, CD, DQ, VL): 16 lanes, 32 registers, mask registers.

use crate::arch::x86_64::features::compiled_for_v4;
use crate::arch::x86_64::widths::avx512::transpose_in_parts;
use crate::simd::table::{EXP_ZERO, POWERS, Table};
use crate::simd::vector::{SimdF32, SimdOp};
use core::arch::x86_64::{
    __m256, __m512, __m512i, __mmask16, _CMP_LT_OQ, _CMP_NLE_UQ, _CMP_NLT_UQ,
};
use pulp::x86::{V3, V4};

#[inline(always)]
fn mask_of(count: usize) -> __mmask16 {
    if count >= 16 { u16::MAX } else { (1u16 << count) - 1 }
}

// SAFETY: 16 lanes, panels of 4 x 16 = 64; the masked operations touch only the lanes of their mask.
unsafe impl SimdF32 for V4 {
    sizes!(16 lanes, 4 in a panel, 32 registers);
    const MAY_PREFER_HW_PREFETCH: bool = true;
    type Half = V3;
    type F32 = __m512;
    type Mask = __mmask16;

    call_noinline!(compiled_for_v4: SimdF32, SimdOp);

    prefetch_items!();
    memory_access! {
        load(s, from: *const f32) -> __m512 = s.avx512f._mm512_loadu_ps(from);
        // Masked lanes are not accessed (faults are suppressed).
        load_prefix(s, from: *const f32, count: usize) -> __m512 =
            s.avx512f._mm512_maskz_loadu_ps(mask_of(count), from);
        store(s, to: *mut f32, v: __m512) = s.avx512f._mm512_storeu_ps(to, v);
        store_prefix(s, to: *mut f32, v: __m512, count: usize) =
            s.avx512f._mm512_mask_storeu_ps(to, mask_of(count), v);
        store_nontemporal(s, to: *mut f32, v: __m512) = s.avx512f._mm512_stream_ps(to, v);
        transpose(s, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) =
            store_transposed::<false>(s, load_rows(s, from, from_stride, 16), to, to_stride);
        transpose_nontemporal(
            s, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize
        ) = store_transposed::<true>(s, load_rows(s, from, from_stride, 16), to, to_stride);
        transpose_first(
            s, from: *const f32, from_stride: usize, rows: usize, to: *mut f32, to_stride: usize
        ) = store_transposed::<false>(s, load_rows(s, from, from_stride, rows), to, to_stride);
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const f32, part: usize) -> __m512 {
        let f = self.avx512f;
        if part == 0 {
            // SAFETY: the caller's contract.
            let words = f._mm512_castps_si512(unsafe { self.load(from) });
            return f._mm512_castsi512_ps(f._mm512_slli_epi32::<16>(words));
        }
        // With intrinsics, the compiler would keep the vector that was loaded for the other half in a register until
        // here and mask it; tiles have no free register.
        asm_load!(upper: "avx512f", zmm_reg -> __m512, "vpandd {0}, {2}, zmmword ptr [{1}]", mask: __m512i);
        // SAFETY: the token proves AVX-512; the rest is the caller's contract.
        unsafe { upper(from, f._mm512_set1_epi32(-1 << 16)) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const f32, part: usize) -> __m512 {
        // SAFETY: the contract of `SimdF32::load_f16`: the sixteen numbers of `part` can be read.
        let halves = unsafe { self.avx._mm256_loadu_si256(from.add(8 * part).cast()) };
        self.avx512f._mm512_cvtph_ps(halves)
    }
    #[inline(always)]
    unsafe fn load_f16_half(self, from: *const f32, part: usize) -> __m256 {
        // SAFETY: the contract of `SimdF32::load_f16_half`: the first eight numbers of `part` can be read.
        let halves = unsafe { self.sse2._mm_loadu_si128(from.add(8 * part).cast()) };
        self.avx512vl._mm256_maskz_cvtph_ps(u8::MAX, halves)
    }
    #[inline(always)]
    fn prefers_hw_prefetch(self) -> bool {
        crate::arch::x86_64::detect_hw_prefetcher::prefers_hw_prefetch()
    }

    of_two!(avx512f: add = _mm512_add_ps, sub = _mm512_sub_ps, mul = _mm512_mul_ps, div = _mm512_div_ps,
        max = _mm512_max_ps, min = _mm512_min_ps);
    lanewise! {
        half(s) -> V3 = *s;
        splat(s, x: f32) = s.avx512f._mm512_set1_ps(x);
        #[cfg(feature = "train")]
        sqrt(s, a) = s.avx512f._mm512_sqrt_ps(a);
        mul_add(s, a, b, c) = s.avx512f._mm512_fmadd_ps(a, b, c);
        abs(s, a) = s.avx512f._mm512_abs_ps(a);
        copy_sign(s, magnitude, sign) = {
            let (dq, bit) = (s.avx512dq, s.splat(-0.0));
            dq._mm512_or_ps(dq._mm512_andnot_ps(bit, magnitude), dq._mm512_and_ps(bit, sign))
        };
        lookup(s, table: &'static Table, index) = {
            // SAFETY: a table has sixteen floats.
            let table = unsafe { s.load(table.as_ptr()) };
            s.avx512f._mm512_permutexvar_ps(s.avx512f._mm512_castps_si512(index), table)
        };
        // Masked lanes take no slow path, whatever their operands are.
        exp_argument(_s, x) = x;
        exp_result(s, x, t, p) = {
            let f = s.avx512f;
            let fraction = f._mm512_castps_si512(s.lookup(&POWERS, t));
            let exponent = f._mm512_slli_epi32::<20>(f._mm512_castps_si512(t));
            let power = f._mm512_castsi512_ps(f._mm512_add_epi32(fraction, exponent));
            let keep = f._mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x, s.splat(EXP_ZERO));
            f._mm512_maskz_fmadd_ps(keep, power, p, power)
        };

        less(s, a, b) -> __mmask16 = s.avx512f._mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
        not_less(s, a, b) -> __mmask16 = s.avx512f._mm512_cmp_ps_mask::<_CMP_NLT_UQ>(a, b);
        first(_s, count: usize) -> __mmask16 = mask_of(count);
        select(s, mask: __mmask16, yes, no) = s.avx512f._mm512_mask_blend_ps(mask, no, yes);
        any(_s, mask: __mmask16) -> bool = mask != 0;

        reduce_add(s, a) -> f32 = s.avx512f._mm512_reduce_add_ps(a);
        reduce_max(s, a) -> f32 = s.avx512f._mm512_reduce_max_ps(a);
    }

    #[inline(always)]
    fn fence(self) {
        self.sse._mm_sfence();
    }
}

/// Loads `rows` rows of 16 floats; the others are zeros.
///
/// # Safety
/// `from` is valid for reads of 16 floats at each of `rows` rows `stride` apart.
#[inline(always)]
unsafe fn load_rows(s: V4, from: *const f32, stride: usize, rows: usize) -> [__m512; 16] {
    let mut r = [s.splat(0.0); 16];
    for (i, row) in r.iter_mut().enumerate() {
        let mask = if i < rows { u16::MAX } else { 0 };
        // A load waits for its cache line even if all of it is masked, so missing rows use the address of the last row.
        let at = from.wrapping_add(i.min(rows.saturating_sub(1)) * stride);
        // SAFETY: missing rows are masked; the caller's contract covers the others.
        *row = unsafe { s.avx512f._mm512_maskz_loadu_ps(mask, at) };
    }
    r
}

/// Stores the transpose of 16 rows of 16 floats, with non-temporal stores if `NONTEMPORAL`.
///
/// # Safety
/// `to` is valid for writes of 16 floats at each of 16 rows `to_stride` apart; if `NONTEMPORAL`, each row is aligned
/// to a cache line.
#[inline(always)]
unsafe fn store_transposed<const NONTEMPORAL: bool>(
    s: V4,
    r: [__m512; 16],
    to: *mut f32,
    to_stride: usize,
) {
    let f = s.avx512f;
    let zero = s.splat(0.0);
    // 4x4 transposes inside each 128-bit lane.
    let mut t = [zero; 16];
    for q in 0..4 {
        let rows = [r[4 * q], r[4 * q + 1], r[4 * q + 2], r[4 * q + 3]];
        // SAFETY: the token proves AVX-512.
        t[4 * q..][..4].copy_from_slice(&unsafe { transpose_in_parts(rows) });
    }
    // A 4x4 transpose of the 128-bit lanes.
    for c in 0..4 {
        let low = f._mm512_shuffle_f32x4::<0x44>(t[c], t[4 + c]);
        let high = f._mm512_shuffle_f32x4::<0xee>(t[c], t[4 + c]);
        let low2 = f._mm512_shuffle_f32x4::<0x44>(t[8 + c], t[12 + c]);
        let high2 = f._mm512_shuffle_f32x4::<0xee>(t[8 + c], t[12 + c]);
        let columns = [
            f._mm512_shuffle_f32x4::<0x88>(low, low2),
            f._mm512_shuffle_f32x4::<0xdd>(low, low2),
            f._mm512_shuffle_f32x4::<0x88>(high, high2),
            f._mm512_shuffle_f32x4::<0xdd>(high, high2),
        ];
        for (lane, column) in columns.into_iter().enumerate() {
            // SAFETY: `4 * lane + c < 16`, so the row is covered by the caller's contract.
            unsafe {
                let to = to.add((4 * lane + c) * to_stride);
                if NONTEMPORAL { s.store_nontemporal(to, column) } else { s.store(to, column) }
            }
        }
    }
}
