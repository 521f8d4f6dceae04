//! Sums along a row in 64 virtual lanes.

use crate::simd::{MAX_LANES, SimdF32};

/// The number of virtual lanes, on every instruction set: element `i` of a row belongs to lane `i % VIRTUAL`.
pub(super) const VIRTUAL: usize = 64;
/// The largest number of vectors for the virtual lanes: that of a set with four lanes.
const MOST: usize = VIRTUAL / 4;

/// The virtual lanes as vectors, the first `VIRTUAL / LANES` of them.
pub(super) struct VirtualLanes<S: SimdF32>([S::F32; MOST]);

impl<S: SimdF32> VirtualLanes<S> {
    #[inline(always)]
    pub(super) fn zero(s: S) -> Self {
        const { assert!(VIRTUAL.is_multiple_of(S::LANES) && VIRTUAL / S::LANES <= MOST) };
        Self([s.splat(0.0); MOST])
    }

    /// Sets the lanes from `vector * LANES` on.
    #[inline(always)]
    pub(super) fn set(&mut self, vector: usize, lanes: S::F32) {
        self.0[vector] = lanes;
    }

    /// The sum of all lanes by halving: lane `i` and lane `i + 32`, then 16, 8, 4, 2, 1.
    #[inline(always)]
    pub(super) fn sum(mut self, s: S) -> f32 {
        let mut vectors = VIRTUAL / S::LANES;
        while vectors > 1 {
            vectors /= 2;
            for i in 0..vectors {
                self.0[i] = s.add(self.0[i], self.0[i + vectors]);
            }
        }
        let mut lanes = [0.0f32; MAX_LANES];
        // SAFETY: `lanes` has `MAX_LANES` floats, enough for the widest vector.
        unsafe { s.store(lanes.as_mut_ptr(), self.0[0]) };
        let mut left = S::LANES;
        while left > 1 {
            left /= 2;
            for i in 0..left {
                lanes[i] += lanes[i + left];
            }
        }
        lanes[0]
    }
}
