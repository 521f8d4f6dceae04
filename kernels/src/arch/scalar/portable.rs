//! Plain Rust with groups of eight floats, which the compiler vectorizes for the target.
//!
//! `mul_add` rounds once, as on the other instruction sets, so that results have the same bits. On targets without FMA
//! this takes a sum in f64, and rarely more: see `soft_fma.rs`.

use crate::arch::scalar::Scalar;
use crate::arch::scalar::soft_fma::mul_add;
use crate::simd::half::{widen_bf16, widen_f16};
use crate::simd::vector::{SimdF32, SimdOp, TileOp, panels};

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
fn each(f: impl Fn(usize) -> f32) -> F32x8 {
    F32x8(lanes(f))
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
        F32x8([x; 8])
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F32x8 {
        // SAFETY: the contract of `SimdF32::load`: eight floats can be read. An array of f32 has the alignment of f32.
        F32x8(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_prefix(self, from: *const f32, count: usize) -> F32x8 {
        let mut out = [0.0; 8];
        for (i, lane) in out.iter_mut().enumerate().take(count) {
            // SAFETY: `i < count`, and the caller's contract covers `count` floats.
            *lane = unsafe { from.add(i).read_unaligned() };
        }
        F32x8(out)
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
    unsafe fn load_f16_half(self, from: *const f32, part: usize) -> F32x8 {
        // SAFETY: the caller's contract.
        unsafe { self.load_f16(from, part) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: F32x8) {
        // SAFETY: the contract of `SimdF32::store`: eight floats can be written.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(v.0) }
    }
    #[inline(always)]
    unsafe fn store_prefix(self, to: *mut f32, v: F32x8, count: usize) {
        for (i, lane) in v.0.iter().enumerate().take(count) {
            // SAFETY: `i < count`, and the caller's contract covers `count` floats.
            unsafe { to.add(i).write_unaligned(*lane) };
        }
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
        each(|i| a.0[i] + b.0[i])
    }
    #[inline(always)]
    fn sub(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| a.0[i] - b.0[i])
    }
    #[inline(always)]
    fn mul(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| a.0[i] * b.0[i])
    }
    #[inline(always)]
    fn div(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| a.0[i] / b.0[i])
    }
    #[cfg(feature = "train")]
    #[inline(always)]
    fn sqrt(self, a: F32x8) -> F32x8 {
        each(|i| libm::sqrtf(a.0[i]))
    }
    #[inline(always)]
    fn mul_add(self, a: F32x8, b: F32x8, c: F32x8) -> F32x8 {
        F32x8(mul_add(a.0, b.0, c.0))
    }
    #[inline(always)]
    fn max(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| if a.0[i] > b.0[i] { a.0[i] } else { b.0[i] })
    }
    #[inline(always)]
    fn min(self, a: F32x8, b: F32x8) -> F32x8 {
        each(|i| if a.0[i] < b.0[i] { a.0[i] } else { b.0[i] })
    }
    #[inline(always)]
    fn abs(self, a: F32x8) -> F32x8 {
        each(|i| a.0[i].abs())
    }
    #[inline(always)]
    fn copy_sign(self, magnitude: F32x8, sign: F32x8) -> F32x8 {
        each(|i| magnitude.0[i].copysign(sign.0[i]))
    }
    #[inline(always)]
    fn scale(self, a: F32x8, n: F32x8) -> F32x8 {
        each(|i| a.0[i] * f32::from_bits(((n.0[i] as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    fn ldexp_masked(self, mask: Mask8, a: F32x8, n: F32x8) -> F32x8 {
        self.select(mask, self.scale(a, n), self.splat(0.0))
    }

    #[inline(always)]
    fn less(self, a: F32x8, b: F32x8) -> Mask8 {
        Mask8(lanes(|i| a.0[i] < b.0[i]))
    }
    #[inline(always)]
    fn not_less(self, a: F32x8, b: F32x8) -> Mask8 {
        let less = self.less(a, b);
        Mask8(lanes(|i| !less.0[i]))
    }
    #[inline(always)]
    fn first(self, count: usize) -> Mask8 {
        Mask8(lanes(|i| i < count))
    }
    #[inline(always)]
    fn select(self, mask: Mask8, yes: F32x8, no: F32x8) -> F32x8 {
        each(|i| if mask.0[i] { yes.0[i] } else { no.0[i] })
    }
    #[inline(always)]
    fn any(self, mask: Mask8) -> bool {
        mask.0.contains(&true)
    }

    #[inline(always)]
    fn reduce_add(self, a: F32x8) -> f32 {
        let a = a.0;
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    fn reduce_max(self, a: F32x8) -> f32 {
        a.0.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m })
    }

    #[inline(always)]
    unsafe fn transpose(
        self,
        from: *const f32,
        from_stride: usize,
        to: *mut f32,
        to_stride: usize,
    ) {
        for i in 0..8 {
            for j in 0..8 {
                // SAFETY: the contract of `SimdF32::transpose`: 8 rows of 8 floats can be read at `from` and written
                // at `to`.
                unsafe { *to.add(j * to_stride + i) = *from.add(i * from_stride + j) };
            }
        }
    }
}
