//! Int8 products on AArch64 with I8MM, which most server CPUs since 2020 have: one instruction multiplies two rows of
//! eight int8 with two columns, twice the work of a dot product.
//!
//! Weights are stored as words of four int8 of consecutive columns. One instruction interleaves the words of two steps
//! and makes two columns of eight int8. Detection of the feature and inline assembly are stable; the intrinsics are
//! not.

use crate::arch::aarch64::dotprod::NeonDot;
use crate::float_mode::DefaultMode;
use crate::simd::int8::{Int8Dot, Int8Op, SimdI32};
use core::arch::aarch64::{
    int8x16_t, int32x4_t, vcombine_s32, vdup_n_s32, vdupq_n_s32, vld1_s32, vld1q_s32,
    vreinterpretq_s8_s32, vreinterpretq_s32_s64, vreinterpretq_s64_s32, vzip1q_s32, vzip1q_s64,
    vzip2q_s32, vzip2q_s64,
};

/// Proof of NEON, its dot products and I8MM.
#[derive(Clone, Copy)]
pub(crate) struct NeonI8mm(NeonDot);

/// Eight int8 of each of four columns: those of the first two columns, and those of the other two. For a pair of rows,
/// which is multiplied with both, the two vectors are equal.
pub(crate) type I8x8Pair = [int8x16_t; 2];

/// Sums of two rows and four columns: `[row][column]` of the first two columns, and of the other two.
pub(crate) type Acc2x2 = [int32x4_t; 2];

impl NeonI8mm {
    pub(crate) fn detect_with(dot: NeonDot) -> Option<Self> {
        #[cfg(feature = "std")]
        let present = std::arch::is_aarch64_feature_detected!("i8mm");
        #[cfg(not(feature = "std"))]
        let present = cfg!(target_feature = "i8mm");
        present.then_some(Self(dot))
    }

    /// Runs `kernel` with everything that is inlined into it compiled for this set.
    #[inline(always)]
    pub(crate) fn enter<K: Int8Op>(self, kernel: K) -> K::Output {
        let _mode = DefaultMode::enter();
        #[target_feature(enable = "neon,dotprod,i8mm")]
        #[inline(never)]
        fn inside<K: Int8Op>(set: NeonDot, kernel: K) -> K::Output {
            kernel.run_with::<NeonDot, 8, 4>(set)
        }
        // SAFETY: `self` proves that the CPU has all of these features.
        unsafe { inside(self.0, kernel) }
    }

    /// The token of NEON with dot products.
    #[inline(always)]
    pub(crate) fn dot(self) -> NeonDot {
        self.0
    }

    /// All sums 0.
    #[inline(always)]
    pub(crate) fn zero(self) -> Acc2x2 {
        [self.0.sums().splat_i32(0); 2]
    }

    /// Loads the words of four columns, and those of the next step, `next` words further.
    ///
    /// # Safety
    /// `from` and `from.add(next)` are valid for reads of four words.
    #[inline(always)]
    pub(crate) unsafe fn load(self, from: *const i32, next: usize) -> I8x8Pair {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { self.interleave(vld1q_s32(from), vld1q_s32(from.add(next))) }
    }

    /// Loads the words of four columns, with zeros for the next step.
    ///
    /// # Safety
    /// `from` is valid for reads of four words.
    #[inline(always)]
    pub(crate) unsafe fn load_last(self, from: *const i32) -> I8x8Pair {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        unsafe { self.interleave(vld1q_s32(from), vdupq_n_s32(0)) }
    }

    #[inline(always)]
    fn interleave(self, step: int32x4_t, next: int32x4_t) -> I8x8Pair {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            [
                vreinterpretq_s8_s32(vzip1q_s32(step, next)),
                vreinterpretq_s8_s32(vzip2q_s32(step, next)),
            ]
        }
    }

    /// Loads two words of a row, and two of another row.
    ///
    /// # Safety
    /// `from` is valid for reads of four words.
    #[inline(always)]
    pub(crate) unsafe fn rows(self, from: *const i32) -> I8x8Pair {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        let rows = unsafe { vreinterpretq_s8_s32(vld1q_s32(from)) };
        [rows; 2]
    }

    /// Loads a word of a row, and one of another row, with zeros for the next step.
    ///
    /// # Safety
    /// `from` is valid for reads of two words.
    #[inline(always)]
    pub(crate) unsafe fn last_rows(self, from: *const i32) -> I8x8Pair {
        // SAFETY: the caller's contract; `self` proves that the CPU has the instruction set.
        let rows = unsafe {
            let words = vcombine_s32(vld1_s32(from), vdup_n_s32(0));
            vreinterpretq_s8_s32(vzip1q_s32(words, vdupq_n_s32(0)))
        };
        [rows; 2]
    }

    /// `sum + a b` for each of two rows and four columns, modulo `2^32`.
    #[inline(always)]
    pub(crate) fn multiply_add(self, sum: Acc2x2, a: I8x8Pair, b: I8x8Pair) -> Acc2x2 {
        [self.square(sum[0], a[0], b[0]), self.square(sum[1], a[1], b[1])]
    }

    #[inline(always)]
    fn square(self, sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: `self` proves that the CPU has the instruction. It writes only `sum` and accesses no memory.
        unsafe { multiply_bytes!("smmla", sum, a, b) }
    }

    /// The sums of the first row, and of the second, in the order of the columns.
    #[inline(always)]
    pub(crate) fn split(self, sums: Acc2x2) -> [<NeonDot as Int8Dot>::I32; 2] {
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe {
            let first = vreinterpretq_s64_s32(sums[0]);
            let second = vreinterpretq_s64_s32(sums[1]);
            [
                vreinterpretq_s32_s64(vzip1q_s64(first, second)),
                vreinterpretq_s32_s64(vzip2q_s64(first, second)),
            ]
        }
    }
}
