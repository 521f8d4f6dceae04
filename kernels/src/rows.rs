//! Splits the rows of a matrix into tasks of fixed size, independent of the number of threads.

use crate::parallel::{Workers, work_to_share};
use crate::simd::SimdF32;
use core::ops::Range;

/// Elements in one task, approximately: a few microseconds of work, more than the cost of handing a task to a thread.
const TASK: usize = work_to_share(1 << 14);

/// Calls `body` with ranges of rows that together are `0..rows`. The ranges depend on the shape alone. Less than one
/// task's work stays on the calling thread.
pub(crate) fn for_rows(
    workers: Workers<'_>,
    rows: usize,
    columns: usize,
    body: &(dyn Fn(Range<usize>) + Sync),
) {
    let chunk = (TASK / columns.max(1)).max(1);
    workers.for_each(rows.div_ceil(chunk), &|task| {
        let start = task * chunk;
        body(start..rows.min(start + chunk));
    });
}

/// A function of one vector, applied to a slice by [`map_slice`].
pub(crate) trait Map: Copy {
    /// Implementations are `#[inline(always)]`.
    fn map<S: SimdF32>(self, s: S, x: S::F32) -> S::F32;
}

/// `to[i] = map(from[i])` for `len` elements; `to` may be `from`.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `len` floats; they are the same or disjoint.
#[inline(always)]
pub(crate) unsafe fn map_slice<S: SimdF32, M: Map>(
    s: S,
    map: M,
    from: *const f32,
    to: *mut f32,
    len: usize,
) {
    const UNROLL: usize = 4;
    let mut i = 0;
    while i + UNROLL * S::LANES <= len {
        let mut v = [s.splat(0.0); UNROLL];
        for (j, v) in v.iter_mut().enumerate() {
            // SAFETY: `i + UNROLL * LANES <= len`.
            *v = map.map(s, unsafe { s.load(from.add(i + j * S::LANES)) });
        }
        for (j, v) in v.into_iter().enumerate() {
            // SAFETY: `i + j * LANES + LANES <= i + UNROLL * LANES <= len`, which the loop checks.
            unsafe { s.store(to.add(i + j * S::LANES), v) };
        }
        i += UNROLL * S::LANES;
    }
    while i < len {
        let count = (len - i).min(S::LANES);
        // SAFETY: `i + count <= len`.
        unsafe { s.store_prefix(to.add(i), map.map(s, s.load_prefix(from.add(i), count)), count) };
        i += count;
    }
}
