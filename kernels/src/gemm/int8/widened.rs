//! Many rows on instruction sets that convert int8 to 16 bits before they multiply
//! ([`ActivationEncoding::Pairs`](crate::simd::u8_activations::ActivationEncoding::Pairs)).
//!
//! The conversion of a vector takes three instructions, beside eight multiplications and additions with two rows. So a
//! block of weights, as wide as a tile, is converted once, into a buffer in the L1 cache, and multiplied by several
//! tiles of rows.
//!
//! A second buffer has the sums of these tiles, until all blocks of the depth are added. Then the epilogue of all of them
//! is one loop.

use super::tile_operand::{Int8Range, scale_line};
use super::weights::PANEL;
use crate::gemm::epilogue::OutputRange;
use crate::gemm::store_tile::load_line;
use crate::parallel::share;
use crate::simd::int8::{Int8Dot, SimdI32};
use crate::simd::{SimdF32, tile_heights};
use core::mem::MaybeUninit;

/// Words of a converted block: 16 KiB, half of a small L1 cache. Six rows take 6 KiB for the same steps.
const BLOCK_WORDS: usize = 4 << 10;

/// Words of the sums of all tiles that share a block.
const SUM_WORDS: usize = 1 << 10;

/// Words of the rows of these tiles: 256 KiB, so that an L2 cache of 512 KiB also holds panels.
const ROW_WORDS: usize = 64 << 10;

/// Words on the stack that begin at a cache line.
#[repr(C, align(64))]
struct Buffer<const WORDS: usize>(MaybeUninit<[i32; WORDS]>);

/// Multiplies a range.
#[inline(always)]
pub(super) fn multiply_blocks<B: Int8Dot, const NV: usize, const TV: usize>(
    b: B,
    range: &Int8Range<'_>,
) {
    let lanes = <B::Floats as SimdF32>::LANES;
    let width = TV * lanes;
    let Int8Range { rows, weight, store, tiles, panels } = range;
    let s = b.sums().floats();
    let rows_of = |tile: usize| share(rows.rows(), rows.tiles(), tile);
    let steps = weight.depth().div_ceil(4);
    let tallest = rows.words(rows_of(tiles.start)).len().max(1);
    let passes =
        tiles.len().div_ceil((ROW_WORDS / tallest).clamp(2, SUM_WORDS / (B::TALL * width)));
    let mut pairs = Buffer::<BLOCK_WORDS>(MaybeUninit::uninit());
    let mut sums = Buffer::<SUM_WORDS>(MaybeUninit::uninit());
    let (pairs, sums) = (pairs.0.as_mut_ptr().cast::<i32>(), sums.0.as_mut_ptr().cast::<i32>());
    for pass in 0..passes {
        let own = share(tiles.len(), passes, pass);
        let own = tiles.start + own.start..tiles.start + own.end;
        let of_pass = rows_of(own.start).start..rows_of(own.end - 1).end;
        let row_scales = rows.scales(of_pass.clone());
        assert!(row_scales.len() * width <= SUM_WORDS);
        let apart = width.div_ceil(own.len());
        for (panel, part) in panels.clone().flat_map(|panel| (0..NV / TV).map(move |i| (panel, i)))
        {
            let column = panel * PANEL + part * width;
            if column >= weight.columns() {
                break;
            }
            let words = weight.panel(panel).wrapping_add(part * width);
            let columns = (weight.columns() - column).min(width);
            let output = OutputRange { row: of_pass.start, rows: of_pass.len(), column, columns };
            store.prefetch_l2(s, OutputRange { columns: width, ..output });
            // Each tile prefetches its share of the next panel.
            let next = weight.panel(panel + 1).wrapping_add(part * steps * width);
            let mut first = 0;
            loop {
                let count = (steps - first).min(BLOCK_WORDS / (2 * width));
                for step in 0..count {
                    for v in 0..TV {
                        // SAFETY: the panel has `steps` steps of PANEL words. A step of the buffer has two vectors for
                        // each vector of the panel.
                        unsafe {
                            let from = words.add((first + step) * PANEL + v * lanes);
                            for (i, pair) in b.pairs(b.load(from.cast())).into_iter().enumerate() {
                                let to = pairs.add((2 * step + i) * width + v * lanes);
                                b.store_words(to, pair);
                            }
                        }
                    }
                }
                for (place, index) in own.clone().enumerate() {
                    let own_rows = rows_of(index);
                    let tile = Tile {
                        elements: &rows.words(own_rows.clone())[2 * own_rows.len() * first..],
                        steps: count,
                        pairs,
                        sums: sums.wrapping_add((own_rows.start - of_pass.start) * width),
                        begins: first == 0,
                        next: next.wrapping_add((first * own.len() + place * count) * apart),
                        apart,
                    };
                    tile_heights!(own_rows.len(), [3 4 5 6], MR => {
                        // SAFETY: `pairs` has `count` steps; `sums` has the rows of the pass, and after the first block
                        // their sums.
                        unsafe { tile.add::<B, MR, TV>(b) }
                    });
                }
                first += count;
                if first >= steps {
                    break;
                }
            }
            // SAFETY: `panel` is in the matrix, and its steps are followed by PANEL scales (`QuantizedMatrix`).
            let column_scales: [_; TV] = unsafe { load_line(s, words.wrapping_add(steps * PANEL)) };
            // SAFETY: rows and columns of the output, which `split` gives to no other task.
            unsafe {
                store.store_rows(
                    s,
                    row_scales.len(),
                    output,
                    #[inline(always)]
                    |i| {
                        let mut line = [s.splat(0.0); TV];
                        for (v, x) in line.iter_mut().enumerate() {
                            // SAFETY: the tiles stored the sums of all rows of the pass.
                            let sum = b.sums().load_sums(sums.add(i * width + v * lanes));
                            *x = b.sums().to_f32(sum);
                        }
                        scale_line(s, line, &column_scales, row_scales[i])
                    },
                );
            }
        }
    }
}

/// A tile of rows times one block.
struct Tile<'a> {
    /// `[steps][rows][two pairs]`, and what follows.
    elements: &'a [f32],
    steps: usize,
    /// The converted block, `[steps][two pairs][columns]`.
    pairs: *const i32,
    /// `[rows][columns]`.
    sums: *mut i32,
    /// Whether there are no sums yet.
    begins: bool,
    /// What the first step prefetches, and the floats to what the next step prefetches.
    next: *const f32,
    apart: usize,
}

impl Tile<'_> {
    /// Adds the products of `MR` rows.
    ///
    /// # Safety
    /// `pairs` is valid for reads of the block, and `sums` for reads and writes of the sums of the tile. Unless the tile
    /// `begins`, they are initialized.
    #[inline(always)]
    unsafe fn add<B: Int8Dot, const MR: usize, const TV: usize>(self, b: B) {
        let Self { elements, steps, pairs, sums, begins, next, apart } = self;
        assert!(elements.len() >= 2 * MR * steps);
        let (s, lanes) = (b.sums().floats(), <B::Floats as SimdF32>::LANES);
        let elements = elements.as_ptr().cast::<i32>();
        let mut tile = [[b.sums().splat_i32(0); TV]; MR];
        // SAFETY: the contract of this function for the sums and the block; the assertion for the rows.
        unsafe {
            if !begins {
                tile = sums.cast::<[[B::I32; TV]; MR]>().read_unaligned();
            }
            for step in 0..steps {
                s.prefetch_l2(next.wrapping_add(step * apart));
                for pair in 0..2 {
                    let at = pairs.add((2 * step + pair) * TV * lanes);
                    let mut weights = [b.load_words(at); TV];
                    for (v, weights) in weights.iter_mut().enumerate().skip(1) {
                        *weights = b.load_words(at.add(v * lanes));
                    }
                    for (i, line) in tile.iter_mut().enumerate() {
                        let element = b.splat_word(*elements.add(2 * (step * MR + i) + pair));
                        for (sum, weights) in line.iter_mut().zip(weights) {
                            *sum = b.add_products(*sum, element, weights);
                        }
                    }
                }
            }
            sums.cast::<[[B::I32; TV]; MR]>().write_unaligned(tile);
        }
    }
}
