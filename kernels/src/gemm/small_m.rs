//! A product of one tile of rows with a `B` whose rows are contiguous. `B` is read in place, because packing would move
//! as much memory as the product does.
//!
//! A panel of `B` in place is a few cache lines of each row. The hardware prefetcher does not follow these strides, so
//! each line is prefetched some steps before it is used.

use super::blocking::MIN_WORK_TO_FORK;
use super::microkernel::{F32Operand, Operands, Panels, multiply, tile_prefetched};
use super::store_tile::Store;
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::{Workers, share};
use crate::prefetch::PrefetchLines;
use crate::simd::{CACHE_LINE_F32, MAX_MR, SimdF32, simd_op};
use core::ops::Range;

/// Steps between the prefetch of a row of a panel and its use.
const PREFETCH_STEPS: usize = 12;

/// Panels that a single row is multiplied by at once.
const PANELS_AT_ONCE: usize = 4;

/// Tasks per thread.
const TASKS_PER_THREAD: usize = 4;

/// Whether [`run`] supports these operands.
pub(super) fn is_supported(a: &Matrix<'_>, b: &Matrix<'_>) -> bool {
    a.rows() <= MAX_MR && b.column_stride() == 1
}

/// Computes the whole panels of the output, and returns their number of columns.
///
/// The shapes of `a`, `b` and `store` match, `a` has at least one row, and [`is_supported`] is true.
pub(super) fn run(
    isa: Isa,
    a: Matrix<'_>,
    b: Matrix<'_>,
    store: Store,
    workers: Workers<'_>,
) -> usize {
    debug_assert!(is_supported(&a, &b) && a.rows() > 0);
    let panels = b.columns() / isa.panel();
    let part = |panels: Range<usize>| {
        // SAFETY: each task has its own panels.
        isa.dispatch(unsafe { multiply_panels(Part { a, b, store, panels }) });
    };
    let work = a.rows().saturating_mul(b.rows()).saturating_mul(b.columns());
    let threads = workers.threads();
    if threads == 1 || work < MIN_WORK_TO_FORK {
        part(0..panels);
    } else {
        let tasks = panels.min(threads * TASKS_PER_THREAD);
        workers.for_each(tasks, &|task| part(share(panels, tasks, task)));
    }
    panels * isa.panel()
}

struct Part<'a> {
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
        part: Part<'_>,
    ) {
        match part.a.rows() {
            1 => part.rows::<S, 1, NV>(s),
            2 => part.rows::<S, 2, NV>(s),
            3 => part.rows::<S, 3, NV>(s),
            4 => part.rows::<S, 4, NV>(s),
            5 => part.rows::<S, 5, NV>(s),
            rows => {
                const { assert!(MAX_MR == 6, "an arm for each height of a tile") };
                debug_assert_eq!(rows, MAX_MR);
                part.rows::<S, MAX_MR, NV>(s)
            }
        }
    }
);

impl Part<'_> {
    /// The operands: the rows of `a` and panel `panel` of `b`.
    #[inline(always)]
    fn operands<S: SimdF32>(&self, panel: usize) -> Operands {
        let Self { a, b, .. } = self;
        Operands {
            a: a.as_ptr(),
            a_row: a.row_stride(),
            a_step: a.column_stride(),
            b: b.as_ptr().wrapping_add(panel * S::PANEL),
            b_step: b.row_stride(),
            b_vector: S::LANES,
        }
    }

    /// The prefetches of `panels` adjacent panels.
    #[inline(always)]
    fn prefetch<S: SimdF32>(operands: &Operands, panels: usize) -> PrefetchLines {
        let at = operands.b.wrapping_add(PREFETCH_STEPS.wrapping_mul(operands.b_step));
        // The panels may be unaligned, so they may touch one more line.
        let count = if S::PREFETCHES { panels * S::PANEL / CACHE_LINE_F32 + 1 } else { 0 };
        PrefetchLines { at, step: operands.b_step, count, apart: CACHE_LINE_F32 }
    }

    #[inline(always)]
    fn rows<S: SimdF32, const MR: usize, const NV: usize>(&self, s: S) {
        let mut panel = self.panels.start;
        // A single row leaves registers for several panels, and each row of `b` is often on another page.
        while MR == 1 && panel + PANELS_AT_ONCE <= self.panels.end {
            let operands = self.operands::<S>(panel);
            let at = core::array::from_fn(|p| operands.b.wrapping_add(p * S::PANEL));
            let panels = Panels { at, step: operands.b_step, vector: S::LANES };
            let prefetch = Self::prefetch::<S>(&operands, PANELS_AT_ONCE);
            let zero = [[[s.splat(0.0); NV]; MR]; PANELS_AT_ONCE];
            // SAFETY: as in the loop below, for each of the `PANELS_AT_ONCE` panels:
            // `panel + PANELS_AT_ONCE <= self.panels.end`.
            unsafe {
                let sums =
                    multiply(F32Operand(s), zero, self.b.rows(), operands.rows(), panels, prefetch);
                for (p, acc) in sums.into_iter().enumerate() {
                    let column = (panel + p) * S::PANEL;
                    self.store.finish::<S, MR, NV>(s, acc, 0, column, S::PANEL);
                }
            }
            panel += PANELS_AT_ONCE;
        }
        while panel < self.panels.end {
            let operands = self.operands::<S>(panel);
            let prefetch = Self::prefetch::<S>(&operands, 1);
            let zero = [[s.splat(0.0); NV]; MR];
            // SAFETY: `a` has `MR` rows (`multiply_panels` matches on it), and `b` has all columns of this panel,
            // contiguous in each row (`is_supported`). No other part stores the panels of this part.
            unsafe {
                let acc = tile_prefetched(s, zero, self.b.rows(), operands, prefetch);
                self.store.finish::<S, MR, NV>(s, acc, 0, panel * S::PANEL, S::PANEL);
            }
            panel += 1;
        }
    }
}
