//! A product of one tile of rows with a `B` whose rows are contiguous. `B` is read in place, because packing would move
//! as much memory as the product does.
//!
//! A panel of `B` in place is a few cache lines of each row. The hardware prefetcher does not follow these strides, so
//! each line is prefetched some steps before it is used.

use super::blocking::{MIN_WORK_TO_FORK, split};
use super::epilogue::OutputRange;
use super::microkernel::{F32Operand, Panels, Rows, multiply};
use super::store_tile::Store;
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::Workers;
use crate::prefetch::PerStep;
use crate::simd::{CACHE_LINE_F32, MAX_MR, SimdF32, array_of, simd_op, tile_heights};
use core::ops::Range;

/// Steps between the prefetch of a row of a panel and its use.
const PREFETCH_STEPS: usize = 12;

/// Panels that a single row is multiplied by at once.
const PANELS_AT_ONCE: usize = 4;

/// Whether [`multiply_whole_panels`] supports these operands.
pub(super) fn is_supported(a: &Matrix<'_>, b: &Matrix<'_>) -> bool {
    a.rows() <= MAX_MR && b.column_stride() == 1
}

/// Computes the whole panels of the output, and returns their number of columns.
///
/// The shapes of `a`, `b` and `store` match, `a` has at least one row, and [`is_supported`] is true.
pub(super) fn multiply_whole_panels(
    isa: Isa,
    a: Matrix<'_>,
    b: Matrix<'_>,
    store: Store,
    workers: Workers<'_>,
) -> usize {
    debug_assert!(is_supported(&a, &b) && a.rows() > 0);
    let panels = b.columns() / isa.panel();
    let work = a.rows().saturating_mul(b.rows()).saturating_mul(b.columns());
    split(workers, (work, MIN_WORK_TO_FORK), (1, 1), panels, &|_, panels| {
        // SAFETY: each task has its own panels.
        isa.dispatch(unsafe { multiply_panels(UnpackedPanels { a, b, store, panels }) });
    });
    panels * isa.panel()
}

struct UnpackedPanels<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    store: Store,
    panels: Range<usize>,
}

simd_op!(
    /// # Safety
    /// No other thread accesses the panels of the output.
    unsafe fn multiply_panels<S: SimdF32, const NV: usize = { S::PANEL / S::LANES }>(
        s: S,
        part: UnpackedPanels<'_>,
    ) {
        const { assert!(MAX_MR == 6, "all heights of a tile") };
        tile_heights!(part.a.rows(), [1 2 3 4 5 6], MR => part.rows::<S, MR, NV>(s));
    }
);

impl UnpackedPanels<'_> {
    #[inline(always)]
    fn rows<S: SimdF32, const MR: usize, const NV: usize>(&self, s: S) {
        let mut panel = self.panels.start;
        // A single row leaves registers for several panels, and each row of `b` is often on another page.
        while MR == 1 && panel + PANELS_AT_ONCE <= self.panels.end {
            // SAFETY: there are `PANELS_AT_ONCE` panels from `panel` on.
            unsafe { self.tile::<S, PANELS_AT_ONCE, MR, NV>(s, panel) };
            panel += PANELS_AT_ONCE;
        }
        while panel < self.panels.end {
            // SAFETY: there is a panel.
            unsafe { self.tile::<S, 1, MR, NV>(s, panel) };
            panel += 1;
        }
    }

    /// Multiplies all rows by `P` adjacent panels.
    ///
    /// # Safety
    /// This part has the panels.
    #[inline(always)]
    unsafe fn tile<S: SimdF32, const P: usize, const MR: usize, const NV: usize>(
        &self,
        s: S,
        panel: usize,
    ) {
        let Self { a, b, store, .. } = self;
        let rows = Rows::from_matrix(a, 0, 0);
        let (first, step) = (b.as_ptr().wrapping_add(panel * S::PANEL), b.row_stride());
        let at = array_of!(p in P => first.wrapping_add(p * S::PANEL));
        let panels = Panels { at, step, vector: S::LANES };
        let ahead = first.wrapping_add(PREFETCH_STEPS.wrapping_mul(step));
        // The panels may be unaligned, so they may touch one more line.
        let count = if S::PREFETCHES { P * S::PANEL / CACHE_LINE_F32 + 1 } else { 0 };
        let prefetch = PerStep::new(ahead, step, count, CACHE_LINE_F32);
        let zero = [[[s.splat(0.0); NV]; MR]; P];
        // SAFETY: `a` has `MR` rows (`multiply_panels` matches on it), and `b` has all columns of these panels,
        // contiguous in each row (`is_supported`). No other part stores the panels of this part.
        unsafe {
            let sums = multiply(F32Operand(s), zero, b.rows(), rows, panels, prefetch);
            let (column, columns) = (panel * S::PANEL, P * S::PANEL);
            store.store_panels(s, sums, OutputRange { row: 0, rows: MR, column, columns });
        }
    }
}
