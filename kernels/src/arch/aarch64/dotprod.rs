//! Int8 products on AArch64: with the dot-product instructions that most CPUs since 2018 have, or in two steps.
//!
//! Both need signed int8 on both sides. The dot-product intrinsics are not stable; detection of the feature and inline
//! assembly are.

use crate::simd::int8::{ActivationEncoding, Int8Dot, Int8Op};
use core::arch::aarch64::{
    float32x4_t, int8x16_t, int32x4_t, vaddq_s32, vcvtq_f32_s32, vdupq_n_s32, vget_low_s8,
    vld1q_s32, vmull_high_s8, vmull_s8, vpadalq_s16, vpaddq_s32, vreinterpretq_s8_s32, vshlq_n_s32,
    vzip1q_s32, vzip2q_s32,
};
use core::arch::asm;
use pulp::aarch64::Neon;

/// Proof of NEON and its dot products.
#[derive(Clone, Copy)]
pub(crate) struct NeonDot(Neon);

impl NeonDot {
    pub(crate) fn detect_with(neon: Neon) -> Option<Self> {
        #[cfg(feature = "std")]
        let present = std::arch::is_aarch64_feature_detected!("dotprod");
        #[cfg(not(feature = "std"))]
        let present = cfg!(target_feature = "dotprod");
        present.then_some(Self(neon))
    }
}

/// Proof of NEON.
#[derive(Clone, Copy)]
pub(crate) struct NeonMadd(pub(crate) Neon);

/// Four sums, each in two adjacent parts: the sums of the first two columns, then those of the other two.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    first: int32x4_t,
    second: int32x4_t,
}

impl NeonDot {
    /// Runs `kernel` with everything that is inlined into it compiled for this set.
    #[inline]
    pub(crate) fn enter<K: Int8Op>(self, kernel: K) -> K::Output {
        self.call_noinline(kernel)
    }
}

// SAFETY: `Self::I32` has four lanes, as many as `Neon` has of f32, and loads read one vector;
// `ROWS` and `TALL` are at most `MAX_MR`.
unsafe impl Int8Dot for NeonDot {
    const ROWS: usize = 2;
    const TALL: usize = 6;
    const STORED: ActivationEncoding = ActivationEncoding::Signed;
    const SUMS: usize = 1;
    type Floats = Neon;
    type I32 = int32x4_t;
    type I8x4 = int8x16_t;

    #[inline(always)]
    fn floats(self) -> Neon {
        self.0
    }
    #[inline(always)]
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "neon,dotprod")]
        #[inline(never)]
        fn inside<K: Int8Op>(set: NeonDot, kernel: K) -> K::Output {
            kernel.run::<NeonDot, 8, 4>(set)
        }
        // SAFETY: `self` proves that the CPU has all of these features.
        unsafe { inside(self, kernel) }
    }
    #[inline(always)]
    fn zero(self) -> int32x4_t {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { vdupq_n_s32(0) }
    }
    #[inline(always)]
    unsafe fn load_sums(self, from: *const i32) -> int32x4_t {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { vld1q_s32(from) }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32) -> int8x16_t {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { vreinterpretq_s8_s32(vld1q_s32(from)) }
    }
    #[inline(always)]
    unsafe fn row(self, from: *const i32) -> int8x16_t {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { vreinterpretq_s8_s32(vdupq_n_s32(*from)) }
    }
    #[inline(always)]
    fn dot(self, sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        let mut sum = sum;
        // SAFETY: `self` proves that the CPU has the instruction. It writes only `sum` and accesses no memory.
        unsafe {
            asm!(
                "sdot {sum:v}.4s, {b:v}.16b, {a:v}.16b",
                sum = inout(vreg) sum,
                a = in(vreg) a,
                b = in(vreg) b,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sum
    }
    #[inline(always)]
    fn add(self, a: int32x4_t, b: int32x4_t) -> int32x4_t {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { vaddq_s32(a, b) }
    }
    #[inline(always)]
    fn join(self, high: int32x4_t, low: int32x4_t) -> int32x4_t {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { vaddq_s32(vshlq_n_s32::<8>(high), low) }
    }
    #[inline(always)]
    fn to_f32(self, a: int32x4_t) -> float32x4_t {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { vcvtq_f32_s32(a) }
    }
}

impl NeonMadd {
    /// Runs `kernel` with everything that is inlined into it compiled for this set.
    #[inline]
    pub(crate) fn enter<K: Int8Op>(self, kernel: K) -> K::Output {
        self.call_noinline(kernel)
    }
}

// SAFETY: `Self::I32` has four lanes, as many as `Neon` has of f32, and loads read one vector;
// `ROWS` and `TALL` are at most `MAX_MR`.
unsafe impl Int8Dot for NeonMadd {
    const ROWS: usize = 1;
    const TALL: usize = 3;
    const STORED: ActivationEncoding = ActivationEncoding::Signed;
    const SUMS: usize = 2;
    type Floats = Neon;
    type I32 = Parts;
    type I8x4 = int8x16_t;

    #[inline(always)]
    fn floats(self) -> Neon {
        self.0
    }
    #[inline(always)]
    fn call_noinline<K: Int8Op>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "neon")]
        #[inline(never)]
        fn inside<K: Int8Op>(set: NeonMadd, kernel: K) -> K::Output {
            kernel.run::<NeonMadd, 8, 4>(set)
        }
        // SAFETY: `self` proves that the CPU has all of these features.
        unsafe { inside(self, kernel) }
    }
    #[inline(always)]
    fn zero(self) -> Parts {
        // SAFETY: `self` proves that the CPU has the instructions.
        let zero = unsafe { vdupq_n_s32(0) };
        Parts { first: zero, second: zero }
    }
    #[inline(always)]
    unsafe fn load_sums(self, from: *const i32) -> Parts {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe {
            let (sums, zero) = (vld1q_s32(from), vdupq_n_s32(0));
            Parts { first: vzip1q_s32(sums, zero), second: vzip2q_s32(sums, zero) }
        }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const i32) -> int8x16_t {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { vreinterpretq_s8_s32(vld1q_s32(from)) }
    }
    #[inline(always)]
    unsafe fn row(self, from: *const i32) -> int8x16_t {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { vreinterpretq_s8_s32(vdupq_n_s32(*from)) }
    }
    #[inline(always)]
    fn dot(self, sum: Parts, a: int8x16_t, b: int8x16_t) -> Parts {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            // An int8 product fits 16 bits; a sum of two products may not.
            let first = vmull_s8(vget_low_s8(a), vget_low_s8(b));
            let second = vmull_high_s8(a, b);
            Parts { first: vpadalq_s16(sum.first, first), second: vpadalq_s16(sum.second, second) }
        }
    }
    #[inline(always)]
    fn add(self, a: Parts, b: Parts) -> Parts {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            Parts { first: vaddq_s32(a.first, b.first), second: vaddq_s32(a.second, b.second) }
        }
    }
    #[inline(always)]
    fn join(self, high: Parts, low: Parts) -> Parts {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let high = Parts {
                first: vshlq_n_s32::<8>(high.first),
                second: vshlq_n_s32::<8>(high.second),
            };
            self.add(high, low)
        }
    }
    #[inline(always)]
    fn to_f32(self, a: Parts) -> float32x4_t {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { vcvtq_f32_s32(vpaddq_s32(a.first, a.second)) }
    }
}
