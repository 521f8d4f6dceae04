//! A product of one tile of rows with a `B` whose rows are contiguous, read where it lies: packing would
//! move as much memory as the product does.
//!
//! A panel of `B` in place is a few cache lines of each of its rows. No stream of the hardware's follows
//! such steps, so each line is asked for some steps before it is multiplied.

use super::blocking::MIN_WORK_TO_FORK;
use super::epilogue::Store;
use super::microkernel::{
    F32Operand, MAX_MR, Operands, Panels, PrefetchLines, multiply, tile_prefetched,
};
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::{Workers, share};
use crate::simd::{CACHE_LINE_F32, SimdF32, SimdOp, TileOp};
use core::ops::Range;

/// Steps between asking for a row of a panel and multiplying with it.
const AHEAD: usize = 12;

/// Panels that one row is multiplied with at once.
const WIDE: usize = 4;

/// Tasks per thread.
const TASKS_PER_THREAD: usize = 4;

/// Whether [`run`] may have these operands.
pub(super) fn is_supported(a: &Matrix<'_>, b: &Matrix<'_>) -> bool {
    a.rows() <= MAX_MR && b.column_stride() == 1
}

/// Computes the whole panels of the output, and returns how many columns they are.
///
/// `a`, `b` and `store` belong together, `a` has a row, and they are as [`suits`] says.
pub(super) fn run(
    isa: Isa,
    a: Matrix<'_>,
    b: Matrix<'_>,
    store: Store,
    workers: Workers<'_>,
) -> usize {
    debug_assert!(is_supported(&a, &b) && a.rows() > 0);
    let panels = b.columns() / isa.panel();
    let part = |panels: Range<usize>| isa.dispatch(Part { a, b, store, panels });
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

impl SimdOp for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        s.with_tile_width(self);
    }
}

impl TileOp for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32, const NV: usize>(self, s: S) {
        match self.a.rows() {
            1 => self.rows::<S, 1, NV>(s),
            2 => self.rows::<S, 2, NV>(s),
            3 => self.rows::<S, 3, NV>(s),
            4 => self.rows::<S, 4, NV>(s),
            5 => self.rows::<S, 5, NV>(s),
            rows => {
                const { assert!(MAX_MR == 6, "an arm for each height of a tile") };
                debug_assert_eq!(rows, MAX_MR);
                self.rows::<S, MAX_MR, NV>(s)
            }
        }
    }
}

impl Part<'_> {
    /// Where `MR` rows of `a` and panel `panel` of `b` are.
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

    /// What asks for `panels` panels side by side.
    #[inline(always)]
    fn ahead<S: SimdF32>(operands: &Operands, panels: usize) -> PrefetchLines {
        let at = operands.b.wrapping_add(AHEAD.wrapping_mul(operands.b_step));
        // They need not start with a line: one more than they have.
        let count = if S::PREFETCHES { panels * S::PANEL / CACHE_LINE_F32 + 1 } else { 0 };
        PrefetchLines { at, step: operands.b_step, count, apart: CACHE_LINE_F32 }
    }

    #[inline(always)]
    fn rows<S: SimdF32, const MR: usize, const NV: usize>(&self, s: S) {
        let mut panel = self.panels.start;
        // A row that is alone has registers for several panels, and each row of `b` is on a page of
        // its own as often as not.
        while MR == 1 && panel + WIDE <= self.panels.end {
            let operands = self.operands::<S>(panel);
            let at = core::array::from_fn(|p| operands.b.wrapping_add(p * S::PANEL));
            let panels = Panels { at, step: operands.b_step, vector: S::LANES };
            let ahead = Self::ahead::<S>(&operands, WIDE);
            let zero = [[[s.splat(0.0); NV]; MR]; WIDE];
            // SAFETY: as below, for each of the panels.
            unsafe {
                let sums =
                    multiply(F32Operand(s), zero, self.b.rows(), operands.rows(), panels, ahead);
                for (p, acc) in sums.into_iter().enumerate() {
                    let column = (panel + p) * S::PANEL;
                    self.store.finish::<S, MR, NV>(s, acc, 0, column, S::PANEL);
                }
            }
            panel += WIDE;
        }
        while panel < self.panels.end {
            let operands = self.operands::<S>(panel);
            let ahead = Self::ahead::<S>(&operands, 1);
            let zero = [[s.splat(0.0); NV]; MR];
            // SAFETY: `a` has `MR` rows, and `b` all columns of this panel, one after the other in each
            // row; this part's panels are stored by nobody else.
            unsafe {
                let acc = tile_prefetched(s, zero, self.b.rows(), operands, ahead);
                self.store.finish::<S, MR, NV>(s, acc, 0, panel * S::PANEL, S::PANEL);
            }
            panel += 1;
        }
    }
}
