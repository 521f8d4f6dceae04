//! Many rows at once on AArch64, with the matrix products of I8MM.
//!
//! A tile is six pairs of rows and eight columns. A step of eight `k` loads four vectors of weights, interleaves them
//! into four vectors of two columns each, loads six vectors of rows and does 24 multiplications. The high and low bytes
//! of a 16-bit row form a pair. All values are signed, so columns have no offset. The epilogue is that of the vector
//! tiles, so the bits are the same.
//!
//! Panels are read in place. A block of rows is multiplied by all panels.

use super::pack_activations::MAX_TILE_PAIRS;
use super::quantization::Quantization;
use super::quantized_activations::QuantizedActivations;
use super::tile_operand::Int8Range;
use super::weights::{PANEL, QuantizedMatrix};
use crate::arch::aarch64::i8mm::{Acc2x2, I8x8Pair, NeonI8mm};
use crate::gemm::epilogue::OutputRange;
use crate::gemm::microkernel::{Panels, Rows, TileOperand, multiply};
use crate::gemm::store_tile::{Store, load_line};
use crate::parallel::share;
use crate::prefetch::PerStep;
use crate::row_prefetch::PrefetchPanel;
use crate::simd::int8::{Int8Dot, SimdI32};
use crate::simd::{SimdF32, simd_op, tile_heights};
use core::ops::Range;
use pulp::aarch64::Neon;

/// Words of rows that are multiplied by all panels in one pass: 256 KiB, half of a small L2 cache.
const PASS_WORDS: usize = 64 << 10;

/// Vectors of columns in a tile.
const VECTORS: usize = 2;

/// Columns in a tile.
const COLUMNS: usize = VECTORS * <Neon as SimdF32>::LANES;

/// Floats between the prefetch of weights and their use.
const PREFETCH_FLOATS: usize = 8 * PANEL;

simd_op!(
    /// Multiplies a range in pairs.
    pub(super) fn multiply_pairs<B: Int8Dot, const NV: usize, const TV: usize>(
        _b: B,
        set: NeonI8mm,
        range: Int8Range<'_>,
    ) {
        let Int8Range { rows, weight, store, tiles, panels } = range;
        let words = rows.pairs(rows.of_pairs(tiles.clone())).len();
        let passes = words.div_ceil(PASS_WORDS).clamp(1, tiles.len().max(1));
        for pass in 0..passes {
            let own = share(tiles.len(), passes, pass);
            let own = tiles.start + own.start..tiles.start + own.end;
            let count = rows.of_pairs(own.clone()).len().max(1);
            for panel in panels.clone() {
                let (next, end) = (weight.panel(panel + 1), weight.panel(panel + 2));
                let mut next = PrefetchPanel::new(next, end, count);
                for tile in own.clone() {
                    let rows_of = rows.of_pairs(tile..tile + 1);
                    next.issue(set.dot().sums().floats(), rows_of.len());
                    PairTile { set, rows, weight, store, rows_of, panel }.multiply_panel();
                }
            }
        }
    }
);

/// Rows of one tile times a panel.
struct PairTile<'a> {
    set: NeonI8mm,
    rows: &'a QuantizedActivations<'a>,
    weight: &'a QuantizedMatrix<'a>,
    store: &'a Store,
    rows_of: Range<usize>,
    panel: usize,
}

impl PairTile<'_> {
    #[inline(always)]
    fn multiply_panel(self) {
        let digits = matches!(self.rows.precision(), Quantization::W8A16);
        let pairs = self.rows_of.len().div_ceil(if digits { 1 } else { 2 });
        const { assert!(MAX_TILE_PAIRS == 6, "all heights of a tile") };
        if digits {
            tile_heights!(pairs, [1 2 3 4 5 6], MR => self.set.enter(multiply_pair_tile::<MR, true>(self)));
        } else {
            tile_heights!(pairs, [1 2 3 4 5 6], MR => self.set.enter(multiply_pair_tile::<MR, false>(self)));
        }
    }
}

simd_op!(
    /// A tile of `MR` pairs, of high and low bytes if `DIGITS`, otherwise of two rows, as a separate function.
    fn multiply_pair_tile<
        B: Int8Dot,
        const NV: usize,
        const TV: usize,
        const MR: usize,
        const DIGITS: bool,
    >(
        _b: B,
        tile: PairTile<'_>,
    ) {
        for part in 0..PANEL / COLUMNS {
            tile.part::<MR, DIGITS>(part);
        }
    }
);

impl PairTile<'_> {
    /// Computes part `part` of the panel.
    #[inline(always)]
    fn part<const MR: usize, const DIGITS: bool>(&self, part: usize) {
        let Self { set, rows, weight, rows_of, panel, .. } = self;
        let column = panel * PANEL + part * COLUMNS;
        if column >= weight.columns() {
            return;
        }
        let valid = (weight.columns() - column).min(COLUMNS);
        let (words, scales, _) = weight.parts(*panel);
        let steps = words.len() / PANEL;
        let elements = rows.pairs(rows_of.clone());
        assert!(elements.len() == MR * 2 * steps);
        let weights = words.as_ptr().wrapping_add(part * COLUMNS);
        let begin = [[set.zero(); VECTORS]; MR];
        let twos = steps / 2;
        let from = Rows { at: elements.as_ptr().cast(), row: 4, step: 4 * MR };
        let vector = <Neon as SimdF32>::LANES;
        let panels = Panels::from_ptr(weights.cast(), 2 * PANEL, vector);
        let prefetch = PerStep::new(weights.wrapping_add(PREFETCH_FLOATS), 2 * PANEL, 2, PANEL);
        // SAFETY: the assertion above: the tile has `MR` pairs of two words per row for each two steps, and the panel
        // has two lines of 32 words for them.
        let mut sums = unsafe { multiply(Two(*set), [begin], twos, from, panels, prefetch) };
        if steps % 2 == 1 {
            let at = elements[4 * MR * twos..].as_ptr();
            let from = Rows { at: at.cast(), row: 2, step: 2 * MR };
            let at = words[2 * PANEL * twos..].as_ptr().wrapping_add(part * COLUMNS);
            let panels = Panels::from_ptr(at.cast(), PANEL, vector);
            // SAFETY: the assertion above: the tile and the panel have one word per row and column for the remaining
            // step.
            sums = unsafe { multiply(One(*set), sums, 1, from, panels, ()) };
        }
        self.finish::<MR, DIGITS>(&sums[0], scales, part * COLUMNS, column, valid);
    }

    /// Applies the epilogue to the rows of a tile and stores them. The first column of the tile is `column`, which is
    /// column `place` of the panel.
    #[inline(always)]
    fn finish<const MR: usize, const DIGITS: bool>(
        &self,
        sums: &[[Acc2x2; VECTORS]; MR],
        scales: &[f32; PANEL],
        place: usize,
        column: usize,
        valid: usize,
    ) {
        let Self { set, rows, store, rows_of, .. } = self;
        let b = set.dot().sums();
        let s = b.floats();
        // SAFETY: the slice has `COLUMNS` floats, which are `VECTORS` vectors.
        let column_scales: [_; VECTORS] =
            unsafe { load_line(s, scales[place..][..COLUMNS].as_ptr()) };
        let row_scales = rows.scales(rows_of.clone());
        assert!(row_scales.len() == rows_of.len());
        // The second row of the last pair may not exist.
        let tall = if DIGITS { MR } else { 2 * MR };
        let block = OutputRange { row: rows_of.start, rows: rows_of.len(), column, columns: valid };
        // SAFETY: rows and columns of the output, which `split` gives to no other task.
        unsafe {
            store.store_rows(
                s,
                tall,
                block,
                #[inline(always)]
                |i| {
                    let mut line = [s.splat(row_scales[i]); VECTORS];
                    for (v, line) in line.iter_mut().enumerate() {
                        let sum = if DIGITS {
                            let [high, low] = set.split(sums[i][v]);
                            b.join(high, low)
                        } else {
                            set.split(sums[i / 2][v])[i % 2]
                        };
                        *line = s.mul(s.mul(b.to_f32(sum), column_scales[v]), *line);
                    }
                    line
                },
            );
        }
    }
}

/// The operand for pairs of rows and two steps of weights.
#[derive(Clone, Copy)]
struct Two(NeonI8mm);

/// The operand for pairs of rows and a remaining step.
#[derive(Clone, Copy)]
struct One(NeonI8mm);

macro_rules! form {
    ($form:ident, $set:ident, $from:ident, $load:expr, $rows:expr) => {
        impl TileOperand for $form {
            type SimdF32 = Neon;
            type Element = i32;
            type Weight = i32;
            type Vector = I8x8Pair;
            type Sum = Acc2x2;

            #[inline(always)]
            fn lanes(self) -> Neon {
                self.0.dot().sums().floats()
            }
            #[inline(always)]
            unsafe fn load(self, $from: *const i32, _: usize) -> I8x8Pair {
                let $set = self.0;
                // SAFETY: `# Safety` of `TileOperand::load`: one vector for each step.
                unsafe { $load }
            }
            #[inline(always)]
            unsafe fn broadcast(self, $from: *const i32) -> I8x8Pair {
                let $set = self.0;
                // SAFETY: `# Safety` of `TileOperand::broadcast`: one pair.
                unsafe { $rows }
            }
            #[inline(always)]
            fn multiply_add(self, pair: I8x8Pair, weights: I8x8Pair, sum: Acc2x2) -> Acc2x2 {
                self.0.multiply_add(sum, pair, weights)
            }
        }
    };
}
form!(Two, set, from, set.load(from, PANEL), set.rows(from));
form!(One, set, from, set.load_last(from), set.last_rows(from));
