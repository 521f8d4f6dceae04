//! The loops around the tile, and their split over threads.
//!
//! Tiles have at most six rows, balanced so that seven rows are 4 + 3 and not 6 + 1, and `k` is cut
//! into blocks so that the weights under a tile stay in a cache; the sums wait on the stack
//! meanwhile, as f32, which loses nothing. What changes with the number of rows is what the tiles
//! wait for:
//!
//! * One row: nothing but memory. Two panels at a time, for more chains of additions.
//! * Few rows: still memory, so the next block comes while this one is multiplied, straight into the
//!   first-level cache.
//! * Many rows: a block of rows passes over all panels before the next block of rows, so that its
//!   part of `A` (and the pages it lies on) stays at hand; weights come from memory to the
//!   second-level cache one block ahead, and from there to the first a few steps ahead. Both are
//!   asked for explicitly: the hardware's own streams end at each page and each row, which costs a
//!   fifth of the speed where caches are small (32 KiB and 1 MiB).
//!
//! A CPU that [follows](SimdF32::prefers_hw_prefetch) what is read in order is asked for less: for one row, or a single
//! tile, a line now and then, and for few rows the next block into the second-level cache.
//!
//! Threads take ranges of panels, and ranges of rows as well when there are too few panels to go
//! round. `k` is never split.
//!
//! The sums that wait take 9 KiB of each thread's stack for few rows, and 48 KiB for many (see
//! [`PartialSums`]); nothing else here is larger than a tile.

use super::dtype::Dtype;
use super::epilogue::{Epilogue, Store};
use super::f16_tile::{self, Widen};
use super::microkernel::{
    F32Operand, MAX_MR, Operands, Panels, PrefetchLines, SparsePrefetch, SpreadPrefetch, multiply,
    tile, tile_prefetched,
};
use super::packing::PackedMatrix;
use super::prefetch::{
    Asked, FEW_ROWS, Next, OUTER_TILES, SPARSE, TO_BOTH, TO_L1, TO_L2, fewest_rows, requests,
};
use crate::isa::Isa;
use crate::matrix::{Matrix, MatrixMut};
use crate::parallel::{Workers, share, work_to_share};
use crate::simd::{CACHE_LINE_F32, MAX_PANEL, SimdF32, SimdOp, TileOp};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Range;

/// `k` in a block for few rows: 64 steps of a 64-wide panel are 16 KiB, half of the smallest
/// first-level cache.
const FEW_ROWS_DEPTH: usize = 64;

/// `k` in a block for many rows: 128 KiB of a 64-wide panel. Miri gets through two small blocks.
const KC: usize = if cfg!(miri) { 64 } else { 512 };

/// Floats of `A` in a block of rows: half a MiB, beside two blocks of a panel in a
/// second-level cache of 1 MiB.
const MC: usize = 128 << 10;

/// Tiles in the largest block of rows.
const BLOCK_TILES: usize = 32;

/// Tiles in the largest block of rows that weights are widened for.
const WIDENED_TILES: usize = BLOCK_TILES / 2;

/// Tiles whose rows pass over a panel before the next panel.
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

/// Multiply-adds below which a second thread costs more than it brings.
pub(super) const MIN_WORK_TO_FORK: usize = work_to_share(1 << 19);

/// Tasks per thread: enough that a thread that is late does not hold up the others.
const TASKS_PER_THREAD: usize = 4;

/// Weights that an outer cache may hold from one call to the next, in floats. A single row asks for
/// them early; from memory the hardware's own streams are faster without (measured: a fifth more
/// from the third-level cache, a tenth less from memory).
const CACHED_WEIGHTS: usize = 4 << 20;

/// Steps of `k` by which a single row asks early.
const ROW_AHEAD: usize = 16;

/// Steps by which a panel is asked for before it is multiplied: from the second-level cache to the
/// first takes about one step of six rows, and more when others wait for the bus.
const PANEL_AHEAD: usize = 8;

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
    // Enough to decide who computes, if it cannot be counted.
    let work = rows.saturating_mul(weight.depth()).saturating_mul(weight.columns());
    let threads = workers.threads();
    if threads == 1 || work < MIN_WORK_TO_FORK {
        return job.part(isa, 0..rows, 0..panels);
    }
    let wanted = threads * TASKS_PER_THREAD;
    let column_tasks = panels.min(wanted);
    // Rows are cut at multiples of the tile, and only when panels are too few.
    let row_tasks = (wanted / column_tasks).min(rows.div_ceil(2 * MAX_MR)).max(1);
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
        let as_floats = self.job.weight.storage() == Dtype::F32;
        if !as_floats && self.rows.len() <= FEW_ROWS {
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
        if const { S::MAY_PREFER_HW_PREFETCH } && s.prefers_hw_prefetch() {
            const { assert!(!S::MAY_PREFER_HW_PREFETCH || requests::<S>(OUTER_TILES) == 4) };
            return match tiles {
                1 => s.call_noinline(FewRows::<NV, 0, SPARSE>(self)),
                _ => s.call_noinline(FewRows::<NV, 4, TO_L2>(self)),
            };
        }
        // What no number of tiles asks for on this instruction set is not even compiled.
        match requests::<S>(tiles) {
            0 if const { !S::PREFETCHES } => s.call_noinline(FewRows::<NV, 0, TO_L1>(self)),
            1 if const { S::PREFETCHES } => s.call_noinline(FewRows::<NV, 1, TO_L1>(self)),
            2 if const { S::PREFETCHES } => s.call_noinline(FewRows::<NV, 2, TO_L1>(self)),
            3 if const { requests::<S>(1) > 2 } => s.call_noinline(FewRows::<NV, 3, TO_L1>(self)),
            4 if const { requests::<S>(1) > 2 } => s.call_noinline(FewRows::<NV, 4, TO_L1>(self)),
            8 if const { requests::<S>(1) > 2 } => s.call_noinline(FewRows::<NV, 8, TO_L1>(self)),
            requests => unreachable!("{requests} lines in two steps"),
        }
    }
}

/// [`Part::one_row`] as a function of its own. In functions of a few tiles each everything but the
/// tiles is the same, but they compile several times sooner than one of all tiles would.
struct OneRow<'a, const NV: usize>(Part<'a>);

/// [`Part::few_rows`] as a function of its own.
struct FewRows<'a, const NV: usize, const REQUESTS: usize, const WHERE: u8>(Part<'a>);

/// [`Part::many_rows`] as a function of its own.
struct ManyRows<'a, const NV: usize>(Part<'a>);

impl<const NV: usize> SimdOp for OneRow<'_, NV> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        self.0.one_row::<S, NV>(s)
    }
}

impl<const NV: usize, const REQUESTS: usize, const WHERE: u8> SimdOp
    for FewRows<'_, NV, REQUESTS, WHERE>
{
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        self.0.few_rows::<S, NV, REQUESTS, WHERE>(s)
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
    /// Columns of `panel` that exist.
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
        let in_cache = depth * self.job.weight.columns() <= CACHED_WEIGHTS;
        let mut panel = self.panels.start;
        while panel < self.panels.end {
            let operands = self.operands::<S>(at, 0, self.job.weight.address(panel, 0));
            // SAFETY: `operands` points at row `at` of A and at panels that W has, whose lengths the
            // views vouch for; this part's panels are stored by nobody else.
            unsafe {
                if panel + 2 <= self.panels.end {
                    let zero = [[[s.splat(0.0); NV]; 1]; 2];
                    let next = operands.b.wrapping_add(depth * S::PANEL);
                    let at_both = [operands.b, next];
                    let panels = Panels { at: at_both, step: S::PANEL, vector: S::LANES };
                    let rows = operands.rows();
                    let acc = if const { S::MAY_PREFER_HW_PREFETCH } && s.prefers_hw_prefetch() {
                        let ahead = at_both.map(|at| SparsePrefetch::of(at, S::PANEL));
                        multiply(F32Operand(s), zero, depth, rows, panels, ahead)
                    } else if in_cache {
                        let ahead = at_both.map(|at| {
                            let at = at.wrapping_add(ROW_AHEAD * S::PANEL);
                            PrefetchLines::running(at, NV, S::LANES)
                        });
                        multiply(F32Operand(s), zero, depth, rows, panels, ahead)
                    } else {
                        multiply(F32Operand(s), zero, depth, rows, panels, ())
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

    /// Rows that are few: each block of a panel is multiplied from the first-level cache while the
    /// next one comes.
    #[inline(always)]
    fn few_rows<S: SimdF32, const NV: usize, const REQUESTS: usize, const WHERE: u8>(&self, s: S) {
        let depth = self.job.weight.depth();
        let tiles = self.rows.len().div_ceil(MAX_MR);
        // A single tile needs no blocks to stay a block behind its requests.
        let block = if tiles == 1 { depth } else { FEW_ROWS_DEPTH };
        let like = if const { WHERE == TO_L2 } { OUTER_TILES } else { tiles };
        let asked = Asked::new::<S>(Dtype::F32, tiles, like);
        let mut waiting = PartialSums::<FEW_ROWS>::new();
        let waiting = waiting.rows();
        for panel in self.panels.clone() {
            let mut k = 0;
            loop {
                let steps = (depth - k).min(block);
                let last = k + steps == depth;
                // Panels follow each other, so the next block of `k` and the next panel are both
                // what comes after this block in memory.
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
                        next: asked.next(next, index, steps),
                        waiting: waiting.row::<S>(local.start),
                    };
                    self.dispatch_mr::<S, NV, REQUESTS, WHERE>(s, &step);
                }
                k += steps;
                if last {
                    break;
                }
            }
        }
    }

    /// Rows that are many: a block of them, small enough that their part of `A` stays in the
    /// second-level cache, passes over all panels; each block of a panel is multiplied from that
    /// cache, and the next one comes meanwhile.
    #[inline(always)]
    fn many_rows<S: SimdF32, const NV: usize>(&self, s: S) {
        let depth = self.job.weight.depth();
        let all_tiles = self.rows.len().div_ceil(MAX_MR);
        let mut waiting = PartialSums::<{ BLOCK_TILES * MAX_MR }>::new();
        let waiting = waiting.rows();
        let storage = self.job.weight.storage();
        let (block_tiles, block_depth, room) = if storage == Dtype::F32 {
            (block_tiles(depth), KC, core::ptr::null_mut())
        } else {
            // The second half of what could wait is for the weights as floats.
            let steps = (WIDENED_TILES * MAX_MR * MAX_PANEL / S::PANEL).min(KC);
            let room = waiting.row::<S>(WIDENED_TILES * MAX_MR);
            (block_tiles(depth).min(WIDENED_TILES), steps, room)
        };
        let blocks = all_tiles.div_ceil(block_tiles);
        for block in 0..blocks {
            let tiles = share(all_tiles, blocks, block);
            let first = share(self.rows.len(), all_tiles, tiles.start).start;
            let asked = Asked::new::<S>(storage, tiles.len(), if tiles.len() >= 8 { 8 } else { 4 });
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
                    // After the last block the tiles ask for this one once more.
                    let (next_panel, next_k) = next.unwrap_or((panel, k));
                    let from = self.job.weight.address(next_panel, next_k);
                    let b = self.block(s, panel, k, steps, room);
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
                            next: asked.next(from, index - tiles.start, steps),
                            waiting: waiting.row::<S>(local.start - first),
                        };
                        match asked.requests {
                            // Nothing is asked for: the same tile as for few rows.
                            0 if const { !S::PREFETCHES } => {
                                self.dispatch_mr::<S, NV, 0, TO_L1>(s, &step)
                            }
                            1 if const { S::PREFETCHES } => {
                                self.dispatch_mr::<S, NV, 1, TO_BOTH>(s, &step)
                            }
                            2 if const { requests::<S>(4) == 2 } => {
                                self.dispatch_mr::<S, NV, 2, TO_BOTH>(s, &step)
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

    /// The weights from row `k` of a panel on: where they are, or `steps` of them widened into `room`.
    #[inline(always)]
    fn block<S: SimdF32>(
        &self,
        s: S,
        panel: usize,
        k: usize,
        steps: usize,
        room: *mut f32,
    ) -> *const f32 {
        let from = self.job.weight.address(panel, k);
        if room.is_null() {
            return from;
        }
        let storage = self.job.weight.storage();
        // SAFETY: the panel has the rows, and one more if they are odd, as only the last ones are; there is
        // room for a block.
        unsafe { Widen { storage, from, steps, to: room }.run(s) };
        room
    }

    /// A tile of as many rows as `step` has.
    #[inline(always)]
    fn dispatch_mr<S: SimdF32, const NV: usize, const REQUESTS: usize, const WHERE: u8>(
        &self,
        s: S,
        step: &Step,
    ) {
        macro_rules! dispatch_mr {
            ($($rows:literal)*) => {
                match step.rows {
                    $($rows if const { $rows >= fewest_rows::<S>(REQUESTS, WHERE) } => {
                        self.step::<S, $rows, NV, REQUESTS, WHERE>(s, step)
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
    fn step<
        S: SimdF32,
        const MR: usize,
        const NV: usize,
        const REQUESTS: usize,
        const WHERE: u8,
    >(
        &self,
        s: S,
        step: &Step,
    ) {
        debug_assert_eq!(step.rows, MR);
        let mut acc = [[s.splat(0.0); NV]; MR];
        // SAFETY: rows `step.row..step.row + MR` and the panel exist in the views; `waiting` has
        // room for the rows of a block, and what is loaded from it was stored there for the block
        // of `k` before.
        unsafe {
            if step.k > 0 {
                for (i, line) in acc.iter_mut().enumerate() {
                    for (v, x) in line.iter_mut().enumerate() {
                        *x = s.load(step.waiting.add(i * S::PANEL + v * S::LANES));
                    }
                }
            }
            let column = step.panel * S::PANEL;
            let operands = self.operands::<S>(step.row, step.k, step.b);
            if step.last && const { WHERE == TO_BOTH } {
                self.job.store.prefetch::<S, MR>(s, step.row, column);
            }
            let acc = match WHERE {
                SPARSE => {
                    let pages = SparsePrefetch::of(operands.b, S::PANEL);
                    tile_prefetched(s, acc, step.steps, operands, pages)
                }
                TO_L1 => {
                    // A constant where there are no instructions to spare between few rows. Of three
                    // tiles and more that ask for one line each it is a little more than their share.
                    let apart = if REQUESTS != 2 { CACHE_LINE_F32 } else { step.next.apart };
                    let next = SpreadPrefetch::<REQUESTS, true> { at: step.next.from, apart };
                    tile_prefetched(s, acc, step.steps, operands, next)
                }
                _ => {
                    let Next { from: at, apart } = step.next;
                    let next = SpreadPrefetch::<REQUESTS, false> { at, apart };
                    if const { WHERE == TO_L2 } {
                        tile_prefetched(s, acc, step.steps, operands, next)
                    } else {
                        let here = PrefetchLines {
                            at: operands.b.wrapping_add(PANEL_AHEAD * S::PANEL),
                            step: S::PANEL,
                            count: S::PANEL.div_ceil(CACHE_LINE_F32),
                            apart: CACHE_LINE_F32,
                        };
                        tile_prefetched(s, acc, step.steps, operands, (next, here))
                    }
                }
            };
            if step.last {
                let valid = self.valid::<S>(step.panel);
                self.job.store.finish::<S, MR, NV>(s, acc, step.row, column, valid);
            } else {
                for (i, line) in acc.iter().enumerate() {
                    for (v, &x) in line.iter().enumerate() {
                        s.store(step.waiting.add(i * S::PANEL + v * S::LANES), x);
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
    /// This block holds the last `k`.
    last: bool,
    /// Where its weights are.
    b: *const f32,
    /// What to ask memory for meanwhile.
    next: Next,
    /// The tile's sums while they wait for the next block.
    waiting: *mut f32,
}

/// Sums of `ROWS` rows of a panel that wait for the next block of `k`: `ROWS * 256` bytes of stack, on
/// every instruction set. Not initialized: clearing it would cost a small product more than it takes.
#[repr(align(64))]
struct PartialSums<const ROWS: usize>(MaybeUninit<[[f32; MAX_PANEL]; ROWS]>);

impl<const ROWS: usize> PartialSums<ROWS> {
    #[inline(always)]
    const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Its rows. The exclusive borrow is made once: a second one would end the use of every pointer made from
    /// the first, and widened weights and sums are in use at the same time.
    #[inline(always)]
    const fn rows(&mut self) -> PartialSumRows<'_, ROWS> {
        PartialSumRows { first: self.0.as_mut_ptr().cast(), owner: PhantomData }
    }
}

/// Rows of [`PartialSums`], which is borrowed exclusively: all pointers to it come from one.
#[derive(Clone, Copy)]
struct PartialSumRows<'a, const ROWS: usize> {
    first: *mut f32,
    owner: PhantomData<&'a mut PartialSums<ROWS>>,
}

impl<const ROWS: usize> PartialSumRows<'_, ROWS> {
    /// Where row `row` starts; rows follow each other `S::PANEL` floats apart.
    #[inline(always)]
    fn row<S: SimdF32>(self, row: usize) -> *mut f32 {
        debug_assert!(row < ROWS);
        self.first.wrapping_add(row * S::PANEL)
    }
}
