//! The columns that may be the largest of a row, and the best lower bound of the row.

use core::sync::atomic::{AtomicU32, Ordering};

/// Parts that the columns are divided into. Each part has its own list of candidates.
pub(super) const PARTS: usize = 16;

/// Largest number of candidates of a row in one part. A row with more is undecided.
pub(super) const CANDIDATES: usize = 64;

/// A column that may be the largest.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Candidate {
    pub(super) column: u32,
    /// An upper bound of the element; never NaN.
    pub(super) upper: f32,
}

/// The largest lower bound that any part has found for a row. It never decreases, and it is infinite if the row is
/// undecided.
pub(super) struct Best<'a>(pub(super) &'a AtomicU32);

impl Best<'_> {
    #[inline(always)]
    pub(super) fn get(&self) -> f32 {
        f32::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn raise(&self, bound: f32) {
        let mut seen = self.0.load(Ordering::Relaxed);
        while bound > f32::from_bits(seen) {
            match self.0.compare_exchange_weak(
                seen,
                bound.to_bits(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}
