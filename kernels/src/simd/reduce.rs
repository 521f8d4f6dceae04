//! Sums along a row in an order that does not depend on the vector width.
//!
//! Forward kernels add into four virtual vectors of 16 lanes, or into one; this is what AVX-512 has. An instruction
//! set with narrower vectors reads the row once for each *part* of these vectors that it can hold, with as many
//! vectors of sums in registers as AVX-512. [`sum_of_lanes`] then adds the parts in the order in which AVX-512 adds
//! the halves of a vector.

use crate::simd::vector::SimdF32;

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

/// The sum of `LANES` lanes in vectors, by halving: of 16 lanes, lane `i` and lane `i + 8` first, then `i` and `i + 4`, and so
/// on. Vector `v` has the lanes from `v * S::LANES` on.
#[inline(always)]
pub(crate) fn sum_of_lanes<S: SimdF32, const LANES: usize, const N: usize>(
    s: S,
    vectors: [S::F32; N],
) -> f32 {
    const { assert!(LANES / S::LANES <= N) };
    s.reduce_add(sum_by_halving(
        vectors,
        LANES / S::LANES,
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
