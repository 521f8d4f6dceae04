//! Copies of the rows of one head at a compact stride. In the caller's tensor the stride may be a power of two.

use crate::rows::fold_lanes;
use crate::simd::{MOST_VECTORS, SimdF32};

/// Rows of `elements` floats.
#[derive(Clone, Copy)]
pub(super) struct Strided {
    pub(super) at: *const f32,
    pub(super) stride: usize,
    pub(super) elements: usize,
}

/// Rows between the prefetch of a row and its read.
const PREFETCH_DISTANCE: usize = 8;

/// Copies `count` rows to `to`, with a stride of `row` and zeros after their elements. Adds rows of zeros up to
/// `padded` rows.
///
/// # Safety
/// The rows are valid for reads, and `padded` rows of `row` floats at `to` for writes. `row` is `elements` rounded up
/// to whole vectors.
#[inline(always)]
pub(super) unsafe fn copy<S: SimdF32>(
    s: S,
    from: Strided,
    (count, padded): (usize, usize),
    to: *mut f32,
    row: usize,
) {
    let whole = from.elements / S::LANES * S::LANES;
    for i in 0..count {
        let from_row = from.at.wrapping_add(i * from.stride);
        let prefetch = from.at.wrapping_add((i + PREFETCH_DISTANCE).wrapping_mul(from.stride));
        let to_row = to.wrapping_add(i * row);
        let mut column = 0;
        // SAFETY: the `# Safety` contract of `copy` holds. The count stops at the last element.
        unsafe {
            while column < whole {
                s.prefetch(prefetch.wrapping_add(column));
                s.store(to_row.add(column), s.load(from_row.add(column)));
                column += S::LANES;
            }
            if column < row {
                let x = s.load_prefix(from_row.wrapping_add(column), from.elements - column);
                s.store(to_row.add(column), x);
            }
        }
    }
    for at in (count * row..padded * row).step_by(S::LANES) {
        // SAFETY: the `# Safety` contract of `copy` holds.
        unsafe { s.store(to.add(at), s.splat(0.0)) };
    }
}

/// Copies `count` rows, and rows of zeros up to `padded`, into panels `[padded / LANES][row][LANES]`. Rows that cannot
/// be read in whole vectors are first copied to `scratch`.
///
/// # Safety
/// As [`copy`], for `padded` rows of `row` floats at `panels` and `LANES` rows at `scratch`. `padded` is the next
/// multiple of `LANES`.
#[inline(always)]
pub(super) unsafe fn into_panels<S: SimdF32>(
    s: S,
    from: Strided,
    (count, padded): (usize, usize),
    panels: *mut f32,
    row: usize,
    scratch: *mut f32,
) {
    let mut first = 0;
    while first < padded {
        let rows = (count - first).min(S::LANES);
        let mut at = from.at.wrapping_add(first * from.stride);
        let mut stride = from.stride;
        // SAFETY: the `# Safety` contract of `into_panels` holds.
        unsafe {
            if from.elements < row {
                copy(s, Strided { at, ..from }, (rows, S::LANES), scratch, row);
                (at, stride) = (scratch, row);
            }
            let mut column = 0;
            while column < row {
                for i in 0..if first + S::LANES < padded { S::LANES } else { 0 } {
                    let next = (first + S::LANES + i).wrapping_mul(from.stride);
                    s.prefetch(from.at.wrapping_add(next.wrapping_add(column)));
                }
                let to = panels.add(first * row + column * S::LANES);
                if rows == S::LANES {
                    s.transpose(at.add(column), stride, to, S::LANES);
                } else {
                    s.transpose_first(at.add(column), stride, rows, to, S::LANES);
                }
                column += S::LANES;
            }
        }
        first += S::LANES;
    }
}

/// Stores zeros to the `elements` floats at `to`.
///
/// # Safety
/// The floats are valid for writes.
#[inline(always)]
pub(super) unsafe fn clear<S: SimdF32>(s: S, to: *mut f32, elements: usize) {
    let mut column = 0;
    while column < elements {
        let count = (elements - column).min(S::LANES);
        // SAFETY: the `# Safety` contract of `clear` holds.
        unsafe { s.store_prefix(to.add(column), s.splat(0.0), count) };
        column += S::LANES;
    }
}

/// The sum of `a[i] * b[i]`, in virtual lanes: the bits are the same for all vector widths.
///
/// # Safety
/// `len` floats at `a` and at `b` are valid for reads.
#[inline(always)]
pub(super) unsafe fn dot<S: SimdF32>(s: S, a: *const f32, b: *const f32, len: usize) -> f32 {
    let [[sum]] = fold_lanes::<S, 1, 1, MOST_VECTORS>(
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
