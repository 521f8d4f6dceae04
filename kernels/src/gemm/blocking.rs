//! The loops around the microkernel, and their split over threads.
//!
//! The loops have the names of BLIS (Van Zee and van de Geijn 2015, "BLIS: A Framework for Rapidly Instantiating BLAS
//! Functionality"):
//!
//! ```text
//! ic: MC rows of A           its part of A stays in the L2 cache and its pages in the TLB
//!   jr: NR columns of W      a panel
//!     pc: KC steps of k      a block of the panel stays in a cache, while the next one is prefetched
//!       ir: MR rows of A     a tile; tiles are balanced: seven rows are 4 + 3, not 6 + 1
//!         microkernel        KC steps of MR x NR multiply-adds in registers
//! ```
//!
//! Three things differ from BLIS. `W` is packed before the call, and `A` is read in place, so no loop packs. The loop
//! `jc` over NC columns is the range of panels of a task. The loop `pc` is inside of `jr`: MC x NR partial sums are
//! stored on the stack between two blocks of `k`, as f32, which is exact, and the epilogue runs once.
//!
//! | rows | MC | KC | limit |
//! |---|---|---|---|
//! | one | one, two panels at a time for more independent chains of additions | all of `k` | memory bandwidth |
//! | up to 36, 16-bit weights | see `f16_tile.rs` | all of `k` | memory bandwidth |
//! | up to 36 | all of them | 64, or all of `k` for one tile | memory bandwidth |
//! | more | up to 192 | 512 | arithmetic |
//!
//! 16-bit weights of many rows are widened to f32, one block at a time, before the loop `ir`. Threads take ranges of
//! panels, and of rows when there are fewer panels than tasks. `k` is never split.

use super::epilogue::Epilogue;
use super::f16_tile::{few_rows, widen};
use super::microkernel::{F32Operand, Panels, Rows, multiply};
use super::packing::PackedMatrix;
use super::prefetch_weights::{
    BlockPrefetch, FEW_ROWS, ManyRows, NextBlock, PrefetchPlan, PrefetchTarget, WeightReads,
    fewest_rows,
};
use super::store_tile::{GemmRange, Store, load_line, store_line};
use crate::dtype::Dtype;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::{Workers, share, work_to_share};
use crate::prefetch::{CacheLevel, PerPeriod, PerStep, Sparse};
use crate::simd::{MAX_MR, MAX_PANEL, SimdF32, SimdOp, array_of, simd_op, tile_heights};
use core::mem::MaybeUninit;
use core::ops::Range;

/// KC for few rows: 64 steps of a 64-wide panel are 16 KiB, half of the smallest L1 cache.
const FEW_ROWS_KC: usize = 64;

/// KC for many rows: 128 KiB of a 64-wide panel. Under Miri blocks are smaller, so that a test covers two of them.
const KC: usize = if cfg!(miri) { 64 } else { 512 };

/// The largest MC for many rows.
const MANY_ROWS: usize = 32 * MAX_MR;

/// The largest MC for many rows with 16-bit weights.
const WIDENED_ROWS: usize = MANY_ROWS / 2;

/// Floats of `A` in a block of rows: half a MiB, which fits an L2 cache of 1 MiB together with two blocks of a panel.
const MC_FLOATS: usize = 128 << 10;

/// Multiply-adds below which a second thread costs more time than it saves.
pub(super) const MIN_WORK_TO_FORK: usize = work_to_share(1 << 19);

/// Tasks per thread. With several of them a late thread does not delay the others.
const TASKS_PER_THREAD: usize = 4;

/// Floats of weights that an outer cache may hold from one call to the next.
const CACHED_WEIGHTS: usize = 4 << 20;

/// Steps of `k` between the prefetch of a line and its use, for one row.
const ROW_PREFETCH_STEPS: usize = 16;

/// [`gemm`](super::gemm) on checked operands.
pub(super) fn multiply_packed(
    a: Matrix<'_>,
    weight: &PackedMatrix<'_>,
    epilogue: &Epilogue<'_>,
    c: &mut MatrixMut<'_>,
    workers: Workers<'_>,
) {
    let (isa, store) = (weight.isa(), Store::new(epilogue, c));
    let (rows, panels) = (c.rows(), c.columns().div_ceil(isa.panel()));
    // The product only selects between serial and parallel, so saturation is harmless.
    let work = rows.saturating_mul(weight.depth()).saturating_mul(weight.columns());
    // Rows are cut at multiples of the tile.
    let units = (rows, rows.div_ceil(2 * MAX_MR));
    split(workers, (work, MIN_WORK_TO_FORK), units, panels, &|rows, panels| {
        // SAFETY: `split` gives each range to one task.
        isa.dispatch(unsafe { multiply_range(GemmRange { a, weight, store, rows, panels }) });
    });
}

/// Runs `task` for all `rows` and all panels: in one call if `work` is below `min_work`, otherwise split into tasks for
/// the threads. Rows are split only when there are fewer panels than tasks, and into at most `row_tasks` ranges.
pub(super) fn split(
    workers: Workers<'_>,
    (work, min_work): (usize, usize),
    (rows, row_tasks): (usize, usize),
    panels: usize,
    task: &(impl Fn(Range<usize>, Range<usize>) + Sync),
) {
    let threads = workers.threads();
    if threads == 1 || work < min_work || panels == 0 {
        return task(0..rows, 0..panels);
    }
    let target_tasks = threads * TASKS_PER_THREAD;
    let column_tasks = panels.min(target_tasks);
    let row_tasks = (target_tasks / column_tasks).min(row_tasks).max(1);
    workers.for_each(column_tasks * row_tasks, &|index| {
        let (column_task, row_task) = (index / row_tasks, index % row_tasks);
        task(share(rows, row_tasks, row_task), share(panels, column_tasks, column_task));
    });
}

simd_op!(
    /// Selects the loops by rows and dtype, and their prefetch policy.
    ///
    /// # Safety
    /// No other thread accesses the range of the output.
    unsafe fn multiply_range<S: SimdF32, const NV: usize = { S::PANEL / S::LANES }>(
        s: S,
        range: GemmRange<'_>,
    ) {
        let (rows, dtype) = (range.rows.len(), range.weight.dtype());
        if rows <= FEW_ROWS && dtype != Dtype::F32 {
            return few_rows(range).run_with(s);
        }
        if rows == 1 {
            return s.call_noinline(one_row::<NV>(range));
        }
        let tiles = rows.div_ceil(MAX_MR);
        let reads = WeightReads { bytes: 4, rows, shared: tiles > 1, cached: false };
        // A policy that does not occur on this instruction set is not compiled.
        match PrefetchTarget::select(s, reads) {
            PrefetchTarget::Nothing if const { !S::PREFETCHES } && rows > FEW_ROWS => {
                s.call_noinline(loops::<(), NV, MANY_ROWS>(range, CacheLevel::L1))
            }
            PrefetchTarget::Nothing if const { !S::PREFETCHES } => {
                s.call_noinline(loops::<(), NV, FEW_ROWS>(range, CacheLevel::L1))
            }
            PrefetchTarget::LaterStep if const { S::PREFETCHES } => {
                s.call_noinline(loops::<PerStep, NV, FEW_ROWS>(range, CacheLevel::L1))
            }
            PrefetchTarget::Sparse if const { S::MAY_PREFER_HW_PREFETCH } => {
                s.call_noinline(loops::<Sparse, NV, FEW_ROWS>(range, CacheLevel::L2))
            }
            PrefetchTarget::NextBlock(cache) if const { S::PREFETCHES } => {
                s.call_noinline(loops::<PerPeriod<2>, NV, FEW_ROWS>(range, cache))
            }
            PrefetchTarget::NextBlockAndLaterStep if const { S::PREFETCHES } => {
                s.call_noinline(loops::<ManyRows, NV, MANY_ROWS>(range, CacheLevel::L2))
            }
            target => unreachable!("{target:?} of {rows} rows"),
        }
    }
);

/// MC, in tiles, and KC of a task with `tiles` tiles and at most `MC` rows in a block.
#[inline(always)]
fn block_sizes<S: SimdF32, const MC: usize>(
    weight: &PackedMatrix<'_>,
    tiles: usize,
) -> (usize, usize) {
    let depth = weight.depth();
    if const { MC == FEW_ROWS } {
        // A single tile prefetches a fixed distance ahead and needs no blocks.
        return (tiles, if tiles == 1 { depth } else { FEW_ROWS_KC });
    }
    let mc = (MC_FLOATS / (MAX_MR * depth.max(1))).clamp(4, MANY_ROWS / MAX_MR);
    match weight.dtype() {
        Dtype::F32 => (mc, KC),
        // The second half of the partial sums holds the weights widened to f32.
        _ => (mc.min(WIDENED_ROWS / MAX_MR), KC.min(WIDENED_ROWS * MAX_PANEL / S::PANEL)),
    }
}

simd_op!(
    /// The loops of a range with prefetch policy `Q` and at most `MC` rows in a block, as a separate function: several
    /// functions of a few tiles each compile several times faster than one function with all tiles. `cache` is where the
    /// next block is prefetched to.
    fn loops<S: SimdF32, Q: BlockPrefetch, const NV: usize, const MC: usize>(
        s: S,
        range: GemmRange<'_>,
        cache: CacheLevel,
    ) {
        let GemmRange { weight, .. } = range;
        let (rows, depth, dtype) = (range.rows.len(), weight.depth(), weight.dtype());
        let tiles = rows.div_ceil(MAX_MR);
        let (mc, kc) = block_sizes::<S, MC>(weight, tiles);
        let mut partial = PartialSums::<MC>(MaybeUninit::uninit());
        // One pointer for all rows, which are in use at the same time: another borrow would invalidate it.
        let partial = partial.0.as_mut_ptr().cast::<f32>();
        let blocks = tiles.div_ceil(mc);
        for ic in 0..blocks {
            let block = share(tiles, blocks, ic);
            let first = share(rows, tiles, block.start).start;
            let plan = PrefetchPlan::new::<S>(dtype, block.len(), Q::requests::<S>(), cache);
            for panel in range.panels.clone() {
                let mut pc = 0;
                loop {
                    let steps = (depth - pc).min(kc);
                    let last = pc + steps == depth;
                    let next = range.next_block::<MC>(panel, pc..pc + steps, ic + 1 == blocks);
                    let mut b = weight.address(panel, pc);
                    if const { MC > FEW_ROWS } && dtype != Dtype::F32 {
                        let to = partial.wrapping_add(WIDENED_ROWS * S::PANEL);
                        // SAFETY: the panel has rows `pc..pc + steps`, and one more if `steps` is odd: only the last
                        // block of a panel is odd, and packing pads it with a row of zeros. `to` is the second half of
                        // the partial sums, which has space for `kc` rows of a panel.
                        s.call_noinline(unsafe { widen(dtype, b, steps, to) });
                        b = to;
                    }
                    for ir in block.clone() {
                        let own = share(rows, tiles, ir);
                        let tile = BlockTile {
                            row: range.rows.start + own.start,
                            panel,
                            k: pc,
                            steps,
                            last,
                            b,
                            next: plan.next(next, ir - block.start, steps),
                            partial: partial.wrapping_add((own.start - first) * S::PANEL),
                        };
                        const { assert!(MAX_MR == 6, "all heights of a tile") };
                        tile_heights!(own.len(), [2 3 4 5 6], MR if MR >= fewest_rows::<Q>() => {
                            range.tile::<S, Q, MR, NV, MC>(s, &tile)
                        });
                    }
                    pc += steps;
                    if last {
                        break;
                    }
                }
            }
        }
    }
);

simd_op!(
    /// The loop `jr` of one row, as a separate function. Two panels at a time are multiplied over all of `k`.
    fn one_row<S: SimdF32, const NV: usize>(s: S, range: GemmRange<'_>) {
        let cached = range.weight.depth() * range.weight.columns() <= CACHED_WEIGHTS;
        let reads = WeightReads { bytes: 4, rows: 1, shared: false, cached };
        let target = PrefetchTarget::select(s, reads);
        let mut panel = range.panels.start;
        while panel < range.panels.end {
            if panel + 2 <= range.panels.end {
                range.row::<S, 2, NV>(s, target, panel);
                panel += 2;
            } else {
                range.row::<S, 1, NV>(s, PrefetchTarget::Nothing, panel);
                panel += 1;
            }
        }
    }
);

impl GemmRange<'_> {
    /// Multiplies the only row by `P` panels, over all of `k`.
    #[inline(always)]
    fn row<S: SimdF32, const P: usize, const NV: usize>(
        &self,
        s: S,
        target: PrefetchTarget,
        panel: usize,
    ) {
        let (row, depth) = (self.rows.start, self.weight.depth());
        let rows = Rows::from_matrix(&self.a, row, 0);
        let first = self.weight.address(panel, 0);
        let at = array_of!(p in P => first.wrapping_add(p * depth * S::PANEL));
        let panels = Panels { at, step: S::PANEL, vector: S::LANES };
        let zero = [[[s.splat(0.0); NV]; 1]; P];
        // SAFETY: `row` and the panels are inside the ranges of this task, which the shapes of both views cover. No
        // other task stores these panels.
        unsafe {
            let sums = match target {
                PrefetchTarget::Sparse if const { S::MAY_PREFER_HW_PREFETCH && P > 1 } => {
                    let prefetch = array_of!(p in P => Sparse::sparse(at[p], S::PANEL));
                    multiply(F32Operand(s), zero, depth, rows, panels, prefetch)
                }
                PrefetchTarget::LaterStep if const { S::PREFETCHES && P > 1 } => {
                    let prefetch = array_of!(p in P => {
                        let at = at[p].wrapping_add(ROW_PREFETCH_STEPS * S::PANEL);
                        PerStep::running(at, NV, S::LANES)
                    });
                    multiply(F32Operand(s), zero, depth, rows, panels, prefetch)
                }
                _ => multiply(F32Operand(s), zero, depth, rows, panels, ()),
            };
            self.store.store_panels(s, sums, self.output::<S>((row, 1), (panel, P)));
        }
    }

    /// The address of the block that is multiplied after steps `k` of `panel`. After the last block of the last rows,
    /// it is the current one again.
    #[inline(always)]
    fn next_block<const MC: usize>(
        &self,
        panel: usize,
        k: Range<usize>,
        last_rows: bool,
    ) -> *const f32 {
        if const { MC == FEW_ROWS } {
            // Panels are contiguous, so this address is the next block of `k` or the start of the next panel.
            return self.weight.address(panel, k.start + k.len().min(FEW_ROWS_KC));
        }
        let (panel, k) = if k.end < self.weight.depth() {
            (panel, k.end)
        } else if panel + 1 < self.panels.end {
            (panel + 1, 0)
        } else if !last_rows {
            (self.panels.start, 0)
        } else {
            (panel, k.start)
        };
        self.weight.address(panel, k)
    }

    /// One tile over one block of `k`.
    #[inline(always)]
    fn tile<S: SimdF32, Q: BlockPrefetch, const MR: usize, const NV: usize, const MC: usize>(
        &self,
        s: S,
        tile: &BlockTile,
    ) {
        let BlockTile { row, panel, k, steps, b, next, partial, .. } = *tile;
        let rows = Rows::from_matrix(&self.a, row, k);
        let weights = Panels::from_ptr(b, S::PANEL, S::LANES);
        let mut acc = [[s.splat(0.0); NV]; MR];
        // SAFETY: rows `row..row + MR` and the panel are inside the views. `partial` has space for the rows of a block,
        // and the values loaded from it were stored for the previous block of `k`.
        unsafe {
            if k > 0 {
                for (i, line) in acc.iter_mut().enumerate() {
                    *line = load_line(s, partial.add(i * S::PANEL));
                }
            }
            let block = self.output::<S>((row, MR), (panel, 1));
            // This is `tile.last`. With that condition here, rustc would compile each tile twice, with and without it.
            if const { Q::MIN_TILES > 1 } && k + steps == self.weight.depth() {
                self.store.prefetch(s, block);
            }
            let prefetch = Q::of_block::<S>(b, next);
            let [acc] = multiply(F32Operand(s), [acc], steps, rows, weights, prefetch);
            if tile.last {
                self.store.store_panels(s, [acc], block);
            } else {
                for (i, &line) in acc.iter().enumerate() {
                    store_line(s, partial.add(i * S::PANEL), line);
                }
            }
        }
    }
}

/// One tile over one block of `k`.
struct BlockTile {
    row: usize,
    panel: usize,
    k: usize,
    steps: usize,
    /// Whether this is the last block of `k`.
    last: bool,
    /// The weights of this block.
    b: *const f32,
    /// The part of the next block that this tile prefetches.
    next: NextBlock,
    /// The partial sums of the tile, stored between two blocks.
    partial: *mut f32,
}

/// Partial sums of `ROWS` rows of a panel, stored between two blocks of `k`: `ROWS * 256` bytes of stack on every
/// instruction set. The memory is not initialized: clearing it would take longer than a small product.
#[repr(align(64))]
struct PartialSums<const ROWS: usize>(MaybeUninit<[[f32; MAX_PANEL]; ROWS]>);
