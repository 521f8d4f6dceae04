//! Sums along a row in an order that does not depend on the width of a vector: element `i` belongs to
//! virtual lane `i % 64`, each lane adds its elements in order, and lanes are added in halves, lane `i`
//! and lane `i + 32` first, then `i` and `i + 16`, and so on.

use super::vector::Lanes;

/// Lanes of a sum, on every instruction set.
pub(crate) const VIRTUAL: usize = 64;

/// Vectors of the narrowest instruction set, four lanes wide, in as many.
pub(crate) const MOST_VECTORS: usize = 16;

/// The sum of [`VIRTUAL`] lanes in halves: vector `v` has the lanes from `v * LANES` on, and there are
/// `VIRTUAL / LANES`.
#[inline(always)]
pub(crate) fn sum_of_lanes<S: Lanes>(s: S, mut lanes: [S::F32; MOST_VECTORS]) -> f32 {
    let mut count = VIRTUAL / S::LANES;
    while count > 1 {
        count /= 2;
        for v in 0..count {
            lanes[v] = s.add(lanes[v], lanes[v + count]);
        }
    }
    s.reduce_add(lanes[0])
}
