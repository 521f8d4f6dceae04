//! The prefetches of the AMX and I8MM loops: while many rows are multiplied by a panel, each row prefetches a share of
//! the next panel.

use super::weights::QuantizedMatrix;
use crate::simd::{CACHE_LINE_F32, SimdF32};

/// The cache lines of a panel, divided among the rows that are multiplied by the panel before.
#[derive(Clone, Copy)]
pub(super) struct NextPanel {
    /// Address of the next line. Any address is valid.
    from: *const f32,
    /// Lines per row.
    lines: usize,
}

impl NextPanel {
    #[inline(always)]
    pub(super) fn new(weight: &QuantizedMatrix<'_>, panel: usize, rows: usize) -> Self {
        let (from, end) = (weight.panel(panel), weight.panel(panel + 1));
        let lines = (end as usize - from as usize) / size_of::<[f32; CACHE_LINE_F32]>();
        Self { from, lines: lines.div_ceil(rows) }
    }

    /// Prefetches the share of `rows` rows.
    #[inline(always)]
    pub(super) fn issue<S: SimdF32>(&mut self, s: S, rows: usize) {
        for _ in 0..rows * self.lines {
            s.prefetch_l2(self.from);
            self.from = self.from.wrapping_add(CACHE_LINE_F32);
        }
    }
}
