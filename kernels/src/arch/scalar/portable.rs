//! Plain Rust with groups of eight floats, which the compiler vectorizes for the target.
//!
//! `mul_add` rounds once, as on the other instruction sets, so that results have the same bits. On targets without FMA
//! this takes a sum in f64, and rarely more: see `soft_fma.rs`.

use crate::arch::scalar::Portable;
use crate::arch::scalar::soft_fma::mul_add;
use crate::simd::half::{widen_bf16, widen_f16};
use crate::simd::table::Table;
use crate::simd::vector::{SimdF32, SimdOp};

#[derive(Clone, Copy)]
pub(crate) struct F32x8([f32; 8]);

#[derive(Clone, Copy)]
pub(crate) struct Mask8([bool; 8]);

/// Written out instead of a loop: the compiler would have to unroll a loop for every operation of the scalar set,
/// which took a fifth of the crate's compile time.
#[inline(always)]
fn lanes<T>(f: impl Fn(usize) -> T) -> [T; 8] {
    [f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)]
}

#[inline(always)]
pub(super) fn to_array(v: F32x8) -> [f32; 8] {
    v.0
}

#[inline(always)]
pub(super) fn from_array(v: [f32; 8]) -> F32x8 {
    F32x8(v)
}

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> F32x8 {
    F32x8(lanes(f))
}

// SAFETY: 8 lanes, panels of 8; partial accesses go lane by lane.
unsafe impl SimdF32 for Portable {
    scalar_items!();

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F32x8 {
        // SAFETY: the contract of `SimdF32::load`: eight floats can be read. An array of f32 has the alignment of f32.
        F32x8(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_bf16(self, from: *const f32, part: usize) -> F32x8 {
        // SAFETY: the contract of `SimdF32::load_bf16`: eight words, which are sixteen bf16, can be read.
        let halves = unsafe { from.cast::<[u16; 16]>().read_unaligned() };
        each(|i| widen_bf16(halves[2 * i + part]))
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const f32, part: usize) -> F32x8 {
        // SAFETY: the contract of `SimdF32::load_f16`: the eight numbers of `part` can be read.
        let halves = unsafe { from.cast::<[u16; 8]>().add(part).read_unaligned() };
        each(|i| widen_f16(halves[i]))
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: F32x8) {
        // SAFETY: the contract of `SimdF32::store`: eight floats can be written.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(v.0) }
    }

    lanewise! {
        splat(_s, x: f32) = F32x8([x; 8]);
        add(_s, a, b) = each(|i| a.0[i] + b.0[i]);
        sub(_s, a, b) = each(|i| a.0[i] - b.0[i]);
        mul(_s, a, b) = each(|i| a.0[i] * b.0[i]);
        div(_s, a, b) = each(|i| a.0[i] / b.0[i]);
        #[cfg(feature = "train")]
        sqrt(_s, a) = each(|i| libm::sqrtf(a.0[i]));
        max(_s, a, b) = each(|i| if a.0[i] > b.0[i] { a.0[i] } else { b.0[i] });
        min(_s, a, b) = each(|i| if a.0[i] < b.0[i] { a.0[i] } else { b.0[i] });
        abs(_s, a) = each(|i| a.0[i].abs());
        copy_sign(_s, magnitude, sign) = each(|i| magnitude.0[i].copysign(sign.0[i]));

        less(_s, a, b) -> Mask8 = Mask8(lanes(|i| a.0[i] < b.0[i]));
        not_less(s, a, b) -> Mask8 = {
            let less = s.less(a, b);
            Mask8(lanes(|i| !less.0[i]))
        };
        first(_s, count: usize) -> Mask8 = Mask8(lanes(|i| i < count));
        select(_s, mask: Mask8, yes, no) = each(|i| if mask.0[i] { yes.0[i] } else { no.0[i] });
        any(_s, mask: Mask8) -> bool = mask.0.contains(&true);

        reduce_add(_s, a) -> f32 = {
            let a = a.0;
            ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
        };
        reduce_max(_s, a) -> f32 =
            a.0.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
    }
}
