//! Sums along a row in an order that does not depend on the vector width.
//!
//! Forward kernels add into four virtual vectors of 16 lanes, or into one; this is what AVX-512 has. An instruction
//! set with narrower vectors reads the row once for each *part* of these vectors that it can hold, with as many
//! vectors of sums in registers as AVX-512. [`sum_of_parts`] then adds the parts in the order in which AVX-512 adds
//! the halves of a vector.

use crate::simd::vector::{MAX_LANES, SimdF32};

/// Parts of a virtual vector on the narrowest instruction set, which has four lanes.
pub(crate) const MOST_PARTS: usize = 4;

/// The sum of the first `count` values, a power of two, by halving: value `i` and value `i + count / 2` first.
#[inline(always)]
pub(crate) fn sum_by_halving<T: Copy, const N: usize>(
    mut values: [T; N],
    mut count: usize,
    add: impl Fn(T, T) -> T,
) -> T {
    while count > 1 {
        count /= 2;
        for i in 0..count {
            values[i] = add(values[i], values[i + count]);
        }
    }
    values[0]
}

/// The sum of the lanes of a virtual vector, by halving: lane `i` and lane `i + 8` first, then `i` and `i + 4`, and so
/// on. Part `p` has the lanes from `p * LANES` on; there are `MAX_LANES / LANES` parts.
#[inline(always)]
pub(crate) fn sum_of_parts<S: SimdF32>(s: S, parts: [S::F32; MOST_PARTS]) -> f32 {
    const { assert!(MAX_LANES / S::LANES <= MOST_PARTS) };
    s.reduce_add(sum_by_halving(
        parts,
        MAX_LANES / S::LANES,
        #[inline(always)]
        |a, b| s.add(a, b),
    ))
}

/// Virtual lanes of a gradient's sum, on every instruction set: element `i` belongs to lane `i % 64`. Each lane adds
/// its elements in order. Then the lanes are added by halving: lane `i` and lane `i + 32` first.
#[cfg(feature = "train")]
pub(crate) const VIRTUAL: usize = 64;

/// The number of vectors in [`VIRTUAL`] lanes on the narrowest instruction set.
#[cfg(feature = "train")]
pub(crate) const MOST_VECTORS: usize = 16;

/// The sum of [`VIRTUAL`] lanes by halving: vector `v` has the lanes from `v * LANES` on; there are `VIRTUAL / LANES`
/// vectors.
#[cfg(feature = "train")]
#[inline(always)]
pub(crate) fn sum_of_lanes<S: SimdF32>(s: S, lanes: [S::F32; MOST_VECTORS]) -> f32 {
    const { assert!(VIRTUAL / S::LANES <= MOST_VECTORS) };
    s.reduce_add(sum_by_halving(
        lanes,
        VIRTUAL / S::LANES,
        #[inline(always)]
        |a, b| s.add(a, b),
    ))
}
