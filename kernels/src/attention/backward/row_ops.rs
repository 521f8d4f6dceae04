//! Zeros, dot products and weighted sums of rows.

use crate::rows::{UNROLL, fold_lanes};
use crate::simd::{MOST_PARTS, SimdF32};

/// Stores zeros to the `elements` floats at `to`.
///
/// # Safety
/// The floats are valid for writes.
#[inline(always)]
pub(super) unsafe fn clear<S: SimdF32>(s: S, to: *mut f32, elements: usize) {
    for column in (0..elements).step_by(S::LANES) {
        let count = (elements - column).min(S::LANES);
        // SAFETY: the `# Safety` contract of `clear` holds.
        unsafe { s.store_prefix(to.add(column), s.splat(0.0), count) };
    }
}

/// The sum of `a[i] * b[i]`, in virtual lanes: the bits are the same for all vector widths.
///
/// # Safety
/// `len` floats at `a` and at `b` are valid for reads.
#[inline(always)]
pub(super) unsafe fn dot<S: SimdF32>(s: S, a: *const f32, b: *const f32, len: usize) -> f32 {
    let [[sum]] = fold_lanes::<S, 1, 1, UNROLL, MOST_PARTS>(
        s,
        len,
        &[],
        #[inline(always)]
        |_, at, [sum]| {
            // SAFETY: the caller's contract.
            unsafe { *sum = s.mul_add(at.load(s, a), at.load(s, b), *sum) }
        },
    );
    sum
}

/// `sum + weight * x`. A key that a query does not see, or that the bias hides, has a weight of 0, and any `x`.
#[inline(always)]
pub(super) fn add_weighted<S: SimdF32>(s: S, sum: S::F32, weight: S::F32, x: S::F32) -> S::F32 {
    let zero = s.splat(0.0);
    s.mul_add(weight, s.select(s.less(zero, weight), x, zero), sum)
}
