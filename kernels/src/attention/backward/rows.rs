//! Rows of one head, copied side by side: in place they may lie a power of two apart.

use crate::lanes::Lanes;

/// Rows of `elements` floats.
#[derive(Clone, Copy)]
pub(super) struct Strided {
    pub(super) at: *const f32,
    pub(super) stride: usize,
    pub(super) elements: usize,
}

/// Copies `count` rows to `to`, where they lie `row` apart with zeros behind their elements, and adds rows
/// of zeros up to `padded`.
///
/// # Safety
/// The rows are valid for reads, `padded` of `row` floats at `to` for writes; `row` is `elements` rounded up to
/// whole vectors.
#[inline(always)]
pub(super) unsafe fn copy<S: Lanes>(
    s: S,
    from: Strided,
    (count, padded): (usize, usize),
    to: *mut f32,
    row: usize,
) {
    for i in 0..count {
        let from_row = from.at.wrapping_add(i * from.stride);
        let ahead = from.at.wrapping_add((i + 8).wrapping_mul(from.stride));
        let mut column = 0;
        while column < row {
            s.prefetch(ahead.wrapping_add(column));
            // SAFETY: the caller's contract; the count stops at the last element.
            unsafe {
                let x = if column + S::LANES <= from.elements {
                    s.load(from_row.add(column))
                } else {
                    s.load_first(from_row.wrapping_add(column), from.elements - column)
                };
                s.store(to.add(i * row + column), x);
            }
            column += S::LANES;
        }
    }
    for at in (count * row..padded * row).step_by(S::LANES) {
        // SAFETY: the caller's contract.
        unsafe { s.store(to.add(at), s.splat(0.0)) };
    }
}

/// Puts `count` rows, a whole number of vectors, into panels `[count / LANES][row][LANES]`.
///
/// # Safety
/// `count` rows of `row` floats at `rows` are valid for reads, as many floats at `panels` for writes; both
/// numbers are multiples of `LANES`.
#[inline(always)]
pub(super) unsafe fn transpose<S: Lanes>(
    s: S,
    rows: *const f32,
    count: usize,
    row: usize,
    panels: *mut f32,
) {
    let mut first = 0;
    while first < count {
        let mut column = 0;
        while column < row {
            // SAFETY: the caller's contract.
            unsafe {
                let from = rows.add(first * row + column);
                s.transpose(from, row, panels.add(first * row + column * S::LANES), S::LANES);
            }
            column += S::LANES;
        }
        first += S::LANES;
    }
}

/// Stores zeros, or adds `added` where there is one, to the `elements` floats at `to`.
///
/// # Safety
/// They are valid for reads and writes; so are those of `added`.
#[inline(always)]
pub(super) unsafe fn clear<S: Lanes>(s: S, to: *mut f32, elements: usize) {
    let mut column = 0;
    while column < elements {
        let count = (elements - column).min(S::LANES);
        // SAFETY: the caller's contract.
        unsafe { s.store_first(to.add(column), s.splat(0.0), count) };
        column += S::LANES;
    }
}

/// Lanes that a sum along a row is taken in, on every instruction set.
const VIRTUAL: usize = 64;

/// Fewest lanes of a vector.
const FEWEST: usize = 4;

/// `sum of a[i] * b[i]`, in [`VIRTUAL`] lanes that are added in halves: the same bits whatever the width of
/// a vector.
///
/// # Safety
/// `len` floats at `a` and `b` are valid for reads.
#[inline(always)]
pub(super) unsafe fn dot<S: Lanes>(s: S, a: *const f32, b: *const f32, len: usize) -> f32 {
    const { assert!(VIRTUAL.is_multiple_of(S::LANES) && S::LANES >= FEWEST) };
    let mut sums = [s.splat(0.0); VIRTUAL / FEWEST];
    let mut at = 0;
    while at < len {
        for v in 0..VIRTUAL / S::LANES {
            let first = at + v * S::LANES;
            if first >= len {
                break;
            }
            let count = (len - first).min(S::LANES);
            // SAFETY: the caller's contract.
            unsafe {
                let (a, b) = (s.load_first(a.add(first), count), s.load_first(b.add(first), count));
                sums[v] = s.mul_add(a, b, sums[v]);
            }
        }
        at += VIRTUAL;
    }
    let mut vectors = VIRTUAL / S::LANES;
    while vectors > 1 {
        vectors /= 2;
        for v in 0..vectors {
            sums[v] = s.add(sums[v], sums[v + vectors]);
        }
    }
    if S::LANES > FEWEST {
        return s.reduce_add(sums[0]);
    }
    // Here `reduce_add` adds neighbours.
    let mut four = [0.0f32; FEWEST];
    // SAFETY: a vector of four.
    unsafe { s.store_first(four.as_mut_ptr(), sums[0], FEWEST) };
    (four[0] + four[2]) + (four[1] + four[3])
}
