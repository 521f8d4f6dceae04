//! Keys and values in f16, the second dtype of a KV cache.
//!
//! An f16 element is rounded once, when it is written. The tile converts it to f32, which is exact. So attention over
//! an f16 cache has the bits of attention over an f32 cache with the rounded values.

use super::head_views::HeadRows;
use super::panels::{KvElement, KvFormat};
use crate::gemm::{F16Operand, Panels};
use crate::prefetch::PerStep;
use crate::simd::half::{F16, narrow_f16};
use crate::simd::{MAX_LANES, SimdF32};

/// The nearest f16. Finite numbers that would round to infinity become the largest finite f16.
#[inline(always)]
fn narrow(x: f32) -> u16 {
    const LARGEST: u16 = 0x7bff;
    let half = narrow_f16(x);
    let became_infinite = half & 0x7fff == LARGEST + 1 && x.is_finite();
    half - u16::from(became_infinite)
}

/// Rounds with integer operations, which compilers vectorize on every instruction set. A decode step writes only one
/// token per hypothesis, and an encoder writes little compared with its other work.
impl KvElement for u16 {
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        narrow(x)
    }
    #[inline(always)]
    unsafe fn store<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self) {
        let mut floats = [0.0; MAX_LANES];
        // SAFETY: the `# Safety` contract of `KvElement::store` holds. `load_prefix` stops at `count`, and `floats` has
        // space for a vector of any instruction set.
        unsafe {
            s.store(floats.as_mut_ptr(), s.load_prefix(from, count));
            store_f16(floats.as_ptr(), S::LANES, to);
        }
    }
    #[inline(always)]
    unsafe fn store_strided<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self) {
        let mut converted = [0; MAX_LANES];
        for i in (0..count).step_by(S::LANES) {
            let part = (count - i).min(S::LANES);
            // SAFETY: the `# Safety` contract of `KvElement::store_strided` holds. `converted` has space for a vector
            // of any instruction set.
            unsafe { Self::store(s, from.add(i), part, converted.as_mut_ptr()) };
            for (lane, &half) in converted.iter().enumerate().take(part) {
                // SAFETY: the `# Safety` contract of `KvElement::store_strided` holds.
                unsafe { *to.add((i + lane) * S::LANES) = half };
            }
        }
    }
    #[inline(always)]
    unsafe fn store_transposed<S: SimdF32>(s: S, from: HeadRows, rows: usize, to: *mut Self) {
        let mut square = [0.0; MAX_LANES * MAX_LANES];
        // SAFETY: the `# Safety` contract of `KvElement::store_transposed` holds. `square` has space for the square of
        // a vector of any instruction set.
        unsafe {
            f32::store_transposed(s, from, rows, square.as_mut_ptr());
            store_f16(square.as_ptr(), S::LANES * S::LANES, to);
        }
    }
}

/// Stores `count` floats from `from` as f16.
///
/// # Safety
/// `from` is valid for reads of `count` floats, and `to` for writes of `count` f16 elements.
#[inline(always)]
unsafe fn store_f16(from: *const f32, count: usize, to: *mut u16) {
    for i in 0..count {
        // SAFETY: the `# Safety` contract of `store_f16` holds.
        unsafe { *to.add(i) = narrow(*from.add(i)) };
    }
}

/// f16. Two vectors share a cache line. A tile of several queries requests it twice, which costs almost nothing there; a
/// single query, whose tile is mostly loads, requests it once.
#[derive(Clone, Copy)]
pub(super) struct F16Kv;

impl KvFormat for F16Kv {
    type KvElement = u16;
    type Operand<S: SimdF32> = F16Operand<S, F16, 1>;
    type Lines = PerStep<2>;
    const MAX_MR: usize = 4;

    #[inline(always)]
    fn operand<S: SimdF32>(s: S) -> Self::Operand<S> {
        F16Operand::new(s)
    }
    #[inline(always)]
    fn prefetch_panel<S: SimdF32>(panel: Panels<u16, 1>, count: usize) -> PerStep {
        PerStep::new(panel.at[0].cast(), panel.step / 2, count, panel.vector / 2)
    }
    #[inline(always)]
    fn prefetch_lines(at: *const u16, count: usize, stride: usize) -> PerStep<2> {
        PerStep::running(at.cast(), count, stride).every_second()
    }
}

/// Evaluates `$run` with `$N` as the [`KvFormat`] of `$dtype`. Each format has a separate entry, so that the stack
/// holds the scores of one format only.
macro_rules! with_kv_format {
    ($dtype:expr, $N:ident => $run:expr) => {
        match $dtype {
            Dtype::F32 => {
                type $N = $crate::attention::panels::F32Kv;
                $run
            }
            Dtype::F16 if cfg!(feature = "f16") => {
                type $N = $crate::attention::kv_f16::F16Kv;
                $run
            }
            _ => unreachable!("`CacheShape::buffer_len` rejects the dtype"),
        }
    };
}
pub(super) use with_kv_format;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::half::widen_f16;

    #[test]
    fn finite_stays_finite() {
        for (x, expected) in [
            (65_504.0, 0x7bff),
            (65_519.0, 0x7bff),
            (65_520.0, 0x7bff),
            (f32::MAX, 0x7bff),
            (f32::INFINITY, 0x7c00),
            (0.0, 0),
            (1.0, 0x3c00),
            (1e-9, 0),
            (5.960_464_5e-8, 1),
        ] {
            assert_eq!(narrow(x), expected, "{x:e}");
            assert_eq!(narrow(-x), expected | 0x8000, "{x:e}");
        }
        assert!(widen_f16(narrow(f32::NAN)).is_nan());
        for half in 0..=u16::MAX {
            if !widen_f16(half).is_nan() {
                assert_eq!(narrow(widen_f16(half)), half);
            }
        }
    }
}
