//! Many rows at once, with the tile registers of AMX.
//!
//! A block is 32 rows and a whole panel: two tiles of rows times two tiles of weights, for each 64 `k`. For 16-bit rows
//! the two tiles of rows are the high and the low bytes of 16 rows. Panels are read in place: the sixteen words per
//! column of a step are two adjacent tiles.
//!
//! * All tiles are full. If the remaining rows do not fill a block, the block starts earlier: its first rows are rows
//!   that were already computed, and they are not stored again. If at most 16 rows remain, the block has one tile of
//!   rows.
//! * If the depth is not a multiple of 64, the last step takes the last 64 `k` of each row, of which some were already
//!   added. The weights of this step are copied, with zeros for those `k`.
//! * Sums start at the offsets of their columns, as in the vector tiles. The epilogue is the same too, so the bits are
//!   the same.
//!
//! A block of rows that takes at most half of the L2 cache, so that panels fit in the other half, is multiplied by all
//! panels.

use super::quantization::Quantization;
use super::quantized_activations::QuantizedActivations;
use super::tile_operand::Int8Range;
use super::weights::PANEL;
use crate::arch::x86_64::amx_tile::{Block, BlockSums, SIDE, STEP, Start, TileUnit, Tiles};
use crate::gemm::epilogue::OutputRange;
use crate::gemm::store_tile::{Store, load_line};
use crate::parallel::share;
use crate::row_prefetch::PrefetchPanel;
use crate::simd::int8::{Int8Dot, SimdI32};
use crate::simd::u8_activations::ActivationEncoding;
use crate::simd::{SimdF32, simd_op};
use core::ops::Range;

/// Words of rows that are multiplied by all panels in one pass: one MiB, half of the L2 cache of a CPU with AMX.
const PASS_WORDS: usize = 256 << 10;

simd_op!(
    /// Multiplies a range in blocks.
    pub(super) fn multiply_blocks<B: Int8Dot, const NV: usize, const TV: usize, M: TileUnit>(
        b: B,
        machine: M,
        range: Int8Range<'_>,
    ) {
        const {
            assert!(NV * <B::Floats as SimdF32>::LANES == PANEL && PANEL == 2 * SIDE);
            assert!(matches!(B::STORED, ActivationEncoding::Unsigned));
        }
        let Int8Range { rows, weight, store, tiles, panels } = range;
        let row_words = rows.by_row().1;
        let passes = (rows.of_blocks(tiles.clone()).len() * row_words).div_ceil(PASS_WORDS).max(1);
        let mut pass = Pass {
            b,
            rows,
            store,
            columns: weight.columns(),
            sums: BlockSums([0; 2 * STEP]),
            last: LastStep([0.0; STEP]),
            tiles: machine.configured(),
        };
        for i in 0..passes {
            let part = share(tiles.len(), passes, i);
            let part = rows.of_blocks(tiles.start + part.start..tiles.start + part.end);
            for panel in panels.clone() {
                let (next, end) = (weight.panel(panel + 1), weight.panel(panel + 2));
                let next = PrefetchPanel::new(next, end, part.len());
                pass.panel::<NV>(part.clone(), panel, weight.parts(panel), next);
            }
        }
    }
);

/// The weights of a last step that overlaps the step before.
#[repr(C, align(64))]
struct LastStep([f32; STEP]);

/// The state of a thread while it multiplies.
struct Pass<'a, B, T> {
    b: B,
    rows: &'a QuantizedActivations<'a>,
    store: &'a Store,
    columns: usize,
    sums: BlockSums,
    last: LastStep,
    tiles: T,
}

impl<B: Int8Dot, T: Tiles> Pass<'_, B, T> {
    /// Multiplies rows `part` by a panel, given as its words, scales and offsets.
    #[inline(always)]
    fn panel<const NV: usize>(
        &mut self,
        part: Range<usize>,
        panel: usize,
        (words, scales, offsets): (&[f32], &[f32; PANEL], &[f32; PANEL]),
        mut next: PrefetchPanel,
    ) {
        // Words per column after the last full step.
        let left = words.len() / PANEL % SIDE;
        let steps = words.len() / STEP;
        if left > 0 {
            // The words before them are zeros, for all panels.
            self.last.0[STEP - left * PANEL..].copy_from_slice(&words[steps * STEP..]);
        }
        let weights = Weights { words, steps, left: left > 0, scales };
        let total = self.rows.rows();
        let digits = matches!(self.rows.precision(), Quantization::W8A16);
        let mut row = part.start;
        while row < part.end {
            let rest = part.end - row;
            let height = if digits || rest <= SIDE { SIDE } else { 2 * SIDE };
            let first = row.min(total - height);
            let (words, stride) = self.rows.by_row();
            let at = first * stride;
            if digits {
                let operand = (words, [at, at + stride / 2], stride);
                self.multiply(operand, [offsets, &[0.0; PANEL]], &weights);
            } else if height == SIDE {
                self.multiply((words, [at], stride), [offsets], &weights);
            } else {
                let operand = (words, [at, at + SIDE * stride], stride);
                self.multiply(operand, [offsets, offsets], &weights);
            }
            let rows = row..part.end.min(row + height);
            next.issue(self.b.sums().floats(), rows.len());
            self.finish::<NV>(rows.clone(), first, digits, panel, &weights);
            row = rows.end;
        }
    }

    /// Computes the sums of a block.
    #[inline(always)]
    fn multiply<const TALL: usize>(
        &mut self,
        (rows, first, stride): (&[f32], [usize; TALL], usize),
        begin: [&[f32; PANEL]; TALL],
        weights: &Weights<'_>,
    ) {
        let block =
            Block::new(Start::Columns(begin), (rows, first, stride), weights.words, weights.steps);
        self.tiles.multiply(&block, &mut self.sums);
        if weights.left {
            // The last words of each row.
            let mut last = first;
            for last in &mut last {
                *last += weights.words.len() / PANEL - SIDE;
            }
            let block = Block::new(Start::Sums, (rows, last, stride), &self.last.0, 1);
            self.tiles.multiply(&block, &mut self.sums);
        }
    }

    /// Applies the epilogue to rows `rows` of a block that starts at row `first`, as for vector tiles, and stores them.
    #[inline(always)]
    fn finish<const NV: usize>(
        &self,
        rows: Range<usize>,
        first: usize,
        digits: bool,
        panel: usize,
        weights: &Weights<'_>,
    ) {
        let (b, store) = (self.b.sums(), self.store);
        let (s, lanes) = (b.floats(), <B::Floats as SimdF32>::LANES);
        let column = panel * PANEL;
        let valid = (self.columns - column).min(PANEL);
        let skipped = rows.start - first;
        assert!(skipped + rows.len() <= 2 * SIDE && (!digits || skipped + rows.len() <= SIDE));
        let row_scales = self.rows.scales(rows.clone());
        let sums = self.sums.0.as_ptr().wrapping_add(skipped * PANEL);
        // SAFETY: `scales` has PANEL floats, which are NV vectors.
        let scales: [_; NV] = unsafe { load_line(s, weights.scales.as_ptr()) };
        let block = OutputRange { row: rows.start, rows: rows.len(), column, columns: valid };
        // SAFETY: rows and columns of the output, which `split` gives to no other task.
        unsafe {
            store.store_rows(
                s,
                rows.len(),
                block,
                #[inline(always)]
                |i| {
                    let mut line = [s.splat(row_scales[i]); NV];
                    for (v, line) in line.iter_mut().enumerate() {
                        let at = sums.wrapping_add(i * PANEL + v * lanes);
                        // SAFETY: the assertion above: row `skipped + i` is one of the rows of the block. With digits
                        // there are 16 rows, and the sums of their low bytes follow them (`STEP` further).
                        let mut sum = b.load_sums(at);
                        if digits {
                            sum = b.join(sum, b.load_sums(at.add(STEP)));
                        }
                        *line = s.mul(s.mul(b.to_f32(sum), scales[v]), *line);
                    }
                    line
                },
            );
        }
    }
}

/// The weights of a panel.
struct Weights<'a> {
    words: &'a [f32],
    /// Full steps.
    steps: usize,
    /// Whether there is a partial step after them.
    left: bool,
    scales: &'a [f32; PANEL],
}
