//! What the passes over rows share: where rows are, one vector of them, and the tree in which sums are
//! added.

use crate::simd::{
    CACHE_LINE_F32, HW_PREFETCH_DISTANCE, MAX_LANES, MOST_PARTS, SimdF32, SimdOp, sum_of_parts,
};

/// Vectors in flight in a reduction.
pub(super) const UNROLL: usize = 4;
/// Elements in one step of a reduction: so many virtual vectors of sixteen lanes. Those behind the last
/// whole step belong to the first vector.
pub(super) const STEP: usize = UNROLL * MAX_LANES;
/// Columns up to which two rows go side by side, where there are registers for the sums of both:
/// one row's reduction runs while the other's does. Twice as many columns were faster on a quiet
/// machine with a first-level cache of 32 KiB and slower on a busy one.
pub(super) const PAIRED: usize = 256;
/// Variances or mean squares, plus eps, that f32 handles: outside, squares may have overflowed or vanished.
pub(super) const COMFORTABLE: core::ops::RangeInclusive<f32> = 1e-28..=1e35;

/// Floats of a matrix of which the caches hold little when it is read: of such a one a CPU that
/// [follows streams](SimdF32::prefers_hw_prefetch) is told of pages only.
const FAR: usize = 4 << 20;

/// Rows in memory: where they start and how far apart they are.
#[derive(Clone, Copy)]
pub(super) struct RowPtrs {
    pub(super) start: *mut f32,
    pub(super) stride: usize,
    /// Whether there are [`FAR`] floats of them.
    far: bool,
}

/// A row that comes next, any address.
#[derive(Clone, Copy)]
pub(super) struct Next {
    at: *const f32,
    far: bool,
}

impl RowPtrs {
    /// Rows from `start` on, of a matrix of `rows` rows.
    pub(super) fn new(start: *mut f32, stride: usize, rows: usize) -> Self {
        Self { start, stride, far: rows.saturating_mul(stride) >= FAR }
    }

    /// The rows from `row` on.
    #[inline(always)]
    pub(super) fn from(self, row: usize) -> Self {
        Self { start: self.start.wrapping_add(row.wrapping_mul(self.stride)), ..self }
    }

    /// `R` rows from `row` on, to be asked for.
    #[inline(always)]
    pub(super) fn next<const R: usize>(self, row: usize) -> [Next; R] {
        self.rows(row).map(|at| Next { at, far: self.far })
    }

    /// Where `R` rows from `row` on start.
    #[inline(always)]
    pub(super) fn rows<const R: usize>(self, row: usize) -> [*mut f32; R] {
        core::array::from_fn(|i| self.start.wrapping_add((row + i).wrapping_mul(self.stride)))
    }
}

/// Floats from one request to the next, where a CPU is told of pages.
const PAGES_APART: usize = 128;

/// Asks for the cache lines of `UNROLL` vectors at element `i` of `row`.
#[inline(always)]
pub(super) fn prefetch_step<S: SimdF32>(s: S, row: Next, i: usize) {
    if const { S::MAY_PREFER_HW_PREFETCH } && row.far && s.prefers_hw_prefetch() {
        if i.is_multiple_of(PAGES_APART) {
            s.prefetch_l2(row.at.wrapping_add(i + HW_PREFETCH_DISTANCE));
        }
        return;
    }
    for line in 0..UNROLL * S::LANES / CACHE_LINE_F32 {
        s.prefetch(row.at.wrapping_add(i + line * CACHE_LINE_F32));
    }
}

/// One vector: all of it, or the first `count` lanes with zeros behind.
///
/// # Safety
/// `from` is valid for reads of as many floats.
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
/// `to` is valid for writes of as many floats.
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

/// The parts from `group` on of the sums of `R` rows: the vectors of each added in one tree.
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

/// What a norm has learned, on the standard scores of a row: `out = standard * weight + bias`, with the
/// bits of the last pass of the norm.
///
/// # Safety
/// There is a bias if `BIAS`, as long as the weight. `standard` is valid for reads and `out` for writes
/// of as many floats; they are the same or disjoint.
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

/// [`learned`] on a row in place, as a function of its own: for rows that are rare.
pub(super) struct LearnedRow<'a> {
    pub(super) weight: &'a [f32],
    pub(super) bias: Option<&'a [f32]>,
    pub(super) row: *mut f32,
}

impl SimdOp for LearnedRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        // SAFETY: `NormRows` and `RmsRows` make this value of a row of theirs, which is as long as
        // the weight and the bias (`Norm::check`).
        unsafe {
            match self.bias {
                Some(_) => learned::<S, true>(s, self.weight, self.bias, self.row, self.row),
                None => learned::<S, false>(s, self.weight, None, self.row, self.row),
            }
        }
    }
}
