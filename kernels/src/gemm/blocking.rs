//! The loops around the tile, and their split over threads.
//!
//! Tiles have at most six rows and are balanced: seven rows are 4 + 3, not 6 + 1. `k` is cut into blocks so that the
//! weights under a tile stay in a cache. Between two blocks the partial sums are stored on the stack as f32, which is
//! exact. The loops depend on the number of rows, because the limit of the tiles does:
//!
//! * One row: memory bandwidth is the limit. The loop takes two panels at a time, for more independent chains of
//!   additions.
//! * Few rows: memory bandwidth is still the limit. While one block is multiplied, the next one is prefetched into the
//!   L1 cache.
//! * Many rows: a block of rows is multiplied by all panels before the next block of rows, so that its part of `A`
//!   stays in the cache and its pages in the TLB. Weights are prefetched from memory into the L2 cache one block ahead,
//!   and from L2 into L1 a few steps ahead.
//!
//! On a CPU with a strong hardware prefetcher the loops prefetch less: `prefetch.rs` selects what is prefetched.
//!
//! Threads take ranges of panels. They also take ranges of rows when there are fewer panels than tasks. `k` is never
//! split.
//!
//! The partial sums take 9 KiB of each thread's stack for few rows, and 48 KiB for many (see [`PartialSums`]). Nothing
//! else here is larger than a tile.

use super::epilogue::Epilogue;
use super::f16_tile::{self, Widen};
use super::microkernel::{F32Operand, Operands, Panels, multiply, tile, tile_prefetched};
use super::packing::PackedMatrix;
use super::store::Store;
use crate::dtype::Dtype;
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::{Workers, share, work_to_share};
use crate::prefetch::{
    BlockPrefetch, FEW_ROWS, NextBlock, PrefetchLines, PrefetchPlan, PrefetchTarget,
    SparsePrefetch, SpreadPrefetch, WeightReads, fewest_rows, requests,
};
use crate::simd::{CACHE_LINE_F32, MAX_MR, MAX_PANEL, SimdF32, SimdOp, TileOp};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Range;

/// Steps of `k` in a block for few rows: 64 steps of a 64-wide panel are 16 KiB, half of the smallest L1 cache.
const FEW_ROWS_DEPTH: usize = 64;

/// Steps of `k` in a block for many rows: 128 KiB of a 64-wide panel. Under Miri blocks are smaller, so that a test
/// covers two of them.
const KC: usize = if cfg!(miri) { 64 } else { 512 };

/// Floats of `A` in a block of rows: half a MiB, which fits an L2 cache of 1 MiB together with two blocks of a panel.
const MC: usize = 128 << 10;

/// Tiles in the largest block of rows.
const BLOCK_TILES: usize = 32;

/// Tiles in the largest block of rows for 16-bit weights, which are widened to f32.
const WIDENED_TILES: usize = BLOCK_TILES / 2;

/// Tiles in a block of rows, for a sum of `depth` products.
#[inline(always)]
const fn block_tiles(depth: usize) -> usize {
    let tiles = MC / (MAX_MR * if depth > 0 { depth } else { 1 });
    if tiles > BLOCK_TILES {
        BLOCK_TILES
    } else if tiles < 4 {
        4
    } else {
        tiles
    }
}

/// Multiply-adds below which a second thread costs more time than it saves.
pub(super) const MIN_WORK_TO_FORK: usize = work_to_share(1 << 19);

/// Tasks per thread. With several of them a late thread does not delay the others.
const TASKS_PER_THREAD: usize = 4;

/// Floats of weights that an outer cache may hold from one call to the next.
const CACHED_WEIGHTS: usize = 4 << 20;

/// Steps of `k` between the prefetch of a line and its use, for a single row.
const ROW_PREFETCH_STEPS: usize = 16;

pub(super) fn run(
    a: Matrix<'_>,
    weight: &PackedMatrix<'_>,
    epilogue: &Epilogue<'_>,
    c: &mut MatrixMut<'_>,
    workers: Workers<'_>,
) {
    let isa = weight.isa();
    let rows = c.rows();
    let panels = c.columns().div_ceil(isa.panel());
    let job = GemmTask { a, weight, store: Store::new(epilogue, c) };
    // The product only selects between serial and parallel, so saturation is harmless.
    let work = rows.saturating_mul(weight.depth()).saturating_mul(weight.columns());
    let threads = workers.threads();
    if threads == 1 || work < MIN_WORK_TO_FORK {
        return job.part(isa, 0..rows, 0..panels);
    }
    let target_tasks = threads * TASKS_PER_THREAD;
    let column_tasks = panels.min(target_tasks);
    // Rows are cut at multiples of the tile, and only when there are too few panels.
    let row_tasks = (target_tasks / column_tasks).min(rows.div_ceil(2 * MAX_MR)).max(1);
    workers.for_each(column_tasks * row_tasks, &|task| {
        let (column_task, row_task) = (task / row_tasks, task % row_tasks);
        job.part(isa, share(rows, row_tasks, row_task), share(panels, column_tasks, column_task));
    });
}

#[derive(Clone, Copy)]
struct GemmTask<'a> {
    a: Matrix<'a>,
    weight: &'a PackedMatrix<'a>,
    store: Store,
}

impl GemmTask<'_> {
    fn part(&self, isa: Isa, rows: Range<usize>, panels: Range<usize>) {
        isa.dispatch(Part { job: self, rows, panels });
    }
}

struct Part<'a> {
    job: &'a GemmTask<'a>,
    rows: Range<usize>,
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
        const { assert!(NV * S::LANES == S::PANEL) };
        let is_f32 = self.job.weight.dtype() == Dtype::F32;
        if !is_f32 && self.rows.len() <= FEW_ROWS {
            let Self { job: &GemmTask { a, weight, store }, rows, panels } = self;
            return f16_tile::FewRows { a, weight, store, rows, panels }.run(s);
        }
        if self.rows.len() == 1 {
            return s.call_noinline(OneRow::<NV>(self));
        }
        if self.rows.len() > FEW_ROWS {
            return s.call_noinline(ManyRows::<NV>(self));
        }
        let tiles = self.rows.len().div_ceil(MAX_MR);
        match PrefetchTarget::select(s, self.reads(tiles > 1)) {
            PrefetchTarget::Sparse if const { S::MAY_PREFER_HW_PREFETCH } => {
                s.call_noinline(FewRows::<NV, SparsePrefetch>(self, PhantomData))
            }
            PrefetchTarget::NextBlockL2 if const { S::MAY_PREFER_HW_PREFETCH } => {
                s.call_noinline(FewRows::<NV, ToL2>(self, PhantomData))
            }
            // A number of requests that does not occur on this instruction set is not compiled.
            _ => match requests::<S>(tiles) {
                0 if const { !S::PREFETCHES } => self.few_rows_noinline::<S, NV, 0>(s),
                1 if const { S::PREFETCHES } => self.few_rows_noinline::<S, NV, 1>(s),
                2 if const { S::PREFETCHES } => self.few_rows_noinline::<S, NV, 2>(s),
                3 if const { requests::<S>(1) > 2 } => self.few_rows_noinline::<S, NV, 3>(s),
                4 if const { requests::<S>(1) > 2 } => self.few_rows_noinline::<S, NV, 4>(s),
                8 if const { requests::<S>(1) > 2 } => self.few_rows_noinline::<S, NV, 8>(s),
                requests => unreachable!("{requests} lines in two steps"),
            },
        }
    }
}

/// The policy of few rows that prefetch into the L2 cache. The requests are those of two tiles, also for more tiles:
/// with more rows a request costs relatively less.
type ToL2 = SpreadPrefetch<4, false>;

/// The policy of many rows.
type ManyRowsPrefetch<const REQUESTS: usize> = (SpreadPrefetch<REQUESTS, false>, PrefetchLines);

/// [`Part::one_row`] as a separate function. Three functions of a few tiles each compile several times faster than one
/// function with all tiles; apart from the tiles their code is the same.
struct OneRow<'a, const NV: usize>(Part<'a>);

/// [`Part::few_rows`] as a separate function.
struct FewRows<'a, const NV: usize, Q>(Part<'a>, PhantomData<Q>);

/// [`Part::many_rows`] as a separate function.
struct ManyRows<'a, const NV: usize>(Part<'a>);

impl<const NV: usize> SimdOp for OneRow<'_, NV> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        self.0.one_row::<S, NV>(s)
    }
}

impl<const NV: usize, Q: BlockPrefetch> SimdOp for FewRows<'_, NV, Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        self.0.few_rows::<S, NV, Q>(s)
    }
}

impl<const NV: usize> SimdOp for ManyRows<'_, NV> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        self.0.many_rows::<S, NV>(s)
    }
}

impl Part<'_> {
    /// What selects the prefetches of these rows.
    #[inline(always)]
    fn reads(&self, shared: bool) -> WeightReads {
        let weight = self.job.weight;
        let cached = weight.depth() * weight.columns() <= CACHED_WEIGHTS;
        WeightReads { bytes: 4, rows: self.rows.len(), shared, cached }
    }

    /// [`Part::few_rows`] that prefetch the next block into the L1 cache, as a separate function.
    #[inline(always)]
    fn few_rows_noinline<S: SimdF32, const NV: usize, const REQUESTS: usize>(self, s: S) {
        s.call_noinline(FewRows::<NV, SpreadPrefetch<REQUESTS, true>>(self, PhantomData))
    }

    /// Columns of `panel` that are columns of the matrix.
    #[inline(always)]
    fn valid<S: SimdF32>(&self, panel: usize) -> usize {
        (self.job.weight.columns() - panel * S::PANEL).min(S::PANEL)
    }

    #[inline(always)]
    fn operands<S: SimdF32>(&self, row: usize, k: usize, b: *const f32) -> Operands {
        let a = &self.job.a;
        Operands {
            a: a.as_ptr().wrapping_add(row * a.row_stride() + k * a.column_stride()),
            a_row: a.row_stride(),
            a_step: a.column_stride(),
            b,
            b_step: S::PANEL,
            b_vector: S::LANES,
        }
    }

    #[inline(always)]
    fn one_row<S: SimdF32, const NV: usize>(&self, s: S) {
        let at = self.rows.start;
        let depth = self.job.weight.depth();
        let target = PrefetchTarget::select(s, self.reads(false));
        let mut panel = self.panels.start;
        while panel < self.panels.end {
            let operands = self.operands::<S>(at, 0, self.job.weight.address(panel, 0));
            // SAFETY: `operands` points at row `at` of A and at panels of W, and `at` and `panel` are inside the ranges
            // of this part, which the shapes of both views cover. No other part stores these panels.
            unsafe {
                if panel + 2 <= self.panels.end {
                    let zero = [[[s.splat(0.0); NV]; 1]; 2];
                    let next = operands.b.wrapping_add(depth * S::PANEL);
                    let starts = [operands.b, next];
                    let panels = Panels { at: starts, step: S::PANEL, vector: S::LANES };
                    let rows = operands.rows();
                    let acc = match target {
                        PrefetchTarget::Sparse if const { S::MAY_PREFER_HW_PREFETCH } => {
                            let prefetch = starts.map(|at| SparsePrefetch::of(at, S::PANEL));
                            multiply(F32Operand(s), zero, depth, rows, panels, prefetch)
                        }
                        PrefetchTarget::LaterStep if const { S::PREFETCHES } => {
                            let prefetch = starts.map(|at| {
                                let at = at.wrapping_add(ROW_PREFETCH_STEPS * S::PANEL);
                                PrefetchLines::running(at, NV, S::LANES)
                            });
                            multiply(F32Operand(s), zero, depth, rows, panels, prefetch)
                        }
                        _ => multiply(F32Operand(s), zero, depth, rows, panels, ()),
                    };
                    for (i, acc) in acc.into_iter().enumerate() {
                        let column = (panel + i) * S::PANEL;
                        let valid = self.valid::<S>(panel + i);
                        self.job.store.finish::<S, 1, NV>(s, acc, at, column, valid);
                    }
                    panel += 2;
                } else {
                    let zero = [[s.splat(0.0); NV]; 1];
                    let acc = tile::<S, 1, NV>(s, zero, depth, operands);
                    let (column, valid) = (panel * S::PANEL, self.valid::<S>(panel));
                    self.job.store.finish::<S, 1, NV>(s, acc, at, column, valid);
                    panel += 1;
                }
            }
        }
    }

    /// Few rows: each block of a panel is multiplied from the L1 cache while the next one is prefetched.
    #[inline(always)]
    fn few_rows<S: SimdF32, const NV: usize, Q: BlockPrefetch>(&self, s: S) {
        let depth = self.job.weight.depth();
        let tiles = self.rows.len().div_ceil(MAX_MR);
        // A single tile prefetches a fixed distance ahead and needs no blocks.
        let block = if tiles == 1 { depth } else { FEW_ROWS_DEPTH };
        let plan = PrefetchPlan::new::<S>(Dtype::F32, tiles, Q::REQUESTS);
        let mut partial = PartialSums::<FEW_ROWS>::new();
        let partial = partial.rows();
        for panel in self.panels.clone() {
            let mut k = 0;
            loop {
                let steps = (depth - k).min(block);
                let last = k + steps == depth;
                // Panels are contiguous, so this address is the next block of `k` or the start of the next panel.
                let next = self.job.weight.address(panel, k + steps.min(FEW_ROWS_DEPTH));
                let b = self.job.weight.address(panel, k);
                for index in 0..tiles {
                    let local = share(self.rows.len(), tiles, index);
                    let step = Step {
                        row: self.rows.start + local.start,
                        rows: local.len(),
                        panel,
                        k,
                        steps,
                        last,
                        b,
                        next: plan.next(next, index, steps),
                        partial: partial.row::<S>(local.start),
                    };
                    self.dispatch_mr::<S, NV, Q>(s, &step);
                }
                k += steps;
                if last {
                    break;
                }
            }
        }
    }

    /// Many rows: a block of rows is multiplied by all panels. The block is so small that its part of `A` stays in the
    /// L2 cache. Each block of a panel is multiplied from L2 while the next one is prefetched.
    #[inline(always)]
    fn many_rows<S: SimdF32, const NV: usize>(&self, s: S) {
        let depth = self.job.weight.depth();
        let all_tiles = self.rows.len().div_ceil(MAX_MR);
        let mut partial = PartialSums::<{ BLOCK_TILES * MAX_MR }>::new();
        let partial = partial.rows();
        let dtype = self.job.weight.dtype();
        let (block_tiles, block_depth, widened) = if dtype == Dtype::F32 {
            (block_tiles(depth), KC, core::ptr::null_mut())
        } else {
            // The second half of the partial sums holds the weights widened to f32.
            let steps = (WIDENED_TILES * MAX_MR * MAX_PANEL / S::PANEL).min(KC);
            let widened = partial.row::<S>(WIDENED_TILES * MAX_MR);
            (block_tiles(depth).min(WIDENED_TILES), steps, widened)
        };
        let blocks = all_tiles.div_ceil(block_tiles);
        for block in 0..blocks {
            let tiles = share(all_tiles, blocks, block);
            let first = share(self.rows.len(), all_tiles, tiles.start).start;
            let requests = requests::<S>(if tiles.len() >= 8 { 8 } else { 4 });
            let plan = PrefetchPlan::new::<S>(dtype, tiles.len(), requests);
            for panel in self.panels.clone() {
                let after = if panel + 1 < self.panels.end {
                    Some((panel + 1, 0))
                } else if block + 1 < blocks {
                    Some((self.panels.start, 0))
                } else {
                    None
                };
                let mut k = 0;
                loop {
                    let steps = (depth - k).min(block_depth);
                    let last = k + steps == depth;
                    let next = if last { after } else { Some((panel, k + steps)) };
                    // After the last block the tiles prefetch the current one again.
                    let (next_panel, next_k) = next.unwrap_or((panel, k));
                    let from = self.job.weight.address(next_panel, next_k);
                    let b = self.block(s, panel, k, steps, widened);
                    for index in tiles.clone() {
                        let local = share(self.rows.len(), all_tiles, index);
                        let step = Step {
                            row: self.rows.start + local.start,
                            rows: local.len(),
                            panel,
                            k,
                            steps,
                            last,
                            b,
                            next: plan.next(from, index - tiles.start, steps),
                            partial: partial.row::<S>(local.start - first),
                        };
                        match requests {
                            // Without prefetches the tile is the same as for few rows.
                            0 if const { !S::PREFETCHES } => {
                                self.dispatch_mr::<S, NV, SpreadPrefetch<0, true>>(s, &step)
                            }
                            1 if const { S::PREFETCHES } => {
                                self.dispatch_mr::<S, NV, ManyRowsPrefetch<1>>(s, &step)
                            }
                            2 if const { S::PREFETCHES && S::PANEL >= 4 * CACHE_LINE_F32 } => {
                                self.dispatch_mr::<S, NV, ManyRowsPrefetch<2>>(s, &step)
                            }
                            requests => unreachable!("{requests} lines in two steps"),
                        }
                    }
                    k += steps;
                    if last {
                        break;
                    }
                }
            }
        }
    }

    /// The address of the weights from row `k` of a panel on: in the matrix, or `steps` rows of them widened into
    /// `widened` if it is not null.
    #[inline(always)]
    fn block<S: SimdF32>(
        &self,
        s: S,
        panel: usize,
        k: usize,
        steps: usize,
        widened: *mut f32,
    ) -> *const f32 {
        let from = self.job.weight.address(panel, k);
        if widened.is_null() {
            return from;
        }
        let dtype = self.job.weight.dtype();
        // SAFETY: the panel has rows `k..k + steps`, and one more if `steps` is odd: only the last block of a panel is
        // odd, and packing pads it with a row of zeros. `widened` is the second half of `PartialSums`, which has space
        // for `block_depth` rows of a panel.
        unsafe { Widen { dtype, from, steps, to: widened }.run(s) };
        widened
    }

    /// Runs the tile with `step.rows` rows.
    #[inline(always)]
    fn dispatch_mr<S: SimdF32, const NV: usize, Q: BlockPrefetch>(&self, s: S, step: &Step) {
        macro_rules! dispatch_mr {
            ($($rows:literal)*) => {
                match step.rows {
                    $($rows if const { $rows >= fewest_rows::<S, Q>() } => {
                        self.step::<S, $rows, NV, Q>(s, step)
                    })*
                    rows => unreachable!("a tile of {rows} rows"),
                }
            };
        }
        const { assert!(MAX_MR == 6) };
        dispatch_mr!(2 3 4 5 6)
    }

    /// One tile over one block of `k`.
    #[inline(always)]
    fn step<S: SimdF32, const MR: usize, const NV: usize, Q: BlockPrefetch>(
        &self,
        s: S,
        step: &Step,
    ) {
        debug_assert_eq!(step.rows, MR);
        let mut acc = [[s.splat(0.0); NV]; MR];
        // SAFETY: rows `step.row..step.row + MR` and the panel are inside the views. `partial` has space for the rows
        // of a block, and the values loaded from it were stored for the previous block of `k`.
        unsafe {
            if step.k > 0 {
                for (i, line) in acc.iter_mut().enumerate() {
                    for (v, x) in line.iter_mut().enumerate() {
                        *x = s.load(step.partial.add(i * S::PANEL + v * S::LANES));
                    }
                }
            }
            let column = step.panel * S::PANEL;
            let operands = self.operands::<S>(step.row, step.k, step.b);
            if step.last && const { Q::MIN_TILES > 1 } {
                self.job.store.prefetch::<S, MR>(s, step.row, column);
            }
            let prefetch = Q::of_block::<S>(step.b, step.next);
            let acc = tile_prefetched(s, acc, step.steps, operands, prefetch);
            if step.last {
                let valid = self.valid::<S>(step.panel);
                self.job.store.finish::<S, MR, NV>(s, acc, step.row, column, valid);
            } else {
                for (i, line) in acc.iter().enumerate() {
                    for (v, &x) in line.iter().enumerate() {
                        s.store(step.partial.add(i * S::PANEL + v * S::LANES), x);
                    }
                }
            }
        }
    }
}

/// One tile over one block of `k`.
struct Step {
    row: usize,
    rows: usize,
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

impl<const ROWS: usize> PartialSums<ROWS> {
    #[inline(always)]
    const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// A pointer to the rows. The exclusive borrow is made once: a second one would invalidate every pointer made from
    /// the first, and the widened weights and the partial sums are in use at the same time.
    #[inline(always)]
    const fn rows(&mut self) -> PartialSumRows<'_, ROWS> {
        PartialSumRows { first: self.0.as_mut_ptr().cast(), owner: PhantomData }
    }
}

/// Rows of [`PartialSums`], which is borrowed exclusively. All pointers to it are derived from this one.
#[derive(Clone, Copy)]
struct PartialSumRows<'a, const ROWS: usize> {
    first: *mut f32,
    owner: PhantomData<&'a mut PartialSums<ROWS>>,
}

impl<const ROWS: usize> PartialSumRows<'_, ROWS> {
    /// The start of row `row`. The row stride is `S::PANEL` floats.
    #[inline(always)]
    fn row<S: SimdF32>(self, row: usize) -> *mut f32 {
        debug_assert!(row < ROWS);
        self.first.wrapping_add(row * S::PANEL)
    }
}
