//! What one task reads and writes, asked for during one before: rows of one head are too short for the CPU to see
//! where they lead.

use super::workspace::QUERY_ROWS;
use crate::simd::{CACHE_LINE_F32, SimdF32};

/// Queries or keys of a sequence whose rows are asked for while another is worked on: what leaves room in the
/// second-level cache for the room of the task at hand.
pub(super) const MOST_ASKED: usize = 2 * QUERY_ROWS;

/// Tasks from asking to working: one is over before memory has answered, if its sentence is short.
pub(super) const DISTANCE: usize = 2;

/// Tensors of a task.
pub(super) const PARTS: usize = 7;

/// Floats of a tensor that are asked into the first-level cache: of a short sentence all rows fit beside its room.
const SMALL: usize = 512;

/// Rows that are asked for at once.
const AT_ONCE: usize = 16;

/// Rows of one task that are asked for by and by during one before.
pub(super) struct Prefetch {
    /// Where the rows of each tensor begin, any address, and from one to the next.
    pub(super) parts: [(*const f32, usize); PARTS],
    pub(super) rows: usize,
    pub(super) elements: usize,
    /// What has been asked for: tensors, and rows of the next one.
    pub(super) part: usize,
    pub(super) row: usize,
}

impl Prefetch {
    pub(super) const NOTHING: Self =
        Self { parts: [(core::ptr::null(), 0); PARTS], rows: 0, elements: 0, part: PARTS, row: 0 };

    /// Asks for some more rows of a tensor.
    #[inline(always)]
    pub(super) fn issue<S: SimdF32>(&mut self, s: S) {
        let Some(&(at, stride)) = self.parts.get(self.part) else { return };
        let end = (self.row + AT_ONCE).min(self.rows);
        for row in self.row..end {
            let mut column = 0;
            while column < self.elements {
                let offset = row.wrapping_mul(stride).wrapping_add(column);
                if self.rows * self.elements <= SMALL {
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

    /// Asks for what is left.
    #[inline(always)]
    pub(super) fn ask_all<S: SimdF32>(&mut self, s: S) {
        while self.part < PARTS {
            self.issue(s);
        }
    }
}
