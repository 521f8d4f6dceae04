//! Many rows at once on AArch64, by the matrix products of I8MM.
//!
//! A tile is six pairs of rows and eight columns: a step of eight `k` loads four vectors of weights, interleaves them
//! into four of two columns each, loads six vectors of rows and multiplies 24 times. Rows of 16 bits are a pair by
//! themselves, of high and low bytes. All is signed, so that no column has an offset; from the sums on all is done
//! as in tiles of vectors, so the bits are the same.
//!
//! Panels are read where they lie. A block of rows passes over all of them, as elsewhere.

use super::activation_bits::ActivationBits;
use super::activations::QuantizedActivations;
use super::pack_activations::TALL_PAIRS;
use super::prefetch::Next;
use super::quantize_weights::PANEL;
use super::weights::QuantizedMatrix;
use crate::arch::aarch64::dotprod::NeonDot;
use crate::arch::aarch64::i8mm::{Acc2x2, I8x8Pair, NeonI8mm};
use crate::gemm::epilogue::Store;
use crate::gemm::microkernel::{Panels, PrefetchLines, Rows, TileOperand, multiply};
use crate::parallel::share;
use crate::simd::SimdF32;
use crate::simd::int8::{Int8Dot, Int8Op};
use core::mem::MaybeUninit;
use core::ops::Range;
use pulp::aarch64::Neon;

/// Words of rows that pass over all panels: 256 KiB, half of a small second-level cache.
const PASS_WORDS: usize = 64 << 10;

/// Vectors of columns in a tile.
const VECTORS: usize = 2;

/// Columns in a tile.
const COLUMNS: usize = VECTORS * <Neon as SimdF32>::LANES;

/// Floats by which a tile asks for weights before it multiplies them.
const AHEAD: usize = 8 * PANEL;

/// Some tiles of rows times some panels.
pub(super) struct Pairs<'a> {
    pub(super) set: NeonI8mm,
    pub(super) rows: &'a QuantizedActivations<'a>,
    pub(super) weight: &'a QuantizedMatrix<'a>,
    pub(super) store: &'a Store,
    pub(super) tiles: Range<usize>,
    pub(super) panels: Range<usize>,
}

impl Int8Op for Pairs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, _: B) {
        let Self { set, rows, weight, store, tiles, panels } = self;
        let words = rows.pairs(rows.of_pairs(tiles.clone())).len();
        let passes = words.div_ceil(PASS_WORDS).clamp(1, tiles.len().max(1));
        for pass in 0..passes {
            let own = share(tiles.len(), passes, pass);
            let own = tiles.start + own.start..tiles.start + own.end;
            let count = rows.of_pairs(own.clone()).len().max(1);
            for panel in panels.clone() {
                let mut next = Next::new(weight, panel + 1, count);
                for tile in own.clone() {
                    let rows_of = rows.of_pairs(tile..tile + 1);
                    next.issue(set.dot().floats(), rows_of.len());
                    Tile { set, rows, weight, store, rows_of, panel }.run();
                }
            }
        }
    }
}

/// Rows of one tile times a panel.
struct Tile<'a> {
    set: NeonI8mm,
    rows: &'a QuantizedActivations<'a>,
    weight: &'a QuantizedMatrix<'a>,
    store: &'a Store,
    rows_of: Range<usize>,
    panel: usize,
}

impl Tile<'_> {
    #[inline(always)]
    fn run(self) {
        let digits = matches!(self.rows.precision(), ActivationBits::Sixteen);
        let pairs = self.rows_of.len().div_ceil(if digits { 1 } else { 2 });
        macro_rules! dispatch_mr {
            ($($pairs:literal)*) => {
                match pairs {
                    $($pairs if digits => self.set.enter(Of::<$pairs, true>(self)),)*
                    $($pairs => self.set.enter(Of::<$pairs, false>(self)),)*
                    pairs => unreachable!("a tile of {pairs} pairs"),
                }
            };
        }
        const { assert!(TALL_PAIRS == 6) };
        dispatch_mr!(1 2 3 4 5 6);
    }
}

/// A [`Tile`] of `MR` pairs, of high and low bytes or of two rows, as a function of its own.
struct Of<'a, const MR: usize, const DIGITS: bool>(Tile<'a>);

impl<const MR: usize, const DIGITS: bool> Int8Op for Of<'_, MR, DIGITS> {
    type Output = ();

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, _: B) {
        for part in 0..PANEL / COLUMNS {
            self.part(part);
        }
    }
}

impl<const MR: usize, const DIGITS: bool> Of<'_, MR, DIGITS> {
    /// Part `part` of the panel.
    #[inline(always)]
    fn part(&self, part: usize) {
        let Tile { set, rows, weight, rows_of, panel, .. } = &self.0;
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
        let panels = Panels { at: [weights.cast()], step: 2 * PANEL, vector };
        let ahead = PrefetchLines {
            at: weights.wrapping_add(AHEAD),
            step: 2 * PANEL,
            count: 2,
            apart: PANEL,
        };
        // SAFETY: the tile has `MR` pairs of two words for each two steps, the panel two lines of 32.
        let [mut sums] = unsafe { multiply(Two(*set), [begin], twos, from, panels, ahead) };
        if steps % 2 == 1 {
            let at = elements[4 * MR * twos..].as_ptr();
            let from = Rows { at: at.cast(), row: 2, step: 2 * MR };
            let at = words[2 * PANEL * twos..].as_ptr().wrapping_add(part * COLUMNS);
            let panels = Panels { at: [at.cast()], step: PANEL, vector };
            // SAFETY: and a word each for the step that is left.
            [sums] = unsafe { multiply(One(*set), [sums], 1, from, panels, ()) };
        }
        self.finish(&sums, scales, part * COLUMNS, column, valid);
    }

    /// Stores the rows of a tile whose first column is `column`, the panel's column `place`.
    #[inline(always)]
    fn finish(
        &self,
        sums: &[[Acc2x2; VECTORS]; MR],
        scales: &[f32; PANEL],
        place: usize,
        column: usize,
        valid: usize,
    ) {
        let Tile { set, rows, store, rows_of, .. } = &self.0;
        let b = set.dot();
        let s = b.floats();
        let lanes = <Neon as SimdF32>::LANES;
        let mut column_scales = [s.splat(0.0); VECTORS];
        for (scale, part) in column_scales.iter_mut().zip(scales[place..].chunks_exact(lanes)) {
            // SAFETY: a vector of the panel's scales.
            *scale = unsafe { s.load(part.as_ptr()) };
        }
        let row_scales = rows.scales(rows_of.clone());
        let usual = store.fits_registers(valid == COLUMNS);
        // SAFETY: if it is read, all columns are in the output.
        let bias = if usual { unsafe { store.bias_of::<_, VECTORS>(s, column) } } else { None };
        let mut room = MaybeUninit::<[f32; 2 * TALL_PAIRS * COLUMNS]>::uninit();
        let tile = room.as_mut_ptr().cast::<f32>();
        for i in 0..MR {
            let mut integers = [[b.zero(); VECTORS]; 2];
            for v in 0..VECTORS {
                [integers[0][v], integers[1][v]] = set.split(sums[i][v]);
                if DIGITS {
                    integers[0][v] = b.join(integers[0][v], integers[1][v]);
                }
            }
            for member in 0..if DIGITS { 1 } else { 2 } {
                let row = if DIGITS { i } else { 2 * i + member };
                // The last row of all may be none.
                let Some(&row_scale) = row_scales.get(row) else { break };
                let mut line = [s.splat(row_scale); VECTORS];
                for v in 0..VECTORS {
                    let sum = b.to_f32(integers[member][v]);
                    line[v] = s.mul(s.mul(sum, column_scales[v]), line[v]);
                }
                if usual {
                    // SAFETY: a row and columns of the output, which no other task has.
                    unsafe { store.finish_row(s, line, bias, rows_of.start + row, column) };
                } else {
                    for (v, x) in line.into_iter().enumerate() {
                        // SAFETY: there is room for two rows of each pair.
                        unsafe { s.store(tile.add((row * VECTORS + v) * lanes), x) };
                    }
                }
            }
        }
        let count = rows_of.len();
        // SAFETY: rows and columns of the output, which no other task has; they are stored, or in the tile.
        unsafe {
            if usual {
                store.finish_stored(s, count, rows_of.start, column, valid);
            } else {
                store.finish_tile(s, tile, (count, COLUMNS), rows_of.start, column, valid);
            }
        }
    }
}

/// Pairs of rows and two steps of weights.
#[derive(Clone, Copy)]
struct Two(NeonI8mm);

/// Pairs of rows and a step that is left.
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
                <NeonDot as Int8Dot>::floats(self.0.dot())
            }
            #[inline(always)]
            unsafe fn load(self, $from: *const i32, _: usize) -> I8x8Pair {
                let $set = self.0;
                // SAFETY: a vector of each step.
                unsafe { $load }
            }
            #[inline(always)]
            unsafe fn broadcast(self, $from: *const i32) -> I8x8Pair {
                let $set = self.0;
                // SAFETY: a pair.
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
