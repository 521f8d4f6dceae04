//! Int8 products on AArch64: with the dot-product instructions that most CPUs since 2018 have, or in two steps.
//!
//! Both need signed int8 on both sides. The dot-product intrinsics are not stable; detection of the feature and inline
//! assembly are.

use crate::simd::int8::{Int8Dot, Int8Op, MANTISSA, ONE, SimdI32, WordForm};
use crate::simd::u8_activations::ActivationEncoding;
use core::arch::aarch64::{
    float32x4_t, int8x16_t, int32x4_t, vaddq_s32, vandq_s32, vcvtnq_s32_f32, vcvtq_f32_s32,
    vdupq_n_s32, veorq_s32, vget_low_s8, vld1q_s32, vmull_high_s8, vmull_s8, vorrq_s32,
    vpadalq_s16, vpaddq_s32, vreinterpretq_f32_s32, vreinterpretq_s8_s32, vreinterpretq_s32_f32,
    vshlq_n_s32, vsliq_n_s32, vst1q_s32, vzip1q_s32, vzip2q_s32,
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
    fn splat_i32(self, x: i32) -> int32x4_t {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { vdupq_n_s32(x) }
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
pub(crate) type Parts = [int32x4_t; 2];

impl NeonParts {
    /// Sums whose first parts are `sums`.
    #[inline(always)]
    fn parts(self, sums: int32x4_t) -> Parts {
        let zero = self.0.splat_i32(0);
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { [vzip1q_s32(sums, zero), vzip2q_s32(sums, zero)] }
    }
    /// Applies an operation to both vectors.
    #[inline(always)]
    fn both(a: Parts, b: Parts, f: impl Fn(int32x4_t, int32x4_t) -> int32x4_t) -> Parts {
        [f(a[0], b[0]), f(a[1], b[1])]
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
    fn splat_i32(self, x: i32) -> Parts {
        self.parts(self.0.splat_i32(x))
    }
    #[inline(always)]
    unsafe fn load_sums(self, from: *const i32) -> Parts {
        // SAFETY: the caller's contract.
        self.parts(unsafe { self.0.load_sums(from) })
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
        unsafe { vcvtq_f32_s32(vpaddq_s32(a[0], a[1])) }
    }
}

/// Implements [`Int8Dot`] for `$Set`, with signed rows. `$rows` and `$tall` are `ROWS` and `TALL`.
macro_rules! signed {
    (
        $Set:ident: $Sums:ty, |$set:ident| $sums:expr,
        $rows:literal, $tall:literal, $keys:literal keys, $($compiled:tt)*
    ) => {
        // SAFETY: loads and stores access one vector, `row` one word; the constants are at most `MAX_MR` and `MAX_KEYS`.
        unsafe impl Int8Dot for $Set {
            int8_items!($rows, $tall, Signed, |$set| $sums => $Sums, int8x16_t);
            call_noinline!($($compiled)*: Int8Dot, Int8Op<8, 4>);
            const FORM: WordForm = WordForm::Signed;
            const KEYS: usize = $keys;
            type Words = int32x4_t;

            #[inline(always)]
            unsafe fn load(self, from: *const i32) -> int8x16_t {
                // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                unsafe { vreinterpretq_s8_s32(self.load_words(from)) }
            }
            #[inline(always)]
            unsafe fn row(self, from: *const i32) -> int8x16_t {
                // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                unsafe { vreinterpretq_s8_s32(self.splat_word(*from)) }
            }
            #[inline(always)]
            fn dot(self, sum: Self::I32, a: int8x16_t, b: int8x16_t) -> Self::I32 {
                self.multiply_add(sum, a, b)
            }
            #[inline(always)]
            unsafe fn load_words(self, from: *const i32) -> int32x4_t {
                // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                unsafe { vld1q_s32(from) }
            }
            #[inline(always)]
            unsafe fn store_words(self, to: *mut i32, words: int32x4_t) {
                // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
                unsafe { vst1q_s32(to, words) }
            }
            #[inline(always)]
            fn splat_word(self, word: i32) -> int32x4_t {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe { vdupq_n_s32(word) }
            }
            #[inline(always)]
            fn add_products(
                self,
                sum: Self::I32,
                unsigned: int32x4_t,
                signed: int32x4_t,
            ) -> Self::I32 {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe {
                    self.dot(sum, vreinterpretq_s8_s32(unsigned), vreinterpretq_s8_s32(signed))
                }
            }
            #[inline(always)]
            fn float_of_bits(self, bits: float32x4_t) -> [float32x4_t; 2] {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe {
                    let bits = vcvtnq_s32_f32(bits);
                    let one = vorrq_s32(vandq_s32(bits, vdupq_n_s32(MANTISSA)), vdupq_n_s32(ONE));
                    [vreinterpretq_f32_s32(bits), vreinterpretq_f32_s32(one)]
                }
            }
            #[inline(always)]
            fn pack(self, [a, b, c, d]: [float32x4_t; 4]) -> [int32x4_t; 2] {
                // SAFETY: `self` proves that the CPU has the instructions.
                unsafe {
                    let word = vsliq_n_s32::<8>(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(b));
                    let word = vsliq_n_s32::<16>(word, vreinterpretq_s32_f32(c));
                    let word = vsliq_n_s32::<24>(word, vreinterpretq_s32_f32(d));
                    // Elements less 128.
                    [veorq_s32(word, vdupq_n_s32(i32::from_le_bytes([0x80; 4]))); 2]
                }
            }
            #[inline(always)]
            fn signed(self, packed: int32x4_t) -> int32x4_t {
                packed
            }
        }
    };
}
signed!(NeonDot: Neon, |set| set.0, 2, 6, 4 keys, compiled_for_neon + "dotprod");
signed!(NeonMadd: NeonParts, |set| NeonParts(set.0), 1, 3, 2 keys, compiled_for_neon);

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
            [vpadalq_s16(sum[0], first), vpadalq_s16(sum[1], second)]
        }
    }
}
