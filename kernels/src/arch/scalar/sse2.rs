//! The scalar set on x86-64, where every program may use SSE2: groups of eight floats in two registers.
//!
//! Each lane is computed as in `portable.rs`, with the same bits. With arrays of eight floats, which the compiler must
//! convert to vectors, LLVM spent 10.2 of 41 s in functions of the scalar set; with SSE2 registers it spends 4.4 of 29
//! s. For the same reason, operations without an SSE2 instruction are separate functions here.

use crate::arch::scalar::Scalar;
use crate::arch::scalar::soft_fma::mul_add;
use crate::simd::half::widen_f16;
use crate::simd::vector::{SimdF32, SimdOp, TileOp, panels};
use core::arch::x86_64::*;

/// Lanes 0 to 3, and 4 to 7.
#[derive(Clone, Copy)]
pub(crate) struct F32x8([__m128; 2]);

/// In each lane all bits are set, or none.
#[derive(Clone, Copy)]
pub(crate) struct Mask8([__m128; 2]);

/// Applies SSE2 intrinsics to both halves.
macro_rules! halves {
    (|$($half:ident),+| $body:expr) => {{
        // SAFETY: every x86-64 CPU has SSE2.
        unsafe { [{ $(let $half = $half.0[0];)+ $body }, { $(let $half = $half.0[1];)+ $body }] }
    }};
}

#[inline(always)]
fn to_array(v: F32x8) -> [f32; 8] {
    // SAFETY: both types are eight floats.
    unsafe { core::mem::transmute(v.0) }
}

#[inline(always)]
fn from_array(v: [f32; 8]) -> F32x8 {
    // SAFETY: both types are eight floats.
    F32x8(unsafe { core::mem::transmute::<[f32; 8], [__m128; 2]>(v) })
}

/// # Safety
/// `from` is valid for reads of `count <= 8` floats.
#[inline(never)]
unsafe fn load_prefix(from: *const f32, count: usize) -> [f32; 8] {
    let mut out = [0.0; 8];
    for (i, lane) in out.iter_mut().enumerate().take(count) {
        // SAFETY: `i < count`, and the caller's contract covers `count` floats.
        *lane = unsafe { from.add(i).read_unaligned() };
    }
    out
}

/// # Safety
/// `to` is valid for writes of `count <= 8` floats.
#[inline(never)]
unsafe fn store_prefix(to: *mut f32, v: &[f32; 8], count: usize) {
    for (i, lane) in v.iter().enumerate().take(count) {
        // SAFETY: `i < count`, and the caller's contract covers `count` floats.
        unsafe { to.add(i).write_unaligned(*lane) };
    }
}

#[inline(never)]
fn widen_eight(halves: &[u16; 8]) -> [f32; 8] {
    let mut out = [0.0; 8];
    for (lane, &half) in out.iter_mut().zip(halves) {
        *lane = widen_f16(half);
    }
    out
}

/// # Safety
/// As [`SimdF32::transpose`].
#[inline(never)]
unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    for i in 0..8 {
        for j in 0..8 {
            // SAFETY: the caller's contract: 8 rows of 8 floats at `from` and at `to`.
            unsafe { *to.add(j * to_stride + i) = *from.add(i * from_stride + j) };
        }
    }
}

// SAFETY: 8 lanes, panels of 8; partial accesses go lane by lane.
unsafe impl SimdF32 for Scalar {
    const LANES: usize = 8;
    const PANEL: usize = 8;
    const REGISTERS: usize = 16;
    const PREFETCHES: bool = false;
    const SOFT_FMA: bool = true;
    const MAY_PREFER_HW_PREFETCH: bool = false;
    type Half = Self;
    type F32 = F32x8;
    type Mask = Mask8;

    #[inline(always)]
    fn with_tile_width<K: TileOp>(self, kernel: K) -> K::Output {
        panels::<Self, K, 1>(self, kernel)
    }

    #[inline(never)]
    fn call_noinline<K: SimdOp>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn half(self) -> Self {
        self
    }
    #[inline(always)]
    fn splat(self, x: f32) -> F32x8 {
        // SAFETY: every x86-64 CPU has SSE2.
        F32x8(unsafe { [_mm_set1_ps(x), _mm_set1_ps(x)] })
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F32x8 {
        // SAFETY: the caller's contract: eight floats.
        F32x8(unsafe { [_mm_loadu_ps(from), _mm_loadu_ps(from.add(4))] })
    }
    #[inline(always)]
    unsafe fn load_prefix(self, from: *const f32, count: usize) -> F32x8 {
        // SAFETY: the caller's contract.
        from_array(unsafe { load_prefix(from, count) })
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const f32, part: usize) -> F32x8 {
        // SAFETY: the caller's contract.
        let words = unsafe { self.load(from) };
        F32x8(halves!(|words| {
            let words = _mm_castps_si128(words);
            _mm_castsi128_ps(match part {
                0 => _mm_slli_epi32::<16>(words),
                _ => _mm_and_si128(words, _mm_set1_epi32(-1 << 16)),
            })
        }))
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const f32, part: usize) -> F32x8 {
        // SAFETY: the caller's contract: the eight f16 numbers of `part`.
        let halves = unsafe { from.cast::<[u16; 8]>().add(part).read_unaligned() };
        from_array(widen_eight(&halves))
    }
    #[inline(always)]
    unsafe fn load_f16_half(self, from: *const f32, part: usize) -> F32x8 {
        // SAFETY: the caller's contract.
        unsafe { self.load_f16(from, part) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: F32x8) {
        // SAFETY: the caller's contract: eight floats.
        unsafe {
            _mm_storeu_ps(to, v.0[0]);
            _mm_storeu_ps(to.add(4), v.0[1]);
        }
    }
    #[inline(always)]
    unsafe fn store_prefix(self, to: *mut f32, v: F32x8, count: usize) {
        // SAFETY: the caller's contract.
        unsafe { store_prefix(to, &to_array(v), count) }
    }
    #[inline(always)]
    fn prefetch(self, _at: *const f32) {}
    #[inline(always)]
    fn prefetch_l2(self, _at: *const f32) {}
    #[inline(always)]
    fn prefers_hw_prefetch(self) -> bool {
        false
    }

    #[inline(always)]
    fn add(self, a: F32x8, b: F32x8) -> F32x8 {
        F32x8(halves!(|a, b| _mm_add_ps(a, b)))
    }
    #[inline(always)]
    fn sub(self, a: F32x8, b: F32x8) -> F32x8 {
        F32x8(halves!(|a, b| _mm_sub_ps(a, b)))
    }
    #[inline(always)]
    fn mul(self, a: F32x8, b: F32x8) -> F32x8 {
        F32x8(halves!(|a, b| _mm_mul_ps(a, b)))
    }
    #[inline(always)]
    fn div(self, a: F32x8, b: F32x8) -> F32x8 {
        F32x8(halves!(|a, b| _mm_div_ps(a, b)))
    }
    #[cfg(feature = "train")]
    #[inline(always)]
    fn sqrt(self, a: F32x8) -> F32x8 {
        F32x8(halves!(|a| _mm_sqrt_ps(a)))
    }
    #[inline(always)]
    fn mul_add(self, a: F32x8, b: F32x8, c: F32x8) -> F32x8 {
        from_array(mul_add(to_array(a), to_array(b), to_array(c)))
    }
    // `maxps` and `minps` return their second operand when either is NaN or both are zero, as the trait requires.
    #[inline(always)]
    fn max(self, a: F32x8, b: F32x8) -> F32x8 {
        F32x8(halves!(|a, b| _mm_max_ps(a, b)))
    }
    #[inline(always)]
    fn min(self, a: F32x8, b: F32x8) -> F32x8 {
        F32x8(halves!(|a, b| _mm_min_ps(a, b)))
    }
    #[inline(always)]
    fn abs(self, a: F32x8) -> F32x8 {
        F32x8(halves!(|a| _mm_andnot_ps(_mm_set1_ps(-0.0), a)))
    }
    #[inline(always)]
    fn copy_sign(self, magnitude: F32x8, sign: F32x8) -> F32x8 {
        F32x8(halves!(|magnitude, sign| {
            let bit = _mm_set1_ps(-0.0);
            _mm_or_ps(_mm_andnot_ps(bit, magnitude), _mm_and_ps(bit, sign))
        }))
    }
    #[inline(always)]
    fn scale(self, a: F32x8, n: F32x8) -> F32x8 {
        F32x8(halves!(|a, n| {
            let exponent = _mm_add_epi32(_mm_cvttps_epi32(n), _mm_set1_epi32(127));
            _mm_mul_ps(a, _mm_castsi128_ps(_mm_slli_epi32::<23>(exponent)))
        }))
    }
    #[inline(always)]
    fn ldexp_masked(self, mask: Mask8, a: F32x8, n: F32x8) -> F32x8 {
        self.select(mask, self.scale(a, n), self.splat(0.0))
    }

    #[inline(always)]
    fn less(self, a: F32x8, b: F32x8) -> Mask8 {
        Mask8(halves!(|a, b| _mm_cmplt_ps(a, b)))
    }
    #[inline(always)]
    fn not_less(self, a: F32x8, b: F32x8) -> Mask8 {
        Mask8(halves!(|a, b| _mm_cmpnlt_ps(a, b)))
    }
    #[inline(always)]
    fn first(self, count: usize) -> Mask8 {
        // SAFETY: every x86-64 CPU has SSE2.
        unsafe {
            let count = _mm_set1_epi32(count.min(8) as i32);
            let [low, high] = [_mm_setr_epi32(0, 1, 2, 3), _mm_setr_epi32(4, 5, 6, 7)];
            Mask8([
                _mm_castsi128_ps(_mm_cmpgt_epi32(count, low)),
                _mm_castsi128_ps(_mm_cmpgt_epi32(count, high)),
            ])
        }
    }
    #[inline(always)]
    fn select(self, mask: Mask8, yes: F32x8, no: F32x8) -> F32x8 {
        F32x8(halves!(|mask, yes, no| _mm_or_ps(_mm_and_ps(mask, yes), _mm_andnot_ps(mask, no))))
    }
    #[inline(always)]
    fn any(self, mask: Mask8) -> bool {
        // SAFETY: every x86-64 CPU has SSE2.
        unsafe { _mm_movemask_ps(_mm_or_ps(mask.0[0], mask.0[1])) != 0 }
    }

    #[inline(always)]
    fn reduce_add(self, a: F32x8) -> f32 {
        // SAFETY: every x86-64 CPU has SSE2.
        unsafe {
            let four = _mm_add_ps(a.0[0], a.0[1]);
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[inline(always)]
    fn reduce_max(self, a: F32x8) -> f32 {
        // SAFETY: every x86-64 CPU has SSE2.
        unsafe {
            let four = _mm_max_ps(a.0[0], a.0[1]);
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    unsafe fn transpose(
        self,
        from: *const f32,
        from_stride: usize,
        to: *mut f32,
        to_stride: usize,
    ) {
        // SAFETY: the caller's contract.
        unsafe { transpose(from, from_stride, to, to_stride) }
    }
}
