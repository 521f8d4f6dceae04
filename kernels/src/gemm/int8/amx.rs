//! Many rows at once, by the tile registers of AMX.
//!
//! A block is 32 rows and a whole panel: two tiles of rows times two of weights, for each 64 `k`. Rows of 16 bits
//! are sixteen high ones and sixteen low ones. Panels are read where they lie: a step's sixteen words of each
//! column are two tiles side by side.
//!
//! * All tiles are whole. Where rows are left that are no block, its first rows are some that were done already, and
//!   are not stored again; where up to sixteen are left, a block is one tile of rows.
//! * Where depth is no multiple of 64, the last step has the last 64 `k` of each row, of which some were done
//!   already: its weights are copied, with zeros for those.
//! * Sums begin with the offsets of their columns, as tiles of vectors do; from there on all is done as there, so the bits
//!   are the same.
//!
//! A block of rows that leaves half of the second-level cache to panels passes over all of them.

use super::activation_bits::ActivationBits;
use super::activations::QuantizedActivations;
use super::prefetch::Next;
use super::quantize_weights::PANEL;
use super::weights::QuantizedMatrix;
use crate::arch::x86_64::amx_tile::{Block, SIDE, STEP, Start, Sums, TileUnit, Tiles};
use crate::gemm::epilogue::Store;
use crate::parallel::share;
use crate::simd::SimdF32;
use crate::simd::int8::{ActivationEncoding, Int8Dot, Int8Op};
use core::ops::Range;

/// Words of rows that pass over all panels: a MiB, half of the second-level cache of a CPU that has AMX.
const PASS_WORDS: usize = 256 << 10;

/// Some tiles of rows times some panels.
pub(super) struct Blocks<'a, M> {
    pub(super) machine: M,
    pub(super) rows: &'a QuantizedActivations<'a>,
    pub(super) weight: &'a QuantizedMatrix<'a>,
    pub(super) store: &'a Store,
    pub(super) tiles: Range<usize>,
    pub(super) panels: Range<usize>,
}

impl<M: TileUnit> Int8Op for Blocks<'_, M> {
    type Output = ();

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, b: B) {
        const {
            assert!(NV * <B::Floats as SimdF32>::LANES == PANEL && PANEL == 2 * SIDE);
            assert!(matches!(B::STORED, ActivationEncoding::Unsigned));
        }
        let Self { machine, rows, weight, store, tiles, panels } = self;
        let row_words = rows.by_row().1;
        let passes = (rows.of_blocks(tiles.clone()).len() * row_words).div_ceil(PASS_WORDS).max(1);
        let mut pass = Pass {
            b,
            rows,
            store,
            columns: weight.columns(),
            sums: Sums([0; 2 * STEP]),
            last: Last([0.0; STEP]),
            tiles: machine.configured(),
        };
        for i in 0..passes {
            let part = share(tiles.len(), passes, i);
            let part = rows.of_blocks(tiles.start + part.start..tiles.start + part.end);
            for panel in panels.clone() {
                let next = Next::new(weight, panel + 1, part.len());
                pass.panel::<NV>(part.clone(), panel, weight.parts(panel), next);
            }
        }
    }
}

/// The weights of a last step that begins among those of the step before.
#[repr(C, align(64))]
struct Last([f32; STEP]);

/// What a thread has while it multiplies.
struct Pass<'a, B, T> {
    b: B,
    rows: &'a QuantizedActivations<'a>,
    store: &'a Store,
    columns: usize,
    sums: Sums,
    last: Last,
    tiles: T,
}

impl<B: Int8Dot, T: Tiles> Pass<'_, B, T> {
    /// Rows `part` times a panel: its words, the scales and the offsets of its columns.
    #[inline(always)]
    fn panel<const NV: usize>(
        &mut self,
        part: Range<usize>,
        panel: usize,
        (words, scales, offsets): (&[f32], &[f32; PANEL], &[f32; PANEL]),
        mut next: Next,
    ) {
        // Words of a row that no whole step has.
        let left = words.len() / PANEL % SIDE;
        let steps = words.len() / STEP;
        if left > 0 {
            // Before them are zeros, in all panels.
            self.last.0[STEP - left * PANEL..].copy_from_slice(&words[steps * STEP..]);
        }
        let weights = Weights { words, steps, left: left > 0, scales };
        let total = self.rows.rows();
        let digits = matches!(self.rows.precision(), ActivationBits::Sixteen);
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
            next.issue(self.b.floats(), rows.len());
            self.finish::<NV>(rows.clone(), first, digits, panel, &weights);
            row = rows.end;
        }
    }

    /// The sums of a block.
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

    /// Stores rows `rows` of a block that begins with row `first`, as tiles of vectors do.
    #[inline(always)]
    fn finish<const NV: usize>(
        &mut self,
        rows: Range<usize>,
        first: usize,
        digits: bool,
        panel: usize,
        weights: &Weights<'_>,
    ) {
        let (b, store) = (self.b, self.store);
        let (s, lanes) = (b.floats(), <B::Floats as SimdF32>::LANES);
        let column = panel * PANEL;
        let valid = (self.columns - column).min(PANEL);
        let skipped = rows.start - first;
        assert!(skipped + rows.len() <= 2 * SIDE && (!digits || skipped + rows.len() <= SIDE));
        let row_scales = self.rows.scales(rows.clone());
        let sums = self.sums.0.as_mut_ptr().wrapping_add(skipped * PANEL);
        let mut scales = [s.splat(0.0); NV];
        for (v, scale) in scales.iter_mut().enumerate() {
            // SAFETY: NV vectors are a panel.
            *scale = unsafe { s.load(weights.scales.as_ptr().add(v * lanes)) };
        }
        let usual = store.fits_registers(valid == PANEL);
        // SAFETY: if it is read, all columns are in the output.
        let bias = if usual { unsafe { store.bias_of::<_, NV>(s, column) } } else { None };
        for (i, &row_scale) in row_scales.iter().enumerate() {
            let mut line = [s.splat(row_scale); NV];
            for v in 0..NV {
                let at = sums.wrapping_add(i * PANEL + v * lanes);
                // SAFETY: a vector of one of the block's rows; with digits there are sixteen, and their low
                // ones after them. What is stored has the size of what was loaded.
                unsafe {
                    let mut sum = b.load_sums(at);
                    if digits {
                        sum = b.join(sum, b.load_sums(at.add(STEP)));
                    }
                    line[v] = s.mul(s.mul(b.to_f32(sum), scales[v]), line[v]);
                    if !usual {
                        s.store(at.cast(), line[v]);
                    }
                }
            }
            if usual {
                // SAFETY: rows and columns of the output, which no other task has.
                unsafe { store.finish_row(s, line, bias, rows.start + i, column) };
            }
        }
        // SAFETY: the rows and columns of the output are those of `finish_row` above, and no other
        // task has them. Where a row was not finished, the loop has stored it, so `sums` is a tile
        // of that shape.
        unsafe {
            if usual {
                store.finish_stored(s, rows.len(), rows.start, column, valid);
            } else {
                let shape = (rows.len(), PANEL);
                store.finish_tile(s, sums.cast(), shape, rows.start, column, valid);
            }
        }
    }
}

/// The weights of a panel.
struct Weights<'a> {
    words: &'a [f32],
    /// Whole ones.
    steps: usize,
    /// Whether there is another.
    left: bool,
    scales: &'a [f32; PANEL],
}
