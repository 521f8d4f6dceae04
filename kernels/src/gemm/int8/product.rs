//! The int8 tiles, the loops around them, and their split over threads.
//!
//! With AVX-512 and VNNI a tile is twelve rows and a whole panel, which takes 24 vectors of sums: a step of four `k`
//! loads two vectors of weights, broadcasts twelve words and does 24 multiplications. With 16 registers a tile is half
//! a panel and as many rows as fit; one or two rows use a whole panel, so that they read memory in order. With
//! [`Quantization::W8A16`] a row takes the registers of two rows on instruction sets that multiply 8-bit values. AVX2
//! without VNNI converts the weights to 16 bits before it multiplies them: once for each tile of up to four rows, and
//! for more rows once for several tiles (`widened.rs`).
//!
//! * One tile of rows: each panel is read once, and prefetched one or two KiB ahead, also across the end of a panel,
//!   where the hardware prefetcher stops. One or two rows use several sums per element, for more independent chains of
//!   additions. On a CPU with a [strong hardware prefetcher](PrefetchTarget::Sparse) the tile prefetches only one
//!   line per half KiB; with more than four rows it prefetches the next panel in eight interleaved streams.
//! * More rows: a block of rows, whose quantized values stay in the L2 cache, is multiplied by all panels. Each panel
//!   is read from the L1 or L2 cache, and its tiles prefetch the next panel.
//!
//! With AMX many rows are multiplied in blocks instead (`amx.rs`), and with I8MM in pairs (`i8mm.rs`).
//!
//! Threads take ranges of panels. They also take ranges of tiles when there are fewer panels than tasks.

#[cfg(vectors = "x86_64")]
use super::amx::multiply_blocks;
#[cfg(vectors = "aarch64")]
use super::i8mm::multiply_pairs;
use super::quantization::Quantization;
use super::quantized_activations::QuantizedActivations;
use super::tile_operand::{Digits, Int8Range, Integers, Single, scale_line};
use super::weights::{PANEL, QuantizedMatrix};
use super::widened;
use crate::gemm::blocking;
use crate::gemm::epilogue::Epilogue;
use crate::gemm::epilogue::OutputRange;
use crate::gemm::microkernel::{Panels, Rows, TileOperand, multiply, multiply_in_phases};
use crate::gemm::prefetch_weights::{MAX_SPARSE_SUMS, PrefetchTarget, WeightReads};
use crate::gemm::store_tile::{Store, load_line};
use crate::matrix::MatrixMut;
use crate::parallel::{Workers, share, work_to_share};
use crate::prefetch::{PerStep, Sparse, strong_hw_prefetcher};
use crate::simd::int8::{Int8Dot, MAX_MR, SimdI32};
#[cfg(any(vectors = "x86_64", vectors = "aarch64"))]
use crate::simd::matrix_unit::MatrixUnit;
use crate::simd::u8_activations::ActivationEncoding;
use crate::simd::{CACHE_LINE_F32, SimdF32, simd_op, tile_heights};
use core::ops::Range;

/// Products below which a second thread costs more time than it saves: one MiB of weights for one row.
const MIN_WORK_TO_FORK: usize = work_to_share(1 << 20);

/// Words of rows in a block: 256 KiB, so that an L2 cache of 512 KiB also holds panels.
const BLOCK_WORDS: usize = 64 << 10;

/// Streams in which the next panel is prefetched on a CPU with a strong hardware prefetcher.
const STREAMS: usize = 8;

/// Rows of the tallest tile that converts the weights it multiplies, on instruction sets that convert them.
const DIRECT_ROWS: usize = 4;

/// Floats between the prefetch of weights and their use in a single tile: 2 KiB.
const PREFETCH_FAR: usize = 16 * PANEL;

/// Floats between the prefetch of weights and their use if several tiles share them: from L2 into L1.
const PREFETCH_NEAR: usize = 4 * PANEL;

pub(super) fn multiply_quantized(
    rows: &QuantizedActivations<'_>,
    weight: &QuantizedMatrix<'_>,
    epilogue: &Epilogue<'_>,
    c: &mut MatrixMut<'_>,
    workers: Workers<'_>,
) {
    let store = Store::new(epilogue, c);
    split(rows, weight, workers, &|tiles, panels| {
        let range = Int8Range { rows, weight, store: &store, tiles, panels };
        match rows.matrices() {
            #[cfg(vectors = "x86_64")]
            Some(MatrixUnit::Amx(amx)) => amx.enter(multiply_blocks(amx, range)),
            #[cfg(vectors = "aarch64")]
            Some(MatrixUnit::Neon(neon)) => neon.enter(multiply_pairs(neon, range)),
            None => rows.isa().dispatch_bytes(multiply_tiles(range)),
        }
    });
}

/// Runs `part` for all tiles of rows and all panels, split into tasks for the threads.
pub(super) fn split(
    rows: &QuantizedActivations<'_>,
    weight: &QuantizedMatrix<'_>,
    workers: Workers<'_>,
    part: &(impl Fn(Range<usize>, Range<usize>) + Sync),
) {
    let (tiles, panels) = (rows.tiles(), weight.panels());
    // The product only selects between serial and parallel, so saturation is harmless.
    let work = rows.rows().saturating_mul(weight.depth()).saturating_mul(weight.columns());
    let units = (tiles, tiles.div_ceil(2));
    blocking::split(workers, (work, MIN_WORK_TO_FORK), units, panels, part);
}

simd_op!(
    /// Multiplies a range with vectors.
    fn multiply_tiles<B: Int8Dot, const NV: usize, const TV: usize>(b: B, range: Int8Range<'_>) {
        const {
            assert!(NV * <B::Floats as SimdF32>::LANES == PANEL && NV.is_multiple_of(TV));
            assert!(B::TALL <= MAX_MR && MAX_MR == 12);
        }
        let Int8Range { rows, weight, tiles, panels, .. } = range.clone();
        let all = rows.tiles();
        let rows_of = |tile: usize| share(rows.rows(), all, tile);
        if tiles.len() == 1
            && (!const { Single::<B>::WIDENS } || rows_of(tiles.start).len() <= DIRECT_ROWS)
        {
            let rows = rows_of(tiles.start);
            return TilePanels { range: &range, rows, panels, next: None }.multiply_panels(b);
        }
        if const { Single::<B>::WIDENS } {
            return widened::multiply_blocks::<B, NV, TV>(b, &range);
        }
        let steps = weight.depth().div_ceil(4).max(1);
        let tallest = rows.words(rows_of(tiles.start)).len().max(1);
        let blocks = tiles.len().div_ceil((BLOCK_WORDS / tallest).max(2));
        // Memory delivers several streams faster than one, but only a strong hardware prefetcher needs them.
        let streams = if strong_hw_prefetcher(b.sums().floats()) { STREAMS } else { 1 };
        for block in 0..blocks {
            let own = share(tiles.len(), blocks, block);
            for panel in panels.clone() {
                // The last panel of a block also prefetches the panel after it: any address is valid for a prefetch.
                let (next, after) = (weight.panel(panel + 1), weight.panel(panel + 2));
                let lines = (after as usize - next as usize) / size_of::<[f32; CACHE_LINE_F32]>();
                for (place, tile) in own.clone().enumerate() {
                    // Each tile prefetches its share, one line per step.
                    let part = share(lines, own.len(), place);
                    let step = (part.len() * CACHE_LINE_F32).div_ceil(steps);
                    let at = next.wrapping_add(part.start * CACHE_LINE_F32);
                    let next = NextPanel { at, step, streams };
                    let (rows, panels) = (rows_of(tiles.start + tile), panel..panel + 1);
                    TilePanels { range: &range, rows, panels, next: Some(next) }.multiply_panels(b);
                }
            }
        }
    }
);

/// Rows of one tile times some panels.
struct TilePanels<'a> {
    range: &'a Int8Range<'a>,
    rows: Range<usize>,
    panels: Range<usize>,
    /// The part of the next panel that the tile prefetches. A single tile has none.
    next: Option<NextPanel>,
}

/// The part of a panel that a tile prefetches, one line per step.
#[derive(Clone, Copy)]
struct NextPanel {
    at: *const f32,
    /// Floats between two lines of a stream.
    step: usize,
    streams: usize,
}

impl TilePanels<'_> {
    #[inline(always)]
    fn multiply_panels<B: Int8Dot>(self, b: B) {
        // On instruction sets that store rows as pairs of 16 bits, both precisions use the same tile.
        let digits = matches!(self.range.rows.precision(), Quantization::W8A16);
        if const { stores_digits::<B>() } && digits {
            tile_heights!(self.rows.len(), [1 2 3 4 5 6], MR if 2 * MR <= B::TALL => {
                b.call_noinline(multiply_tile::<MR, true>(self))
            });
        } else {
            tile_heights!(self.rows.len(), [1 2 3 4 5 6 7 8 9 10 11 12], MR if MR <= if Single::<B>::WIDENS { DIRECT_ROWS } else { B::TALL } => {
                b.call_noinline(multiply_tile::<MR, false>(self))
            });
        }
    }
}

/// Whether 16-bit rows are stored as high and low bytes.
const fn stores_digits<B: Int8Dot>() -> bool {
    !matches!(B::STORED, ActivationEncoding::Pairs)
}

/// Whether tiles of `NV` vectors read whole panels in order on CPUs that may have a strong hardware prefetcher.
const fn reads_in_order<F: Integers, const NV: usize>() -> bool {
    F::LATENCY_BOUND && F::SimdF32::MAY_PREFER_HW_PREFETCH && NV * F::SimdF32::LANES == PANEL
}

simd_op!(
    /// A tile of `MR` rows, each stored as high and low bytes if `DIGITS`, as a separate function.
    fn multiply_tile<
        B: Int8Dot,
        const NV: usize,
        const TV: usize,
        const MR: usize,
        const DIGITS: bool,
    >(
        b: B,
        tile: TilePanels<'_>,
    ) {
        if DIGITS {
            tile.operand::<_, MR, NV, TV>(Digits(b));
        } else {
            tile.operand::<_, MR, NV, TV>(Single(b));
        }
    }
);

impl TilePanels<'_> {
    #[inline(always)]
    fn operand<F: Integers, const MR: usize, const NV: usize, const TV: usize>(&self, operand: F) {
        for panel in self.panels.clone() {
            if const { MR > F::WHOLE_PANEL_ROWS } {
                for part in 0..NV / TV {
                    self.sums::<F, MR, TV, 1>(operand, panel, part);
                }
            // As many chains as fit half of the registers.
            } else if const { F::LATENCY_BOUND && 4 * MR * NV * F::SUMS <= F::SimdF32::REGISTERS / 2 }
            {
                self.sums::<F, MR, NV, 4>(operand, panel, 0);
            } else if const { F::LATENCY_BOUND && 2 * MR * NV * F::SUMS <= F::SimdF32::REGISTERS / 2 }
            {
                self.sums::<F, MR, NV, 2>(operand, panel, 0);
            } else {
                self.sums::<F, MR, NV, 1>(operand, panel, 0);
            }
        }
    }

    /// Computes part `part` of `panel`, `NV` vectors of columns, with `PHASES` sums per element.
    #[inline(always)]
    fn sums<F: Integers, const MR: usize, const NV: usize, const PHASES: usize>(
        &self,
        operand: F,
        panel: usize,
        part: usize,
    ) {
        let Self { range, rows, next, .. } = self;
        let Int8Range { rows: bytes, weight, store, .. } = range;
        let (s, lanes) = (operand.lanes(), F::SimdF32::LANES);
        let first = part * NV * lanes;
        let column = panel * PANEL + first;
        if column >= weight.columns() {
            return;
        }
        let columns = (weight.columns() - column).min(NV * lanes);
        let block = OutputRange { row: rows.start, rows: MR, column, columns };
        let steps = weight.depth().div_ceil(4);
        let words = bytes.words(rows.clone());
        debug_assert_eq!((rows.len(), words.len()), (MR, MR * steps * F::WORDS));
        let words = Rows { at: words.as_ptr().cast(), row: F::WORDS, step: MR * F::WORDS };
        let weights = weight.panel(panel).wrapping_add(first);
        let scales = weights.wrapping_add(steps * PANEL);
        let offsets = scales.wrapping_add(PANEL);
        let mut begin = [[operand.zero(); NV]; MR];
        for v in 0..NV {
            // SAFETY: `panel` is in the matrix, and its words end with PANEL offsets (`QuantizedMatrix`).
            let offsets = unsafe { operand.start(offsets.wrapping_add(v * lanes).cast()) };
            for line in &mut begin {
                line[v] = offsets;
            }
        }
        let panels = Panels::from_ptr(weights.cast(), PANEL, lanes);
        let count = const { (NV * F::SimdF32::LANES).div_ceil(CACHE_LINE_F32) };
        let current = |distance: usize| {
            PerStep::new(weights.wrapping_add(distance), PANEL, count, CACHE_LINE_F32)
        };
        let mut phases = [[[[operand.zero(); NV]; MR]; 1]; PHASES];
        // SAFETY: `QuantizedActivations::words` returned the words of `MR` rows, `MR` elements for each of `steps`
        // steps, and the panel has `steps` steps of PANEL words.
        unsafe {
            match *next {
                // Tiles are balanced: if there are several, each has at least half of the rows of the tallest.
                Some(NextPanel { at, step, streams })
                    if const { PHASES == 1 && 2 * MR >= F::TALL && !F::WIDENS } =>
                {
                    store.prefetch_l2(s, OutputRange { columns: NV * lanes, ..block });
                    let streams = (streams, steps / streams * step);
                    let next = PerStep::in_streams(at, 1, streams, step);
                    let prefetch = (current(PREFETCH_NEAR), next);
                    phases[0] = multiply(operand, [begin], steps, words, panels, prefetch);
                }
                _ => {
                    phases[0] = [begin];
                    let whole = const { NV * F::SimdF32::LANES == PANEL };
                    let rows = MR * F::SUMS;
                    let reads = WeightReads { bytes: 1, rows, shared: false, cached: false };
                    phases = match PrefetchTarget::select(s, reads) {
                        PrefetchTarget::Interleaved
                            if const { reads_in_order::<F, NV>() && MR * F::SUMS > MAX_SPARSE_SUMS } =>
                        {
                            let (next, floats) = (weight.panel(panel + 1), steps * PANEL);
                            let streams = (STREAMS, floats.div_ceil(STREAMS));
                            let next = PerStep::in_streams(next, 2, streams, CACHE_LINE_F32);
                            multiply_in_phases(operand, phases, steps, words, panels, next, ())
                        }
                        PrefetchTarget::Sparse
                            if const { reads_in_order::<F, NV>() && MR * F::SUMS <= MAX_SPARSE_SUMS } =>
                        {
                            let next = Sparse::sparse(weights, PANEL);
                            multiply_in_phases(operand, phases, steps, words, panels, next, ())
                        }
                        _ => {
                            let next = if whole {
                                current(PREFETCH_FAR)
                            } else {
                                // Each part of a panel prefetches its share of the next panel.
                                let share = part * steps * count * CACHE_LINE_F32;
                                let at = weight.panel(panel + 1).wrapping_add(share);
                                PerStep::running(at, count, CACHE_LINE_F32)
                            };
                            multiply_in_phases(operand, phases, steps, words, panels, next, ())
                        }
                    }
                }
            }
        }
        let row_scales = bytes.scales(rows.clone());
        assert!(row_scales.len() == MR);
        // SAFETY: `panel` is in the matrix, and its steps are followed by PANEL scales (`QuantizedMatrix`).
        let column_scales = unsafe { load_line(s, scales) };
        // SAFETY: rows and columns of the output, which `split` gives to no other task.
        unsafe {
            store.store_rows(
                s,
                MR,
                block,
                #[inline(always)]
                |i| scaled(operand, &phases, i, &column_scales, row_scales[i]),
            );
        }
    }
}

/// Row `i` of the sums: the phases are added, converted to f32 and scaled.
#[inline(always)]
fn scaled<F: Integers, const PHASES: usize, const MR: usize, const NV: usize>(
    operand: F,
    phases: &[[[[F::Sum; NV]; MR]; 1]; PHASES],
    i: usize,
    column_scales: &[Vector<F>; NV],
    row_scale: f32,
) -> [Vector<F>; NV] {
    let s = operand.lanes();
    let mut line = [s.splat(0.0); NV];
    for v in 0..NV {
        let mut sum = phases[0][0][i][v];
        for [phase] in &phases[1..] {
            sum = operand.add(sum, phase[i][v]);
        }
        line[v] = operand.to_f32(sum);
    }
    scale_line(s, line, column_scales, row_scale)
}

/// The f32 vector of an operand.
type Vector<F> = <<F as TileOperand>::SimdF32 as SimdF32>::F32;
