//! Int8 products on AArch64: with the dot-product instructions that most CPUs since 2018 have, or in two steps.
//!
//! Both need signed int8 on both sides. The dot-product intrinsics are not stable; detection of the feature and inline
//! assembly are.

use crate::arch::aarch64::VectorPair;
use crate::simd::int8::{Int8Dot, Int8Op, SimdI32};
use crate::simd::u8_activations::ActivationEncoding;
use core::arch::aarch64::{
    float32x4_t, int8x16_t, int32x4_t, vaddq_s32, vcvtq_f32_s32, vdupq_n_s32, vget_low_s8,
    vld1q_s32, vmull_high_s8, vmull_s8, vpadalq_s16, vpaddq_s32, vreinterpretq_s8_s32, vshlq_n_s32,
    vzip1q_s32, vzip2q_s32,
};
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

// SAFETY: `Self::I32` has four lanes, as many as `Neon` has of f32, and a load reads one vector.
unsafe impl SimdI32 for Neon {
    type Floats = Self;
    type I32 = int32x4_t;

    #[inline(always)]
    fn floats(self) -> Self {
        self
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

/// The token of sums in [`Parts`].
#[derive(Clone, Copy)]
pub(crate) struct NeonParts(Neon);

/// Four sums, each in two adjacent parts: the sums of the first two columns, then those of the other two.
pub(crate) type Parts = VectorPair<int32x4_t>;

impl NeonParts {
    /// Applies an operation to both vectors.
    #[inline(always)]
    fn both(a: Parts, b: Parts, f: impl Fn(int32x4_t, int32x4_t) -> int32x4_t) -> Parts {
        Parts { first: f(a.first, b.first), second: f(a.second, b.second) }
    }
}

// SAFETY: `Self::I32` has four sums, as many as `Neon` has lanes of f32, and a load reads one vector.
unsafe impl SimdI32 for NeonParts {
    const REGISTERS: usize = 2;
    type Floats = Neon;
    type I32 = Parts;

    #[inline(always)]
    fn floats(self) -> Neon {
        self.0
    }
    #[inline(always)]
    fn zero(self) -> Parts {
        Parts { first: self.0.zero(), second: self.0.zero() }
    }
    #[inline(always)]
    unsafe fn load_sums(self, from: *const i32) -> Parts {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe {
            let (sums, zero) = (self.0.load_sums(from), self.0.zero());
            Parts { first: vzip1q_s32(sums, zero), second: vzip2q_s32(sums, zero) }
        }
    }
    #[inline(always)]
    fn add(self, a: Parts, b: Parts) -> Parts {
        Self::both(a, b, |a, b| self.0.add(a, b))
    }
    #[inline(always)]
    fn join(self, high: Parts, low: Parts) -> Parts {
        Self::both(high, low, |high, low| self.0.join(high, low))
    }
    #[inline(always)]
    fn to_f32(self, a: Parts) -> float32x4_t {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { vcvtq_f32_s32(vpaddq_s32(a.first, a.second)) }
    }
}

/// Implements [`Int8Dot`] for `$Set`, with signed rows. `$rows` and `$tall` are `ROWS` and `TALL`.
macro_rules! signed {
    (
        $Set:ident: $Sums:ty, |$set:ident| $sums:expr, $rows:literal, $tall:literal, $($compiled:tt)*
    ) => {
        // SAFETY: a load reads one vector, `row` one word; `ROWS` and `TALL` are at most `MAX_MR`.
        unsafe impl Int8Dot for $Set {
            int8_items!($rows, $tall, Signed, |$set| $sums => $Sums, int8x16_t);
            call_noinline!($($compiled)*: Int8Dot, Int8Op<8, 4>);

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
            fn dot(self, sum: Self::I32, a: int8x16_t, b: int8x16_t) -> Self::I32 {
                self.multiply_add(sum, a, b)
            }
        }
    };
}
signed!(NeonDot: Neon, |set| set.0, 2, 6, compiled_for_neon + "dotprod");
signed!(NeonMadd: NeonParts, |set| NeonParts(set.0), 1, 3, compiled_for_neon);

impl NeonDot {
    #[inline(always)]
    fn multiply_add(self, sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: `self` proves that the CPU has the instruction. It writes only `sum` and accesses no memory.
        unsafe { multiply_bytes!("sdot", sum, b, a) }
    }
}

impl NeonMadd {
    #[inline(always)]
    fn multiply_add(self, sum: Parts, a: int8x16_t, b: int8x16_t) -> Parts {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            // An int8 product fits 16 bits; a sum of two products may not.
            let first = vmull_s8(vget_low_s8(a), vget_low_s8(b));
            let second = vmull_high_s8(a, b);
            Parts { first: vpadalq_s16(sum.first, first), second: vpadalq_s16(sum.second, second) }
        }
    }
}
