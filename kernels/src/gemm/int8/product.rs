//! The tiles, the loops around them, and their split over threads.
//!
//! With AVX-512 and VNNI a tile is twelve rows and a whole panel, 24 vectors of sums: a step of four `k`
//! loads two vectors of weights, broadcasts twelve words and multiplies 24 times. With 16 registers it is half
//! a panel, as many rows as fit, and a whole panel for one or two rows, which stream through memory in one
//! direction. With [`ActivationBits::Sixteen`] a row takes the room of two where bytes are multiplied as bytes.
//!
//! * One tile of rows: each panel is read once, and asked for a KiB or two ahead, across the end of a panel,
//!   where no stream of the hardware's goes on. A row or two alone have several sums for each element, for
//!   as many chains. A CPU that [follows](SimdF32::prefers_hw_prefetch) what is read is asked for a line of each half
//!   KiB, or, by more than four rows, for the next panel, in eight places in turn.
//! * More: a block of rows, whose bytes stay in the second-level cache, passes over all panels; a panel is
//!   multiplied from the first or second-level cache, and its tiles ask for the next one meanwhile.
//!
//! With AMX many rows are multiplied in blocks instead, of which `amx.rs` tells; with I8MM in pairs, of which
//! `i8mm.rs` does.
//!
//! Threads take ranges of panels, and ranges of tiles as well when there are too few panels to go round.

use super::activation_bits::ActivationBits;
use super::activations::QuantizedActivations;
#[cfg(target_arch = "x86_64")]
use super::amx::Blocks;
#[cfg(target_arch = "aarch64")]
use super::i8mm::Pairs;
use super::operand::{Digits, Integers, Single};
use super::quantize_weights::PANEL;
use super::weights::QuantizedMatrix;
use crate::gemm::epilogue::{Epilogue, Store};
use crate::gemm::microkernel::{
    InterleavedPrefetch, Panels, Prefetch, PrefetchLines, Rows, SparsePrefetch, TileOperand,
    multiply, multiply_in_phases,
};
use crate::matrix::MatrixMut;
use crate::parallel::{Workers, share, work_to_share};
use crate::simd::int8::{ActivationEncoding, Int8Dot, Int8Op, MAX_MR};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::simd::matrix_unit::MatrixUnit;
use crate::simd::{CACHE_LINE_F32, SimdF32};
use core::mem::MaybeUninit;
use core::ops::Range;

/// Products below which a second thread costs more than it brings: a MiB of weights for one row.
const MIN_WORK_TO_FORK: usize = work_to_share(1 << 20);

/// Tasks per thread: enough that a thread that is late does not hold up the others.
const TASKS_PER_THREAD: usize = 4;

/// Words of rows in a block: 256 KiB, which leave a second-level cache of 512 KiB room for panels.
const BLOCK_WORDS: usize = 64 << 10;

/// Floats by which the only tile asks for weights before it multiplies them: 2 KiB.
const FAR_AHEAD: usize = 16 * PANEL;

/// Floats by which a tile of several asks for the weights it shares with the others: from the second-level
/// cache to the first.
const NEAR_AHEAD: usize = 4 * PANEL;

/// Sums for each column that leave a CPU time to follow what is read.
const FOLLOWED: usize = 4;

pub(super) fn run(
    rows: &QuantizedActivations<'_>,
    weight: &QuantizedMatrix<'_>,
    epilogue: &Epilogue<'_>,
    c: &mut MatrixMut<'_>,
    workers: Workers<'_>,
) {
    let store = Store::new(epilogue, c);
    match rows.matrices() {
        #[cfg(target_arch = "x86_64")]
        Some(MatrixUnit::Amx(amx)) => split(rows, weight, workers, &|tiles, panels| {
            amx.enter(Blocks { machine: amx, rows, weight, store: &store, tiles, panels });
        }),
        #[cfg(target_arch = "aarch64")]
        Some(MatrixUnit::Neon(neon)) => split(rows, weight, workers, &|tiles, panels| {
            neon.enter(Pairs { set: neon, rows, weight, store: &store, tiles, panels });
        }),
        None => {
            let job = GemmTask { rows, weight, store };
            split(rows, weight, workers, &|tiles, panels| job.part(tiles, panels));
        }
    }
}

/// Runs `part` for all tiles of rows and all panels, in as many parts as threads want.
pub(super) fn split(
    rows: &QuantizedActivations<'_>,
    weight: &QuantizedMatrix<'_>,
    workers: Workers<'_>,
    part: &(impl Fn(Range<usize>, Range<usize>) + Sync),
) {
    let (tiles, panels) = (rows.tiles(), weight.panels());
    // Enough to decide who computes, if it cannot be counted.
    let work = rows.rows().saturating_mul(weight.depth()).saturating_mul(weight.columns());
    let threads = workers.threads();
    if threads == 1 || work < MIN_WORK_TO_FORK {
        return part(0..tiles, 0..panels);
    }
    let wanted = threads * TASKS_PER_THREAD;
    let column_tasks = panels.min(wanted);
    // Tiles are shared out only when panels are too few.
    let row_tasks = (wanted / column_tasks).min(tiles.div_ceil(2)).max(1);
    workers.for_each(column_tasks * row_tasks, &|task| {
        let (column_task, row_task) = (task / row_tasks, task % row_tasks);
        part(share(tiles, row_tasks, row_task), share(panels, column_tasks, column_task));
    });
}

struct GemmTask<'a> {
    rows: &'a QuantizedActivations<'a>,
    weight: &'a QuantizedMatrix<'a>,
    store: Store,
}

impl GemmTask<'_> {
    fn part(&self, tiles: Range<usize>, panels: Range<usize>) {
        self.rows.isa().dispatch_bytes(Part { job: self, tiles, panels });
    }
}

/// Some tiles of rows times some panels.
struct Part<'a> {
    job: &'a GemmTask<'a>,
    tiles: Range<usize>,
    panels: Range<usize>,
}

impl Int8Op for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, b: B) {
        const {
            assert!(NV * <B::Floats as SimdF32>::LANES == PANEL && NV.is_multiple_of(TV));
            assert!(B::TALL <= MAX_MR && MAX_MR == 12);
        }
        let Self { job, tiles, panels } = self;
        let all = job.rows.tiles();
        let rows_of = |tile: usize| share(job.rows.rows(), all, tile);
        if tiles.len() == 1 {
            let next = Next { alone: true, from: core::ptr::null(), step: 0, ways: Ways::ONE };
            return Tile { job, rows: rows_of(tiles.start), panels, next }.run(b);
        }
        let steps = job.weight.depth().div_ceil(4).max(1);
        let tallest = job.rows.words(rows_of(tiles.start)).len().max(1);
        let blocks = tiles.len().div_ceil((BLOCK_WORDS / tallest).max(2));
        let ways = if b.floats().prefers_hw_prefetch() { Ways::EIGHT } else { Ways::ONE };
        for block in 0..blocks {
            let own = share(tiles.len(), blocks, block);
            for panel in panels.clone() {
                // The last panel of a block asks for the one after it, too: any address is fine.
                let (next, after) = (job.weight.panel(panel + 1), job.weight.panel(panel + 2));
                let lines = (after as usize - next as usize) / size_of::<[f32; CACHE_LINE_F32]>();
                for (place, tile) in own.clone().enumerate() {
                    // Each tile asks for its share, a line a step.
                    let part = share(lines, own.len(), place);
                    let step = (part.len() * CACHE_LINE_F32).div_ceil(steps);
                    let from = next.wrapping_add(part.start * CACHE_LINE_F32);
                    let next = Next { alone: false, from, step, ways };
                    let (rows, panels) = (rows_of(tiles.start + tile), panel..panel + 1);
                    Tile { job, rows, panels, next }.run(b);
                }
            }
        }
    }
}

/// What a tile asks memory for beside its own weights.
#[derive(Clone, Copy)]
struct Next {
    /// Whether it is the only one, which asks for nothing else.
    alone: bool,
    /// Where to begin, any address.
    from: *const f32,
    /// Floats for each step.
    step: usize,
    ways: Ways,
}

/// From how many places in turn, as a power of two: memory answers several streams sooner than one.
#[derive(Clone, Copy)]
struct Ways(u32);

impl Ways {
    const ONE: Self = Self(0);
    const EIGHT: Self = Self(3);
}

/// One line a step into the second-level cache.
#[derive(Clone, Copy)]
struct Outer {
    next: Next,
    /// Floats from one way to the next.
    apart: usize,
    done: usize,
}

impl Outer {
    #[inline(always)]
    fn of(next: Next, steps: usize) -> Self {
        Self { next, apart: (steps >> next.ways.0) * next.step, done: 0 }
    }
}

impl Prefetch for Outer {
    #[inline(always)]
    fn issue<S: SimdF32>(&mut self, s: S, _: usize) {
        let Next { from, step, ways: Ways(ways), .. } = self.next;
        let (turn, way) = (self.done >> ways, self.done & ((1 << ways) - 1));
        s.prefetch_l2(from.wrapping_add(turn * step + way * self.apart));
        self.done += 1;
    }
}

/// Rows of one tile times some panels.
struct Tile<'a> {
    job: &'a GemmTask<'a>,
    rows: Range<usize>,
    panels: Range<usize>,
    next: Next,
}

impl Tile<'_> {
    #[inline(always)]
    fn run<B: Int8Dot>(self, b: B) {
        // Where rows are stored in pairs of 16 bits, both precisions are.
        let digits = matches!(self.job.rows.precision(), ActivationBits::Sixteen);
        macro_rules! dispatch_mr {
            ($($rows:literal)*) => {
                match self.rows.len() {
                    $($rows if const { splits::<B>() && 2 * $rows <= B::TALL } && digits => {
                        b.call_noinline(Of::<$rows, true>(self))
                    })*
                    $($rows if const { $rows <= B::TALL } => b.call_noinline(Of::<$rows, false>(self)),)*
                    rows => unreachable!("a tile of {rows} rows"),
                }
            };
        }
        dispatch_mr!(1 2 3 4 5 6 7 8 9 10 11 12);
    }
}

/// Whether rows in 16 bits are two rows of bytes.
const fn splits<B: Int8Dot>() -> bool {
    !matches!(B::STORED, ActivationEncoding::Pairs)
}

/// A [`Tile`] of `MR` rows, as two of bytes each or as one, as a function of its own.
struct Of<'a, const MR: usize, const DIGITS: bool>(Tile<'a>);

impl<const MR: usize, const DIGITS: bool> Int8Op for Of<'_, MR, DIGITS> {
    type Output = ();

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, b: B) {
        if DIGITS {
            self.form::<_, NV, TV>(Digits(b));
        } else {
            self.form::<_, NV, TV>(Single(b));
        }
    }
}

impl<const MR: usize, const DIGITS: bool> Of<'_, MR, DIGITS> {
    #[inline(always)]
    fn form<F: Integers, const NV: usize, const TV: usize>(&self, form: F) {
        for panel in self.0.panels.clone() {
            if const { MR > F::WHOLE } {
                for part in 0..NV / TV {
                    self.sums::<F, TV, 1>(form, panel, part);
                }
            // As many chains as half of the registers hold.
            } else if const { F::WAITS && 4 * MR * NV * F::SUMS <= F::SimdF32::REGISTERS / 2 } {
                self.sums::<F, NV, 4>(form, panel, 0);
            } else if const { F::WAITS && 2 * MR * NV * F::SUMS <= F::SimdF32::REGISTERS / 2 } {
                self.sums::<F, NV, 2>(form, panel, 0);
            } else {
                self.sums::<F, NV, 1>(form, panel, 0);
            }
        }
    }

    /// Part `part` of `panel`, `NV` vectors of columns, in so many phases.
    #[inline(always)]
    fn sums<F: Integers, const NV: usize, const PHASES: usize>(
        &self,
        form: F,
        panel: usize,
        part: usize,
    ) {
        let Tile { job, rows, next, .. } = &self.0;
        let GemmTask { rows: bytes, weight, store } = job;
        let (s, lanes) = (form.lanes(), F::SimdF32::LANES);
        let first = part * NV * lanes;
        let column = panel * PANEL + first;
        if column >= weight.columns() {
            return;
        }
        let valid = (weight.columns() - column).min(NV * lanes);
        let steps = weight.depth().div_ceil(4);
        let words = bytes.words(rows.clone());
        debug_assert_eq!((rows.len(), words.len()), (MR, MR * steps * F::WORDS));
        let words = Rows { at: words.as_ptr().cast(), row: F::WORDS, step: MR * F::WORDS };
        let weights = weight.panel(panel).wrapping_add(first);
        let scales = weights.wrapping_add(steps * PANEL);
        let offsets = scales.wrapping_add(PANEL);
        let mut begin = [[form.zero(); NV]; MR];
        for v in 0..NV {
            // SAFETY: the offsets of a panel that is there.
            let offsets = unsafe { form.start(offsets.wrapping_add(v * lanes).cast()) };
            for line in &mut begin {
                line[v] = offsets;
            }
        }
        let panels = Panels { at: [weights.cast()], step: PANEL, vector: lanes };
        let count = const { (NV * F::SimdF32::LANES).div_ceil(CACHE_LINE_F32) };
        let here = |ahead: usize| PrefetchLines {
            at: weights.wrapping_add(ahead),
            step: PANEL,
            count,
            apart: CACHE_LINE_F32,
        };
        // SAFETY: the tile has `MR` elements for each step, the panel as many steps of 32 words.
        let phases = unsafe {
            // Of several tiles none has less than half of the rows of the tallest.
            if const { PHASES > 1 || 2 * MR < F::TALL } || next.alone {
                let begin = (begin, form.zero());
                let whole = const { NV * F::SimdF32::LANES == PANEL };
                if whole
                    && const { F::SimdF32::MAY_PREFER_HW_PREFETCH && F::WAITS }
                    && s.prefers_hw_prefetch()
                {
                    if const { MR * F::SUMS > FOLLOWED } {
                        let next = weight.panel(panel + 1);
                        let ahead = InterleavedPrefetch::of(next, steps * PANEL);
                        multiply_in_phases(form, begin, steps, words, panels, ahead)
                    } else {
                        let ahead = SparsePrefetch::of(weights, PANEL);
                        multiply_in_phases(form, begin, steps, words, panels, ahead)
                    }
                } else {
                    let ahead = if whole {
                        here(FAR_AHEAD)
                    } else {
                        // The parts of a panel ask for the next one, each for its share.
                        let share = part * steps * count * CACHE_LINE_F32;
                        PrefetchLines::running(
                            weight.panel(panel + 1).wrapping_add(share),
                            count,
                            CACHE_LINE_F32,
                        )
                    };
                    multiply_in_phases(form, begin, steps, words, panels, ahead)
                }
            } else {
                store.prefetch_l2::<F::SimdF32, MR>(s, rows.start, column, NV * lanes);
                let outer = Outer::of(*next, steps);
                let ahead = (here(NEAR_AHEAD), outer);
                let [sums] = multiply(form, [begin], steps, words, panels, ahead);
                [sums; PHASES]
            }
        };
        let row_scales = bytes.scales(rows.clone());
        assert!(row_scales.len() == MR);
        let mut column_scales = [s.splat(0.0); NV];
        for (v, scale) in column_scales.iter_mut().enumerate() {
            // SAFETY: the scales of a panel that is there.
            *scale = unsafe { s.load(scales.wrapping_add(v * lanes)) };
        }
        // One row of the tile at a time: as a whole it would go through memory.
        if store.fits_registers(valid == NV * lanes) {
            // SAFETY: all columns are in the output.
            let bias = unsafe { store.bias_of::<F::SimdF32, NV>(s, column) };
            for i in 0..MR {
                let line = scaled(form, &phases, i, &column_scales, row_scales[i]);
                // SAFETY: rows and columns of the output, which no other task has.
                unsafe { store.finish_row(s, line, bias, rows.start + i, column) };
            }
            // SAFETY: `finish_row` has stored these rows and columns of the output, which no other
            // task has.
            unsafe { store.finish_stored(s, MR, rows.start, column, valid) };
        } else {
            let mut room = MaybeUninit::<[f32; MAX_MR * PANEL]>::uninit();
            let tile = room.as_mut_ptr().cast::<f32>();
            for i in 0..MR {
                let line = scaled(form, &phases, i, &column_scales, row_scales[i]);
                for (v, x) in line.into_iter().enumerate() {
                    // SAFETY: `MR <= MAX_MR`, and NV vectors are no more than a panel.
                    unsafe { s.store(tile.add((i * NV + v) * lanes), x) };
                }
            }
            let shape = (MR, NV * lanes);
            // SAFETY: rows and columns of the output, which no other task has; the tile was stored.
            unsafe { store.finish_tile(s, tile, shape, rows.start, column, valid) };
        }
    }
}

/// Row `i` of the sums, all phases together, in f32 and scaled.
#[inline(always)]
fn scaled<F: Integers, const PHASES: usize, const MR: usize, const NV: usize>(
    form: F,
    phases: &[[[F::Sum; NV]; MR]; PHASES],
    i: usize,
    column_scales: &[Vector<F>; NV],
    row_scale: f32,
) -> [Vector<F>; NV] {
    let s = form.lanes();
    let mut line = [s.splat(row_scale); NV];
    for v in 0..NV {
        let mut sum = phases[0][i][v];
        for phase in &phases[1..] {
            sum = form.add(sum, phase[i][v]);
        }
        line[v] = s.mul(s.mul(form.to_f32(sum), column_scales[v]), line[v]);
    }
    line
}

/// One vector of f32 beside a form.
type Vector<F> = <<F as TileOperand>::SimdF32 as SimdF32>::F32;
