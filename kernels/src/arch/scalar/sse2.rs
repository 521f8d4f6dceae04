//! The scalar set on x86-64, where every program may use SSE2: groups of eight floats in two registers.
//!
//! Each lane is computed as in `portable.rs`, with the same bits. With arrays of eight floats, which the compiler must
//! convert to vectors, the functions of the scalar set have 101,685 instructions instead of 74,407, and LLVM spent 10.2
//! of 41 s in them instead of 4.4 of 29 s. For the same reason, operations without an SSE2 instruction are separate
//! functions.

use crate::arch::scalar::Scalar;
use crate::arch::scalar::soft_fma::mul_add;
use crate::simd::half::widen_f16;
use crate::simd::table::Table;
use crate::simd::vector::{SimdF32, SimdOp};
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
pub(super) fn to_array(v: F32x8) -> [f32; 8] {
    // SAFETY: both types are eight floats.
    unsafe { core::mem::transmute(v.0) }
}

#[inline(always)]
pub(super) fn from_array(v: [f32; 8]) -> F32x8 {
    // SAFETY: both types are eight floats.
    F32x8(unsafe { core::mem::transmute::<[f32; 8], [__m128; 2]>(v) })
}

#[inline(never)]
fn widen_eight(halves: &[u16; 8]) -> [f32; 8] {
    let mut out = [0.0; 8];
    for (lane, &half) in out.iter_mut().zip(halves) {
        *lane = widen_f16(half);
    }
    out
}

// SAFETY: 8 lanes, panels of 8; partial accesses go lane by lane.
unsafe impl SimdF32 for Scalar {
    scalar_items!();

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F32x8 {
        // SAFETY: the caller's contract: eight floats.
        F32x8(unsafe { [_mm_loadu_ps(from), _mm_loadu_ps(from.add(4))] })
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
    unsafe fn store(self, to: *mut f32, v: F32x8) {
        // SAFETY: the caller's contract: eight floats.
        unsafe {
            _mm_storeu_ps(to, v.0[0]);
            _mm_storeu_ps(to.add(4), v.0[1]);
        }
    }

    lanewise! {
        // SAFETY: every x86-64 CPU has SSE2.
        splat(_s, x: f32) = F32x8(unsafe { [_mm_set1_ps(x), _mm_set1_ps(x)] });
        add(_s, a, b) = F32x8(halves!(|a, b| _mm_add_ps(a, b)));
        sub(_s, a, b) = F32x8(halves!(|a, b| _mm_sub_ps(a, b)));
        mul(_s, a, b) = F32x8(halves!(|a, b| _mm_mul_ps(a, b)));
        div(_s, a, b) = F32x8(halves!(|a, b| _mm_div_ps(a, b)));
        #[cfg(feature = "train")]
        sqrt(_s, a) = F32x8(halves!(|a| _mm_sqrt_ps(a)));
        // `maxps` and `minps` return their second operand when either is NaN or both are zero, as the trait requires.
        max(_s, a, b) = F32x8(halves!(|a, b| _mm_max_ps(a, b)));
        min(_s, a, b) = F32x8(halves!(|a, b| _mm_min_ps(a, b)));
        abs(_s, a) = F32x8(halves!(|a| _mm_andnot_ps(_mm_set1_ps(-0.0), a)));
        copy_sign(_s, magnitude, sign) = F32x8(halves!(|magnitude, sign| {
            let bit = _mm_set1_ps(-0.0);
            _mm_or_ps(_mm_andnot_ps(bit, magnitude), _mm_and_ps(bit, sign))
        }));

        less(_s, a, b) -> Mask8 = Mask8(halves!(|a, b| _mm_cmplt_ps(a, b)));
        not_less(_s, a, b) -> Mask8 = Mask8(halves!(|a, b| _mm_cmpnlt_ps(a, b)));
        // SAFETY: every x86-64 CPU has SSE2.
        first(_s, count: usize) -> Mask8 = unsafe {
            let count = _mm_set1_epi32(count.min(8) as i32);
            let lanes = [_mm_setr_epi32(0, 1, 2, 3), _mm_setr_epi32(4, 5, 6, 7)];
            Mask8(lanes.map(|lanes| _mm_castsi128_ps(_mm_cmpgt_epi32(count, lanes))))
        };
        select(_s, mask: Mask8, yes, no) =
            F32x8(halves!(|mask, yes, no| _mm_or_ps(_mm_and_ps(mask, yes), _mm_andnot_ps(mask, no))));
        // SAFETY: every x86-64 CPU has SSE2.
        any(_s, mask: Mask8) -> bool = unsafe {
            _mm_movemask_ps(_mm_or_ps(mask.0[0], mask.0[1])) != 0
        };

        // SAFETY: every x86-64 CPU has SSE2.
        reduce_add(_s, a) -> f32 = unsafe {
            let four = _mm_add_ps(a.0[0], a.0[1]);
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        };
        // SAFETY: every x86-64 CPU has SSE2.
        reduce_max(_s, a) -> f32 = unsafe {
            let four = _mm_max_ps(a.0[0], a.0[1]);
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        };
    }
}
