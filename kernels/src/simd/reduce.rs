//! Sums along a row in an order that does not depend on the width of a vector.
//!
//! Forward kernels add in four virtual vectors of sixteen lanes, or in one: what AVX-512 has. A narrower
//! set goes over the row once for each *part* of these vectors that it can hold, with as many sums in
//! registers as AVX-512 has, and [`sum_of_parts`] adds the parts as AVX-512 adds the halves of a vector.

use crate::simd::vector::{MAX_LANES, SimdF32};

/// Parts of a virtual vector on the narrowest instruction set, four lanes wide.
pub(crate) const MOST_PARTS: usize = 4;

/// The sum of the lanes of a virtual vector, in halves: lane `i` and lane `i + 8` first, then `i` and
/// `i + 4`, and so on. Part `p` has the lanes from `p * LANES` on, and there are `MAX_LANES / LANES`.
#[inline(always)]
pub(crate) fn sum_of_parts<S: SimdF32>(s: S, mut parts: [S::F32; MOST_PARTS]) -> f32 {
    const { assert!(MAX_LANES / S::LANES <= MOST_PARTS) };
    let mut count = MAX_LANES / S::LANES;
    while count > 1 {
        count /= 2;
        for p in 0..count {
            parts[p] = s.add(parts[p], parts[p + count]);
        }
    }
    s.reduce_add(parts[0])
}

/// Lanes of a sum of a gradient, on every instruction set: element `i` belongs to lane `i % 64`, each lane
/// adds its elements in order, and lanes are added in halves, lane `i` and lane `i + 32` first.
#[cfg(feature = "train")]
pub(crate) const VIRTUAL: usize = 64;

/// Vectors of the narrowest instruction set in as many.
#[cfg(feature = "train")]
pub(crate) const MOST_VECTORS: usize = 16;

/// The sum of [`VIRTUAL`] lanes in halves: vector `v` has the lanes from `v * LANES` on, and there are
/// `VIRTUAL / LANES`.
#[cfg(feature = "train")]
#[inline(always)]
pub(crate) fn sum_of_lanes<S: SimdF32>(s: S, mut lanes: [S::F32; MOST_VECTORS]) -> f32 {
    let mut count = VIRTUAL / S::LANES;
    while count > 1 {
        count /= 2;
        for v in 0..count {
            lanes[v] = s.add(lanes[v], lanes[v + count]);
        }
    }
    s.reduce_add(lanes[0])
}
