//! The dtypes of a KV cache, and how attention reads them.
//!
//! An f16 element is rounded once, when it is written. The tile converts it to f32, which is exact. So attention over
//! an f16 cache has the bits of attention over an f32 cache with the rounded values. The loops are generic over
//! [`KvFormat`], and each dtype is a separate function where a call enters the kernels.

use crate::gemm::{F16Operand, F32Operand, Panels, Rows, Tile, TileOperand, multiply_one};
use crate::prefetch::{PerStep, Prefetch, attention_steps};
use crate::simd::half::{F16, narrow_f16};
use crate::simd::{MAX_LANES, MAX_MR, SimdF32};

/// The nearest f16. Finite numbers that would round to infinity become the largest finite f16.
#[inline(always)]
fn narrow(x: f32) -> u16 {
    const LARGEST: u16 = 0x7bff;
    let half = narrow_f16(x);
    let became_infinite = half & 0x7fff == LARGEST + 1 && x.is_finite();
    half - u16::from(became_infinite)
}

/// An element of a KV cache, and its conversion from f32. Implementations are `#[inline(always)]`.
pub(super) trait KvElement: Copy {
    /// Converts `x`.
    fn from_f32(x: f32) -> Self;
    /// Stores a vector: `count <= LANES` floats from `from`, then zeros.
    ///
    /// # Safety
    /// `from` is valid for reads of `count` floats, `to` for writes of `LANES` elements.
    unsafe fn store<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self);
    /// Stores `count` floats from `from`, `LANES` elements apart.
    ///
    /// # Safety
    /// `from` is valid for reads of `count` floats, `to` for writes of these elements.
    #[inline(always)]
    unsafe fn store_strided<S: SimdF32>(_: S, from: *const f32, count: usize, to: *mut Self) {
        for i in 0..count {
            // SAFETY: the `# Safety` contract of `store_strided` holds.
            unsafe { *to.add(i * S::LANES) = Self::from_f32(*from.add(i)) };
        }
    }
    /// Stores `LANES` consecutive vectors, the transpose of a square of `LANES` rows that are `stride` floats apart. It
    /// has `rows` rows, at most `LANES`; the others are zeros.
    ///
    /// # Safety
    /// `from` is valid for reads of `LANES` floats in each row, `to` for writes of `LANES * LANES` elements.
    unsafe fn store_transposed<S: SimdF32>(
        s: S,
        from: *const f32,
        stride: usize,
        rows: usize,
        to: *mut Self,
    );
}

impl KvElement for f32 {
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
    #[inline(always)]
    unsafe fn store<S: SimdF32>(s: S, from: *const f32, count: usize, to: *mut Self) {
        // SAFETY: the `# Safety` contract of `KvElement::store` holds; `load_prefix` stops at `count`.
        unsafe {
            let whole = count == S::LANES;
            s.store(to, if whole { s.load(from) } else { s.load_prefix(from, count) });
        }
    }
    #[inline(always)]
    unsafe fn store_transposed<S: SimdF32>(
        s: S,
        from: *const f32,
        stride: usize,
        rows: usize,
        to: *mut Self,
    ) {
        // SAFETY: the `# Safety` contract of `KvElement::store_transposed` holds.
        unsafe {
            if rows == S::LANES {
                s.transpose(from, stride, to, S::LANES);
            } else {
                s.transpose_first(from, stride, rows, to, S::LANES);
            }
        }
    }
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
    unsafe fn store_transposed<S: SimdF32>(
        s: S,
        from: *const f32,
        stride: usize,
        rows: usize,
        to: *mut Self,
    ) {
        let mut square = [0.0; MAX_LANES * MAX_LANES];
        // SAFETY: the `# Safety` contract of `KvElement::store_transposed` holds. `square` has space for the square of
        // a vector of any instruction set.
        unsafe {
            f32::store_transposed(s, from, stride, rows, square.as_mut_ptr());
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

/// How kernels read one dtype of keys and values. Implementations are `#[inline(always)]`.
pub(super) trait KvFormat: Copy {
    /// An element in memory.
    type KvElement: KvElement;
    /// The operand type of a tile.
    type Operand<S: SimdF32>: TileOperand<
            SimdF32 = S,
            Element = f32,
            Weight = Self::KvElement,
            Vector = S::F32,
            Sum = S::F32,
        >;
    /// The prefetches of [`KvFormat::prefetch_lines`].
    type Lines: Prefetch;
    /// Most rows of a tile of queries. Where a load also converts, taller tiles have no registers for it, and each
    /// height would be compiled once more.
    const MAX_MR: usize;

    fn operand<S: SimdF32>(s: S) -> Self::Operand<S>;
    /// Prefetches `count` vectors of `stream` at each step.
    fn prefetch_panel<S: SimdF32>(panel: Panels<Self::KvElement, 1>, count: usize) -> PerStep;
    /// Prefetches, at each step, as many lines as `count` vectors have. The lines follow each other from `at`, and
    /// vectors are `stride` elements apart. The address may be invalid.
    fn prefetch_lines(at: *const Self::KvElement, count: usize, stride: usize) -> Self::Lines;
}

/// Loads a vector of elements as f32.
///
/// # Safety
/// `from` is valid for reads of `LANES` elements.
#[inline(always)]
pub(super) unsafe fn load<S: SimdF32, N: KvFormat>(s: S, from: *const N::KvElement) -> S::F32 {
    // SAFETY: the `# Safety` contract of `load` holds.
    unsafe { N::operand(s).load(from, 0) }
}

/// `NV` consecutive vectors per step, from `at` on: what a panel that is read line by line prefetches.
#[inline(always)]
pub(super) fn line_by_line<T, S: SimdF32, const NV: usize>(at: *const T) -> Panels<T, 1> {
    Panels::one(at, NV * S::LANES, S::LANES)
}

/// [`multiply_one`] of a panel in the L2 cache: a block of keys or values is larger than the L1 cache. Prefetches each
/// line of `panel` some steps before it is used and, at the end, the first steps of `next`, which may be an invalid
/// address.
///
/// # Safety
/// As [`multiply_one`].
#[inline(always)]
pub(super) unsafe fn tile_prefetched<S: SimdF32, N: KvFormat, const MR: usize, const NV: usize>(
    s: S,
    acc: Tile<S, MR, NV>,
    depth: usize,
    rows: Rows<f32>,
    panel: Panels<N::KvElement, 1>,
    next: Panels<N::KvElement, 1>,
) -> Tile<S, MR, NV> {
    let ahead = attention_steps(MR);
    let start = depth.saturating_sub(ahead);
    let first = N::prefetch_panel::<S>(panel.skip(ahead), NV);
    let last = N::prefetch_panel::<S>(next, NV);
    let (rows_left, panel_left) = (rows.skip(start), panel.skip(start));
    // SAFETY: the `# Safety` contract of `tile_prefetched` holds; `start <= depth`.
    unsafe {
        let acc = multiply_one(N::operand(s), acc, start, rows, panel, first);
        multiply_one(N::operand(s), acc, depth - start, rows_left, panel_left, last)
    }
}

/// f32.
#[derive(Clone, Copy)]
pub(super) struct F32Kv;

impl KvFormat for F32Kv {
    type KvElement = f32;
    type Operand<S: SimdF32> = F32Operand<S>;
    type Lines = PerStep;
    const MAX_MR: usize = MAX_MR;

    #[inline(always)]
    fn operand<S: SimdF32>(s: S) -> F32Operand<S> {
        F32Operand(s)
    }
    #[inline(always)]
    fn prefetch_panel<S: SimdF32>(panel: Panels<f32, 1>, count: usize) -> PerStep {
        PerStep::new(panel.at[0], panel.step, count, panel.vector)
    }
    #[inline(always)]
    fn prefetch_lines(at: *const f32, count: usize, stride: usize) -> PerStep {
        PerStep::running(at, count, stride)
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
                type $N = $crate::attention::kv_dtype::F32Kv;
                $run
            }
            Dtype::F16 if cfg!(feature = "f16") => {
                type $N = $crate::attention::kv_dtype::F16Kv;
                $run
            }
            _ => unreachable!("`CacheShape::len` rejects the dtype"),
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
