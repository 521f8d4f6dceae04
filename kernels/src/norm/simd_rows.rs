//! Code that the passes over rows share: prefetches, vector loads and stores, and the tree in which sums are added.

pub(super) use crate::prefetch::PrefetchRow;
use crate::row_tasks::RowPtrs;
use crate::simd::{MAX_LANES, MOST_PARTS, SimdF32, simd_op, sum_of_parts};

/// Vectors of independent sums in a reduction.
pub(super) const UNROLL: usize = 4;
/// Elements in one step of a reduction: `UNROLL` virtual vectors of sixteen lanes. The elements after the last whole
/// step belong to the first vector.
pub(super) const STEP: usize = UNROLL * MAX_LANES;
/// The largest number of columns for which two rows are processed in parallel, if the registers can hold the sums of
/// both: the reductions of the two rows overlap. Twice as many columns were faster on an idle machine with an L1 cache
/// of 32 KiB and slower on a busy one.
pub(super) const PAIRED: usize = 256;
/// Variances or mean squares, plus eps, for which f32 is accurate: outside this range squares may have overflowed or
/// underflowed.
pub(super) const F32_SAFE: core::ops::RangeInclusive<f32> = 1e-28..=1e35;

impl RowPtrs<'_> {
    /// `R` rows from `row` on, to prefetch.
    #[inline(always)]
    pub(super) fn next<const R: usize>(self, row: usize) -> [PrefetchRow; R] {
        self.rows(row).map(|at| PrefetchRow { at, large: self.large })
    }
}

/// Prefetches the cache lines of `UNROLL` vectors at element `i` of `row`.
#[inline(always)]
pub(super) fn prefetch_step<S: SimdF32>(s: S, row: PrefetchRow, i: usize) {
    row.issue::<S, UNROLL>(s, i);
}

/// Loads one vector: all of it, or the first `count` lanes followed by zeros.
///
/// # Safety
/// `from` is valid for reads of `LANES` floats if `FULL`, otherwise of `count` floats.
#[inline(always)]
pub(super) unsafe fn load<S: SimdF32, const FULL: bool>(
    s: S,
    from: *const f32,
    count: usize,
) -> S::F32 {
    // SAFETY: the caller's contract.
    unsafe { if FULL { s.load(from) } else { s.load_prefix(from, count) } }
}

/// # Safety
/// `to` is valid for writes of `LANES` floats if `FULL`, otherwise of `count` floats.
#[inline(always)]
pub(super) unsafe fn store<S: SimdF32, const FULL: bool>(
    s: S,
    to: *mut f32,
    v: S::F32,
    count: usize,
) {
    // SAFETY: the caller's contract.
    unsafe { if FULL { s.store(to, v) } else { s.store_prefix(to, v, count) } }
}

/// Writes the parts from `group` on of the sums of `R` rows: the vectors of each part, added in a tree.
#[inline(always)]
pub(super) fn add_vectors<S: SimdF32, const R: usize, const WIDTH: usize>(
    s: S,
    v: [[[S::F32; UNROLL]; WIDTH]; R],
    parts: &mut [[S::F32; MOST_PARTS]; R],
    group: usize,
) {
    for row in 0..R {
        for part in 0..WIDTH {
            let v = v[row][part];
            parts[row][group + part] = s.add(s.add(v[0], v[1]), s.add(v[2], v[3]));
        }
    }
}

/// The sums of `R` rows.
#[inline(always)]
pub(super) fn reduce<S: SimdF32, const R: usize>(
    s: S,
    parts: [[S::F32; MOST_PARTS]; R],
) -> [f32; R] {
    let mut sums = [0.0; R];
    for (sum, parts) in sums.iter_mut().zip(parts) {
        *sum = sum_of_parts(s, parts);
    }
    sums
}

/// Applies the parameters of a norm to the standard scores of a row: `out = standard * weight + bias`, with the same
/// bits as the last pass of the norm.
///
/// # Safety
/// There is a bias if `BIAS`, as long as the weight. `standard` is valid for reads and `out` for writes of
/// `weight.len()` floats; they are the same or disjoint.
#[inline(always)]
pub(super) unsafe fn learned<S: SimdF32, const BIAS: bool>(
    s: S,
    weight: &[f32],
    bias: Option<&[f32]>,
    standard: *const f32,
    out: *mut f32,
) {
    let len = weight.len();
    let weight = weight.as_ptr();
    let bias = bias.map_or(core::ptr::null(), <[f32]>::as_ptr);
    macro_rules! vector {
        ($full:literal, $at:expr, $count:expr) => {{
            let (at, count) = ($at, $count);
            let w = load::<S, $full>(s, weight.add(at), count);
            let z = load::<S, $full>(s, standard.add(at), count);
            let y = if BIAS {
                s.mul_add(z, w, load::<S, $full>(s, bias.add(at), count))
            } else {
                s.mul(z, w)
            };
            store::<S, $full>(s, out.add(at), y, count);
        }};
    }
    let mut i = 0;
    while i + UNROLL * S::LANES <= len {
        for j in 0..UNROLL {
            // SAFETY: `i + UNROLL * LANES <= len`, within the row.
            unsafe { vector!(true, i + j * S::LANES, S::LANES) };
        }
        i += UNROLL * S::LANES;
    }
    while i < len {
        let count = (len - i).min(S::LANES);
        // SAFETY: `i + count <= len`, within the row.
        unsafe { vector!(false, i, count) };
        i += count;
    }
}

simd_op!(
    /// [`learned`] on a row in place, for rare rows, so that its code is not inlined several times.
    ///
    /// # Safety
    /// `row` is valid for reads and writes, and the bias for reads, of `weight.len()` floats.
    pub(super) unsafe fn learned_row<S: SimdF32>(
        s: S,
        weight: &[f32],
        bias: Option<&[f32]>,
        row: *mut f32,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            match bias {
                Some(_) => learned::<S, true>(s, weight, bias, row, row),
                None => learned::<S, false>(s, weight, None, row, row),
            }
        }
    }
);
