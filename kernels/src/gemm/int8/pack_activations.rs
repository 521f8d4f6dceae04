//! The layout of quantized activations, and the quantization into it.
//!
//! The rows of a tile are interleaved, `[steps][rows of the tile]`, so that a tile reads them in order. An element of a
//! step is one word of four bytes, or two words, depending on the instruction set. One scale per row follows all tiles.
//! For AMX blocks the rows are stored one after another instead, `[rows][steps]`, or with 16 bits
//! `[rows][high and low][steps]`. For I8MM pairs, a tile interleaves two rows, or the high and the low bytes of one
//! row, in groups of two steps: `[steps / 2][pairs of the tile][2][2 steps]`, and for a remaining step
//! `[pairs of the tile][2]`.

use super::quantization::{Quantization, Rounding, magnitude, round};
use super::quantize_tile::{self, Row, round_tile};
#[cfg(any(vectors = "x86_64", test))]
use crate::arch::x86_64::amx_tile;
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::share;
use crate::simd::int8::{Int8Dot, SimdI32};
use crate::simd::matrix_unit::MatrixUnit;
use crate::simd::simd_op;
use crate::simd::u8_activations::{ActivationEncoding, U8_OFFSET};
use core::ops::Range;

/// The layout of rows for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Rows of the tallest tile.
    pub(super) tall: usize,
    /// Words of a row per step of four elements.
    pub(super) words: usize,
    /// Rows of a unit. Tiles have whole units; the last unit is padded with rows of zeros.
    pub(super) unit: usize,
}

/// Rows from which a CPU with AMX uses blocks. With fewer rows a block multiplies data in the L1 cache up to eight
/// times as fast as VNNI. But with about 16 to 30 rows, reading the weights from an outer cache takes as long as the
/// whole VNNI product.
#[cfg(any(vectors = "x86_64", test))]
pub(super) const MIN_BLOCK_ROWS: usize = 32;

/// Steps from which blocks are used: those of a tile.
#[cfg(any(vectors = "x86_64", test))]
pub(super) const MIN_BLOCK_STEPS: usize = amx_tile::SIDE;

/// Rows from which a CPU with I8MM uses pairs. With fewer rows, reading the weights takes most of the time.
#[cfg(vectors = "aarch64")]
const MIN_PAIR_ROWS: usize = 8;

/// Pairs of the tallest tile. Its sums take 24 registers (four per pair, for two vectors of columns) and its weights
/// take four.
#[cfg(vectors = "aarch64")]
pub(super) const MAX_TILE_PAIRS: usize = 6;

/// Largest number of words of a row per step of four elements.
pub(super) const MAX_WORDS: usize = 2;

impl Layout {
    pub(super) fn new(isa: Isa, precision: Quantization) -> Self {
        isa.dispatch_bytes(layout(precision, false))
    }

    /// The layout of 8-bit rows in tiles that are multiplied by whole panels.
    pub(super) fn of_panels(isa: Isa) -> Self {
        isa.dispatch_bytes(layout(Quantization::W8A8, true))
    }

    /// The layout of rows for a matrix unit, if it supports a product of that shape.
    #[cfg_attr(not(vectors = "x86_64"), allow(unused_variables))]
    pub(super) fn for_matrix_unit(
        matrices: MatrixUnit,
        rows: usize,
        depth: usize,
        precision: Quantization,
    ) -> Option<Self> {
        match matrices {
            #[cfg(vectors = "x86_64")]
            MatrixUnit::Amx(_) => Self::of_blocks(rows, depth, precision),
            #[cfg(vectors = "aarch64")]
            MatrixUnit::Neon(_) => Self::of_pairs(rows, precision),
        }
    }

    /// The layout of rows for pairs, if a product of that many rows uses pairs.
    #[cfg(vectors = "aarch64")]
    fn of_pairs(rows: usize, precision: Quantization) -> Option<Self> {
        (rows >= MIN_PAIR_ROWS).then_some(match precision {
            Quantization::W8A8 => Self { tall: 2 * MAX_TILE_PAIRS, words: 1, unit: 2 },
            Quantization::W8A16 => Self { tall: MAX_TILE_PAIRS, words: 2, unit: 1 },
        })
    }

    /// The rows of some tiles, out of `rows` rows.
    #[inline(always)]
    pub(super) fn rows_of(self, rows: usize, tiles: Range<usize>) -> Range<usize> {
        let (all, units) = (self.tiles(rows), rows.div_ceil(self.unit));
        let first = |tile: usize| (share(units, all, tile).start * self.unit).min(rows);
        first(tiles.start)..first(tiles.end)
    }

    /// The layout of rows for blocks, if a product of that shape uses blocks: the last step reads whole tiles of
    /// weights, and every block reads whole tiles of rows.
    #[cfg(any(vectors = "x86_64", test))]
    #[inline(always)]
    pub(super) fn of_blocks(rows: usize, depth: usize, precision: Quantization) -> Option<Self> {
        let fits = rows >= MIN_BLOCK_ROWS && depth.div_ceil(4) >= MIN_BLOCK_STEPS;
        fits.then_some(match precision {
            Quantization::W8A8 => Self { tall: 2 * amx_tile::SIDE, words: 1, unit: 1 },
            Quantization::W8A16 => Self { tall: amx_tile::SIDE, words: 2, unit: 1 },
        })
    }

    /// Number of tiles of `rows` rows.
    #[inline(always)]
    pub(super) const fn tiles(self, rows: usize) -> usize {
        rows.div_ceil(self.tall)
    }
}

simd_op!(
    /// [`Layout::new`] and [`Layout::of_panels`].
    fn layout<B: Int8Dot, const NV: usize, const TV: usize>(
        _b: B,
        precision: Quantization,
        whole_panels: bool,
    ) -> Layout {
        let tall = if whole_panels { B::ROWS } else { B::TALL };
        match (B::STORED, precision) {
            (ActivationEncoding::Pairs, _) => Layout { tall, words: 2, unit: 1 },
            (_, Quantization::W8A8) => Layout { tall, words: 1, unit: 1 },
            (_, Quantization::W8A16) => Layout { tall: tall / 2, words: 2, unit: 1 },
        }
    }
);

/// Elements that are quantized together: more than the compiler unrolls, so that it vectorizes the loop.
const GROUP: usize = 128;

/// Steps of a group.
const STEPS: usize = GROUP / 4;

/// Independent maxima of a row, which are combined at the end of the row.
const CHAINS: usize = 64;

/// The rows of some tiles to quantize.
pub(super) struct Quantize<'r, 'a> {
    pub(super) x: &'r Matrix<'a>,
    pub(super) precision: Quantization,
    pub(super) layout: Layout,
    /// The range among all tiles.
    pub(super) tiles: Range<usize>,
    /// For the rows of these tiles.
    pub(super) words: &'r mut [f32],
    /// For the rows of these tiles.
    pub(super) scales: &'r mut [f32],
}

simd_op!(
    /// Quantizes for vector tiles.
    pub(super) fn quantize_tiles<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        job: Quantize<'_, '_>,
    ) {
        let Quantize { x, precision, layout, tiles, words, scales } = job;
        let all = layout.tiles(x.rows());
        let steps = x.columns().div_ceil(4);
        let levels = precision.levels(x.columns());
        let first = share(x.rows(), all, tiles.start).start;
        for tile in tiles {
            let rows = share(x.rows(), all, tile);
            let from = (rows.start - first) * steps * layout.words;
            let words = &mut words[from..][..rows.len() * steps * layout.words];
            if let Some(s) = b.sums().rounds() {
                let scales = &mut scales[rows.start - first..rows.end - first];
                let from = (x, rows.start);
                match (B::STORED, precision) {
                    (ActivationEncoding::Pairs, _) => {
                        round_tile(s, &quantize_tile::PairWords, from, levels, words, scales)
                    }
                    (_, Quantization::W8A8) => {
                        round_tile(s, &quantize_tile::ByteWords, from, levels, words, scales);
                    }
                    (_, Quantization::W8A16) => {
                        round_tile(s, &quantize_tile::DigitWords, from, levels, words, scales);
                    }
                }
                continue;
            }
            // Rows are interleaved with the other rows of their tile.
            let (height, of_step) = (rows.len(), layout.words);
            for (place, row) in rows.enumerate() {
                let at = |step, word| (step * height + place) * of_step + word;
                // SAFETY: `at` is a sum of multiples of its arguments.
                let scale = unsafe {
                    quantize::<B>(Row::new(x, row), precision, levels, (&mut *words, at))
                };
                scales[row - first] = scale;
            }
        }
    }
);

simd_op!(
    /// Quantizes for blocks, where rows are stored one after another.
    #[cfg(any(vectors = "x86_64", test))]
    pub(super) fn quantize_by_row<B: Int8Dot, const NV: usize, const TV: usize>(
        b: B,
        job: Quantize<'_, '_>,
    ) {
        const { assert!(matches!(B::STORED, ActivationEncoding::Unsigned)) };
        let Quantize { x, precision, layout, tiles, words, scales } = job;
        let all = layout.tiles(x.rows());
        let steps = x.columns().div_ceil(4);
        let levels = precision.levels(x.columns());
        let first = share(x.rows(), all, tiles.start).start;
        let of_rows = words.chunks_exact_mut(steps * layout.words);
        for (i, (words, scale)) in of_rows.zip(scales).enumerate() {
            if let (Some(s), Quantization::W8A8) = (b.sums().rounds(), precision) {
                let scale = core::slice::from_mut(scale);
                round_tile(s, &quantize_tile::ByteWords, (x, first + i), levels, words, scale);
                continue;
            }
            // The first words of all steps, then the second words.
            let at = |step, word| word * steps + step;
            // SAFETY: `at` is a sum of multiples of its arguments, and `step` is below `steps`.
            *scale =
                unsafe { quantize::<B>(Row::new(x, first + i), precision, levels, (words, at)) };
        }
    }
);

simd_op!(
    /// Quantizes for pairs.
    #[cfg(vectors = "aarch64")]
    pub(super) fn quantize_by_pair<B: Int8Dot, const NV: usize, const TV: usize>(
        _b: B,
        job: Quantize<'_, '_>,
    ) {
        const { assert!(matches!(B::STORED, ActivationEncoding::Signed)) };
        let Quantize { x, precision, layout, tiles, mut words, mut scales } = job;
        let steps = x.columns().div_ceil(4);
        let levels = precision.levels(x.columns());
        for tile in tiles {
            let rows = layout.rows_of(x.rows(), tile..tile + 1);
            let pairs = rows.len().div_ceil(layout.unit);
            let (own, rest) = words.split_at_mut(pairs * 2 * steps);
            if rows.len() < pairs * layout.unit {
                // The second row of the last pair does not exist.
                own.fill(0.0);
            }
            let (own_scales, rest_scales) = scales.split_at_mut(rows.len());
            for (i, (row, scale)) in rows.zip(own_scales).enumerate() {
                // A row is interleaved with the other row of its pair, or its high bytes are with its low bytes, in groups
                // of two steps.
                let (pair, member) = (i / layout.unit, i % layout.unit);
                let at = |step: usize, word| match step / 2 < steps / 2 {
                    true => (step / 2 * pairs + pair) * 4 + 2 * (member + word) + step % 2,
                    false => steps / 2 * pairs * 4 + 2 * pair + member + word,
                };
                // SAFETY: the places of an odd last step are after all others.
                *scale =
                    unsafe { quantize::<B>(Row::new(x, row), precision, levels, (&mut *own, at)) };
            }
            (words, scales) = (rest, rest_scales);
        }
    }
);

/// Quantizes a row, and returns its scale. `to` is the destination of its words, and the position there of each step and
/// word.
///
/// # Safety
/// The position does not decrease when the step or the word increases.
#[inline(always)]
unsafe fn quantize<B: Int8Dot>(
    row: Row,
    precision: Quantization,
    levels: i32,
    to: (&mut [f32], impl Fn(usize, usize) -> usize),
) -> f32 {
    let mut chains = [0i32; CHAINS];
    for first in (0..row.depth).step_by(CHAINS) {
        let group = row.group::<CHAINS>(first);
        for (largest, x) in chains.iter_mut().zip(group) {
            *largest = magnitude(x).max(*largest);
        }
    }
    let largest = chains.into_iter().fold(0, i32::max);
    let rounding = Rounding::new(largest, levels);
    // SAFETY: the caller's contract.
    unsafe {
        match (B::STORED, precision) {
            (ActivationEncoding::Signed, Quantization::W8A8) => words(row, rounding, to, &Bytes8),
            // With signed bytes: the high byte of the rounded value, and the low byte as a signed value. With unsigned
            // bytes: the high and low bytes of the value plus an offset.
            (ActivationEncoding::Signed, Quantization::W8A16) => {
                words(row, rounding, to, &HighAndLow(0x80));
            }
            (ActivationEncoding::Unsigned, Quantization::W8A16) => {
                words(row, rounding, to, &HighAndLow(256 * U8_OFFSET as u16));
            }
            _ => unreachable!("`SimdI32::rounds` has a token for these words"),
        }
    }
    rounding.scale
}

/// Packs integers into words.
trait Pack<const N: usize> {
    /// Makes `N` words of each four integers. Implementations are `#[inline(always)]`.
    fn pack(&self, rounded: &[u16; GROUP], words: &mut [[u32; STEPS]; N]);
}

/// Quantizes a row, and stores `N` words for each of its steps.
///
/// # Safety
/// As [`quantize`].
#[inline(always)]
unsafe fn words<const N: usize>(
    row: Row,
    rounding: Rounding,
    (to, place): (&mut [f32], impl Fn(usize, usize) -> usize),
    pack: &impl Pack<N>,
) {
    let steps = row.depth.div_ceil(4);
    assert!(steps == 0 || place(steps - 1, N - 1) < to.len());
    let mut rounded = [0u16; GROUP];
    let mut packed = [[0u32; STEPS]; N];
    for first in (0..row.depth).step_by(GROUP) {
        if let Some(inverse) = rounding.inverse {
            let group = row.group::<GROUP>(first);
            for (to, x) in rounded.iter_mut().zip(group) {
                *to = round(x, inverse);
            }
        }
        pack.pack(&rounded, &mut packed);
        let first = first / 4;
        for step in 0..(steps - first).min(STEPS) {
            for (i, words) in packed.iter().enumerate() {
                let at = place(first + step, i);
                // SAFETY: `first + step < steps` and `i < N`, so this is not after the last word, which is inside by the
                // assertion above.
                unsafe { *to.get_unchecked_mut(at) = f32::from_bits(words[step]) };
            }
        }
    }
}

/// 8-bit values.
struct Bytes8;

impl Pack<1> for Bytes8 {
    #[inline(always)]
    fn pack(&self, rounded: &[u16; GROUP], [words]: &mut [[u32; STEPS]; 1]) {
        let mut bytes = [0u8; GROUP];
        for (byte, x) in bytes.iter_mut().zip(rounded) {
            *byte = *x as u8;
        }
        join(&bytes, words);
    }
}

/// The high bytes after adding a constant, and the low bytes.
struct HighAndLow(u16);

impl Pack<2> for HighAndLow {
    #[inline(always)]
    fn pack(&self, rounded: &[u16; GROUP], [high, low]: &mut [[u32; STEPS]; 2]) {
        let mut bytes = [0u8; GROUP];
        for (byte, x) in bytes.iter_mut().zip(rounded) {
            *byte = (x.wrapping_add(self.0) >> 8) as u8;
        }
        join(&bytes, high);
        for (byte, x) in bytes.iter_mut().zip(rounded) {
            *byte = *x as u8;
        }
        join(&bytes, low);
    }
}

/// Packs bytes into words of four.
#[inline(always)]
fn join(bytes: &[u8; GROUP], words: &mut [u32; STEPS]) {
    for (word, four) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    }
}
