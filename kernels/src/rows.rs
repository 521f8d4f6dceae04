//! The walkers over a row that all row-wise kernels share: [`map_row`] writes results, [`fold_parts`] adds.
//! `fold_lanes` adds in the order of training.
//!
//! A kernel gives a walker the work on one vector as a closure, which gets each vector of the row as a [`RowVector`].
//! Closures are `#[inline(always)]` like the walkers, so that they are compiled for the instruction set.

use crate::row_prefetch::PrefetchRow;
use crate::simd::{MAX_LANES, MOST_PARTS, SimdF32, array_of, sum_of_lanes};
#[cfg(feature = "train")]
use crate::simd::{MOST_VECTORS, VIRTUAL};

/// Vectors in one step of a walker. Their results are independent.
pub(crate) const UNROLL: usize = 4;

/// Elements in one step of [`fold_parts`].
const STEP: usize = UNROLL * MAX_LANES;

/// One vector of a row: all its lanes, or the first `count` at the end of the row.
#[derive(Clone, Copy)]
pub(crate) struct RowVector {
    at: usize,
    count: usize,
    whole: bool,
}

impl RowVector {
    /// The vector at element `at`.
    #[inline(always)]
    const fn whole<S: SimdF32>(at: usize) -> Self {
        Self { at, count: S::LANES, whole: true }
    }

    /// The elements from `at` on, at most a vector, of a row of `len >= at`.
    #[inline(always)]
    pub(crate) fn rest<S: SimdF32>(at: usize, len: usize) -> Self {
        let count = (len - at).min(S::LANES);
        Self { at, count, whole: count == S::LANES }
    }

    /// Loads the vector; lanes after the end of the row are 0.
    ///
    /// # Safety
    /// `row` is valid for reads of as many floats as the row has that is walked over.
    #[inline(always)]
    pub(crate) unsafe fn load<S: SimdF32>(self, s: S, row: *const f32) -> S::F32 {
        // SAFETY: the caller's contract; the walkers stay within the row.
        unsafe {
            let at = row.add(self.at);
            if self.whole { s.load(at) } else { s.load_prefix(at, self.count) }
        }
    }

    /// Stores the vector, without the lanes after the end of the row.
    ///
    /// # Safety
    /// `row` is valid for writes of as many floats as the row has that is walked over.
    #[inline(always)]
    pub(crate) unsafe fn store<S: SimdF32>(self, s: S, row: *mut f32, v: S::F32) {
        // SAFETY: the caller's contract; the walkers stay within the row.
        unsafe {
            let at = row.add(self.at);
            if self.whole { s.store(at, v) } else { s.store_prefix(at, v, self.count) }
        }
    }

    /// `v`, with zeros in the lanes after the end of the row.
    #[inline(always)]
    pub(crate) fn zero_rest<S: SimdF32>(self, s: S, v: S::F32) -> S::F32 {
        self.replace_rest(s, v, s.splat(0.0))
    }

    /// `v`, with the lanes of `rest` after the end of the row.
    #[inline(always)]
    pub(crate) fn replace_rest<S: SimdF32>(self, s: S, v: S::F32, rest: S::F32) -> S::F32 {
        if self.whole { v } else { s.select(s.first(self.count), v, rest) }
    }
}

/// Computes `N` rows of `len` elements at `to`, `STEP` vectors of each at a time: first all results of a step, then
/// their stores. Each whole step prefetches the same elements of the rows `prefetch`.
///
/// # Safety
/// The rows at `to` are valid for writes of `len` floats. `map` may read the elements of its vector from them.
#[inline(always)]
pub(crate) unsafe fn map_row<S: SimdF32, const N: usize, const STEP: usize>(
    s: S,
    len: usize,
    to: [*mut f32; N],
    prefetch: &[PrefetchRow],
    map: impl Fn(RowVector) -> [S::F32; N],
) {
    let mut i = 0;
    while i + STEP * S::LANES <= len {
        for prefetch in prefetch {
            prefetch.issue::<S, STEP>(s, i);
        }
        let mut v = [[s.splat(0.0); N]; STEP];
        for j in 0..STEP {
            v[j] = map(RowVector::whole::<S>(i + j * S::LANES));
        }
        for j in 0..STEP {
            for n in 0..N {
                // SAFETY: the caller's contract; `i + STEP * LANES <= len`.
                unsafe { RowVector::whole::<S>(i + j * S::LANES).store(s, to[n], v[j][n]) };
            }
        }
        i += STEP * S::LANES;
    }
    while i < len {
        let at = RowVector::rest::<S>(i, len);
        let v = map(at);
        for n in 0..N {
            // SAFETY: the caller's contract; `i < len`.
            unsafe { at.store(s, to[n], v[n]) };
        }
        i += at.count;
    }
}

/// As [`map_slice`], for a `map` of many operations, of which several at a time need more than 16 registers.
///
/// # Safety
/// As [`map_slice`].
#[inline(always)]
pub(crate) unsafe fn map_slice_by_registers<S: SimdF32>(
    s: S,
    from: *const f32,
    to: *mut f32,
    len: usize,
    map: impl Fn(S::F32) -> S::F32,
) {
    // SAFETY: the caller's contract.
    unsafe {
        if const { S::REGISTERS < 32 } {
            map_slice::<S, 1>(s, from, to, len, map);
        } else {
            map_slice::<S, UNROLL>(s, from, to, len, map);
        }
    }
}

/// `to[i] = map(from[i])` for `len` elements, `STEP` vectors at a time.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` floats; they are the same or disjoint.
#[inline(always)]
pub(crate) unsafe fn map_slice<S: SimdF32, const STEP: usize>(
    s: S,
    from: *const f32,
    to: *mut f32,
    len: usize,
    map: impl Fn(S::F32) -> S::F32,
) {
    // SAFETY: the caller's contract.
    unsafe {
        map_row::<S, 1, STEP>(
            s,
            len,
            [to],
            &[],
            #[inline(always)]
            |at| [map(at.load(s, from))],
        );
    }
}

/// Adds the elements of `R` rows of `len` in whole steps to `totals`, and returns the number of elements that were in
/// such steps. A step has four virtual vectors of [`MAX_LANES`] lanes. Of these, `totals` has `J` vectors from `vector`
/// on, and of each of them `width` parts from `part` on. The rows `prefetch` are prefetched meanwhile.
#[inline(always)]
fn fold_steps<S: SimdF32, const R: usize, const SUMS: usize, const WIDTH: usize, const J: usize>(
    s: S,
    len: usize,
    prefetch: &[[PrefetchRow; R]],
    [vector, part, width]: [usize; 3],
    totals: &mut [[[[S::F32; SUMS]; J]; WIDTH]; R],
    add: &impl Fn(usize, RowVector, &mut [S::F32; SUMS]),
) -> usize {
    let mut i = 0;
    while i + STEP <= len {
        for row in 0..R {
            for p in 0..width {
                for prefetch in prefetch {
                    prefetch[row].issue::<S, J>(s, i + (part + p) * J * S::LANES);
                }
            }
            for j in 0..J {
                for p in 0..width {
                    let at = i + (vector + j) * MAX_LANES + (part + p) * S::LANES;
                    add(row, RowVector::whole::<S>(at), &mut totals[row][p][j]);
                }
            }
        }
        i += STEP;
    }
    i
}

/// `SUMS` sums of each of `R` rows of `len` elements, in four virtual vectors of 16 lanes that are added in a tree. The
/// elements after the last whole step of 64 belong to the first vector.
///
/// `add` adds a vector of a row to its sums. Lanes after the end of the row must add nothing. At most `WIDTH` parts of
/// the virtual vectors are in registers at a time; narrow vectors read the row once for each `WIDTH` parts. The rows
/// `prefetch` are prefetched meanwhile.
#[inline(always)]
pub(crate) fn fold_parts<S: SimdF32, const R: usize, const SUMS: usize, const WIDTH: usize>(
    s: S,
    len: usize,
    prefetch: &[[PrefetchRow; R]],
    add: impl Fn(usize, RowVector, &mut [S::F32; SUMS]),
) -> [[f32; R]; SUMS] {
    let zero = s.splat(0.0);
    let width = WIDTH.min(MAX_LANES / S::LANES);
    let mut parts = [[[zero; MOST_PARTS]; R]; SUMS];
    let mut first = 0;
    while first < MAX_LANES / S::LANES {
        let mut totals = [[[[zero; SUMS]; UNROLL]; WIDTH]; R];
        let mut i = fold_steps(s, len, prefetch, [0, first, width], &mut totals, &add);
        while i < len {
            for part in 0..width {
                // A part after the end has no elements.
                let at = RowVector::rest::<S>((i + (first + part) * S::LANES).min(len), len);
                for row in 0..R {
                    add(row, at, &mut totals[row][part][0]);
                }
            }
            i += MAX_LANES;
        }
        for row in 0..R {
            for part in 0..width {
                let v = totals[row][part];
                for sum in 0..SUMS {
                    let (a, b) = (s.add(v[0][sum], v[1][sum]), s.add(v[2][sum], v[3][sum]));
                    parts[sum][row][first + part] = s.add(a, b);
                }
            }
        }
        first += width;
    }
    array_of!(sum in SUMS => array_of!(row in R => sum_of_lanes::<S, MAX_LANES, _>(s, parts[sum][row])))
}

/// `SUMS` sums of each of `R` rows of `len` elements, in [`VIRTUAL`] lanes: element `i` belongs to lane `i % VIRTUAL`,
/// and [`sum_of_lanes`] adds the lanes.
///
/// As [`fold_parts`], with at most `WIDTH` parts of `J` virtual vectors in registers at a time.
#[cfg(feature = "train")]
#[inline(always)]
pub(crate) fn fold_lanes<
    S: SimdF32,
    const R: usize,
    const SUMS: usize,
    const J: usize,
    const WIDTH: usize,
>(
    s: S,
    len: usize,
    prefetch: &[[PrefetchRow; R]],
    add: impl Fn(usize, RowVector, &mut [S::F32; SUMS]),
) -> [[f32; R]; SUMS] {
    const { assert!(VIRTUAL == STEP && UNROLL.is_multiple_of(J)) };
    let zero = s.splat(0.0);
    let width = WIDTH.min(MAX_LANES / S::LANES);
    let mut lanes = [[[zero; MOST_VECTORS]; R]; SUMS];
    for vector in (0..UNROLL).step_by(J) {
        for first in (0..MAX_LANES / S::LANES).step_by(width) {
            let mut totals = [[[[zero; SUMS]; J]; WIDTH]; R];
            let done = fold_steps(s, len, prefetch, [vector, first, width], &mut totals, &add);
            for j in 0..J {
                for part in 0..width {
                    let lane = (vector + j) * MAX_LANES + (first + part) * S::LANES;
                    for row in 0..R {
                        let total = &mut totals[row][part][j];
                        if done + lane < len {
                            add(row, RowVector::rest::<S>(done + lane, len), total);
                        }
                        for sum in 0..SUMS {
                            lanes[sum][row][lane / S::LANES] = total[sum];
                        }
                    }
                }
            }
        }
    }
    array_of!(sum in SUMS => array_of!(row in R => sum_of_lanes::<S, VIRTUAL, _>(s, lanes[sum][row])))
}
