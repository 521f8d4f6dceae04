//! Prefetches the rows that a later task reads and writes. The rows of one head are too short for the hardware
//! prefetcher.

use super::workspace::QUERY_ROWS;
use crate::simd::{CACHE_LINE_F32, SimdF32};

/// Most queries or keys of a sequence whose rows are prefetched during an earlier task. This leaves space in the
/// second-level cache for the workspace of the current task.
pub(super) const MAX_PREFETCH_ROWS: usize = 2 * QUERY_ROWS;

/// Tasks between the prefetch and the use. One task of a short sentence ends before the memory has responded.
pub(super) const DISTANCE: usize = 2;

/// Tensors that are prefetched per task.
pub(super) const PARTS: usize = 7;

/// Most floats of a tensor that are prefetched into the first-level cache. All rows of a short sentence fit there,
/// together with the workspace.
const MAX_L1_FLOATS: usize = 512;

/// Rows per call of [`Prefetch::issue`].
const ROWS_PER_CALL: usize = 16;

/// The rows of one task, which are prefetched in parts during an earlier one.
pub(super) struct Prefetch {
    /// For each tensor, the address of its first row, which may be invalid, and its stride.
    pub(super) parts: [(*const f32, usize); PARTS],
    pub(super) rows: usize,
    pub(super) elements: usize,
    /// Progress: the number of finished tensors, and of finished rows of the next one.
    pub(super) part: usize,
    pub(super) row: usize,
}

impl Prefetch {
    pub(super) const NOTHING: Self =
        Self { parts: [(core::ptr::null(), 0); PARTS], rows: 0, elements: 0, part: PARTS, row: 0 };

    /// Prefetches the next rows of a tensor.
    #[inline(always)]
    pub(super) fn issue<S: SimdF32>(&mut self, s: S) {
        let Some(&(at, stride)) = self.parts.get(self.part) else { return };
        let end = (self.row + ROWS_PER_CALL).min(self.rows);
        for row in self.row..end {
            let mut column = 0;
            while column < self.elements {
                let offset = row.wrapping_mul(stride).wrapping_add(column);
                if self.rows * self.elements <= MAX_L1_FLOATS {
                    s.prefetch(at.wrapping_add(offset));
                } else {
                    s.prefetch_l2(at.wrapping_add(offset));
                }
                column += CACHE_LINE_F32;
            }
        }
        self.row = end;
        if end == self.rows {
            (self.part, self.row) = (self.part + 1, 0);
        }
    }

    /// Prefetches all remaining rows.
    #[inline(always)]
    pub(super) fn issue_all<S: SimdF32>(&mut self, s: S) {
        while self.part < PARTS {
            self.issue(s);
        }
    }
}
