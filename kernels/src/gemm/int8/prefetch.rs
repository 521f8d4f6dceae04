//! What many rows ask memory for while they are multiplied with a panel: the panel after it, a share for each.

use super::weights::QuantizedMatrix;
use crate::simd::{CACHE_LINE_F32, SimdF32};

/// Lines of a panel, shared out to the rows of the panel before.
#[derive(Clone, Copy)]
pub(super) struct Next {
    /// Any address.
    from: *const f32,
    /// Lines for each row.
    lines: usize,
}

impl Next {
    #[inline(always)]
    pub(super) fn new(weight: &QuantizedMatrix<'_>, panel: usize, rows: usize) -> Self {
        let (from, end) = (weight.panel(panel), weight.panel(panel + 1));
        let lines = (end as usize - from as usize) / size_of::<[f32; CACHE_LINE_F32]>();
        Self { from, lines: lines.div_ceil(rows) }
    }

    /// Asks for the share of so many rows.
    #[inline(always)]
    pub(super) fn issue<S: SimdF32>(&mut self, s: S, rows: usize) {
        for _ in 0..rows * self.lines {
            s.prefetch_l2(self.from);
            self.from = self.from.wrapping_add(CACHE_LINE_F32);
        }
    }
}
