//! Where rounded rows lie, and how they get there.
//!
//! The rows of a tile lie side by side, `[steps][rows of the tile]`, so that a tile reads them in one
//! direction. An element of a step is a word of four bytes, or two words, as the instruction set wants
//! them; behind all tiles is one scale a row. For blocks, which AMX multiplies, they lie one after the other
//! instead, `[rows][steps]`, or of 16 bits `[rows][high and low][steps]`. For pairs, which I8MM multiplies, a tile
//! has two rows side by side, or the high and the low bytes of one, and two steps:
//! `[steps / 2][pairs of the tile][2][2 steps]`, and of a step that is left over `[pairs of the tile][2]`.

use super::activation_bits::{ActivationBits, Rounding, magnitude, round};
use super::quantize_tile::{self, round_tile};
use super::row_reader::Row;
#[cfg(any(target_arch = "x86_64", test))]
use crate::arch::x86_64::amx_tile;
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::share;
use crate::simd::int8::{ActivationEncoding, Int8Dot, Int8Op};
use crate::simd::matrix_unit::MatrixUnit;
use core::ops::Range;

/// How rows lie for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Rows of the tallest tile.
    pub(super) tall: usize,
    /// Words of a row for each four elements.
    pub(super) words: usize,
    /// Rows that belong together: tiles have whole ones, the last of zeros where there is no row.
    pub(super) unit: usize,
}

/// Rows from which a product on a CPU with AMX is done in blocks. Blocks of fewer rows multiply up to eight times as fast as
/// VNNI what is in the first-level cache, but reading weights from an outer one takes as long as VNNI multiplies
/// them with some 16 to 30 rows.
#[cfg(any(target_arch = "x86_64", test))]
pub(super) const FEWEST_ROWS: usize = 32;

/// Steps from which a product is done in blocks: those of a tile.
#[cfg(any(target_arch = "x86_64", test))]
pub(super) const FEWEST_STEPS: usize = amx_tile::SIDE;

/// Rows from which a product on a CPU with I8MM is done in pairs. Of fewer, reading the weights takes longest.
#[cfg(target_arch = "aarch64")]
const FEWEST_ROWS_OF_PAIRS: usize = 8;

/// Pairs of the tallest tile: with half a vector of columns each, 24 registers of sums beside four of weights.
#[cfg(target_arch = "aarch64")]
pub(super) const TALL_PAIRS: usize = 6;

/// Most words of a row for each four elements.
pub(super) const MOST_WORDS: usize = 2;

impl Layout {
    pub(super) fn new(isa: Isa, precision: ActivationBits) -> Self {
        isa.dispatch_bytes(Of(precision))
    }

    /// How rows lie for what multiplies matrices, if a product of that shape is a matter for it.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub(super) fn of(
        matrices: MatrixUnit,
        rows: usize,
        depth: usize,
        precision: ActivationBits,
    ) -> Option<Self> {
        match matrices {
            #[cfg(target_arch = "x86_64")]
            MatrixUnit::Amx(_) => Self::of_blocks(rows, depth, precision),
            #[cfg(target_arch = "aarch64")]
            MatrixUnit::Neon(_) => Self::of_pairs(rows, precision),
        }
    }

    /// How rows lie for pairs, and whether a product of so many is done in pairs.
    #[cfg(target_arch = "aarch64")]
    fn of_pairs(rows: usize, precision: ActivationBits) -> Option<Self> {
        (rows >= FEWEST_ROWS_OF_PAIRS).then_some(match precision {
            ActivationBits::Eight => Self { tall: 2 * TALL_PAIRS, words: 1, unit: 2 },
            ActivationBits::Sixteen => Self { tall: TALL_PAIRS, words: 2, unit: 1 },
        })
    }

    /// The rows of some tiles of so many rows.
    #[inline(always)]
    pub(super) fn rows_of(self, rows: usize, tiles: Range<usize>) -> Range<usize> {
        let (all, units) = (self.tiles(rows), rows.div_ceil(self.unit));
        let first = |tile: usize| (share(units, all, tile).start * self.unit).min(rows);
        first(tiles.start)..first(tiles.end)
    }

    /// How rows lie for blocks, and whether a product of that shape is done in blocks: its last step reads whole
    /// tiles, and all blocks whole tiles of rows.
    #[cfg(any(target_arch = "x86_64", test))]
    #[inline(always)]
    pub(super) fn of_blocks(rows: usize, depth: usize, precision: ActivationBits) -> Option<Self> {
        let fits = rows >= FEWEST_ROWS && depth.div_ceil(4) >= FEWEST_STEPS;
        fits.then_some(match precision {
            ActivationBits::Eight => Self { tall: 2 * amx_tile::SIDE, words: 1, unit: 1 },
            ActivationBits::Sixteen => Self { tall: amx_tile::SIDE, words: 2, unit: 1 },
        })
    }

    /// Tiles of so many rows.
    #[inline(always)]
    pub(super) const fn tiles(self, rows: usize) -> usize {
        rows.div_ceil(self.tall)
    }
}

/// [`Layout::new`].
struct Of(ActivationBits);

impl Int8Op for Of {
    type Output = Layout;

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, _: B) -> Layout {
        match (B::STORED, self.0) {
            (ActivationEncoding::Pairs, _) => Layout { tall: B::TALL, words: 2, unit: 1 },
            (_, ActivationBits::Eight) => Layout { tall: B::TALL, words: 1, unit: 1 },
            (_, ActivationBits::Sixteen) => Layout { tall: B::TALL / 2, words: 2, unit: 1 },
        }
    }
}

/// Elements that are rounded together: more than the compiler unrolls, so that it makes vectors of them.
const GROUP: usize = 128;

/// Steps of a group.
const STEPS: usize = GROUP / 4;

/// Largest magnitudes that are kept until the end of a row, for as many chains.
const CHAINS: usize = 64;

/// Rounds the rows of some tiles.
pub(super) struct Quantize<'r, 'a> {
    pub(super) x: &'r Matrix<'a>,
    pub(super) precision: ActivationBits,
    pub(super) layout: Layout,
    /// Of all tiles.
    pub(super) tiles: Range<usize>,
    /// Of these tiles' rows.
    pub(super) words: &'r mut [f32],
    /// Of these tiles' rows.
    pub(super) scales: &'r mut [f32],
}

impl Int8Op for Quantize<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, b: B) {
        let Self { x, precision, layout, tiles, words, scales } = self;
        let all = layout.tiles(x.rows());
        let steps = x.columns().div_ceil(4);
        let levels = precision.levels(x.columns());
        let first = share(x.rows(), all, tiles.start).start;
        for tile in tiles {
            let rows = share(x.rows(), all, tile);
            let from = (rows.start - first) * steps * layout.words;
            let words = &mut words[from..][..rows.len() * steps * layout.words];
            if let Some(s) = b.rounds() {
                let scales = &mut scales[rows.start - first..rows.end - first];
                let from = (x, rows.start);
                match (B::STORED, precision) {
                    (ActivationEncoding::Pairs, _) => {
                        round_tile(s, &quantize_tile::Pairs, from, levels, words, scales)
                    }
                    (_, ActivationBits::Eight) => {
                        round_tile(s, &quantize_tile::Bytes, from, levels, words, scales);
                    }
                    (_, ActivationBits::Sixteen) => {
                        round_tile(s, &quantize_tile::Digits, from, levels, words, scales);
                    }
                }
                continue;
            }
            for (place, row) in rows.clone().enumerate() {
                let to = InTile { words, place, height: rows.len() };
                scales[row - first] = quantize::<B, _>(Row::new(x, row), precision, levels, to);
            }
        }
    }
}

/// Rounds the rows of some tiles for blocks, where they lie one after the other.
#[cfg(any(target_arch = "x86_64", test))]
pub(super) struct ByRow<'r, 'a>(pub(super) Quantize<'r, 'a>);

#[cfg(any(target_arch = "x86_64", test))]
impl Int8Op for ByRow<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, b: B) {
        const { assert!(matches!(B::STORED, ActivationEncoding::Unsigned)) };
        let Quantize { x, precision, layout, tiles, words, scales } = self.0;
        let all = layout.tiles(x.rows());
        let steps = x.columns().div_ceil(4);
        let levels = precision.levels(x.columns());
        let first = share(x.rows(), all, tiles.start).start;
        let of_rows = words.chunks_exact_mut(steps * layout.words);
        for (i, (words, scale)) in of_rows.zip(scales).enumerate() {
            if let (Some(s), ActivationBits::Eight) = (b.rounds(), precision) {
                let scale = core::slice::from_mut(scale);
                round_tile(s, &quantize_tile::Bytes, (x, first + i), levels, words, scale);
                continue;
            }
            let to = InRow { words, steps };
            *scale = quantize::<B, _>(Row::new(x, first + i), precision, levels, to);
        }
    }
}

/// Rounds the rows of some tiles for pairs.
#[cfg(target_arch = "aarch64")]
pub(super) struct ByPair<'r, 'a>(pub(super) Quantize<'r, 'a>);

#[cfg(target_arch = "aarch64")]
impl Int8Op for ByPair<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, _: B) {
        const { assert!(matches!(B::STORED, ActivationEncoding::Signed)) };
        let Quantize { x, precision, layout, tiles, mut words, mut scales } = self.0;
        let steps = x.columns().div_ceil(4);
        let levels = precision.levels(x.columns());
        for tile in tiles {
            let rows = layout.rows_of(x.rows(), tile..tile + 1);
            let pairs = rows.len().div_ceil(layout.unit);
            let (own, rest) = words.split_at_mut(pairs * 2 * steps);
            if rows.len() < pairs * layout.unit {
                // A row that is none.
                own.fill(0.0);
            }
            let (own_scales, rest_scales) = scales.split_at_mut(rows.len());
            for (i, (row, scale)) in rows.zip(own_scales).enumerate() {
                let (pair, member) = (i / layout.unit, i % layout.unit);
                let to = InPair { words: own, pair, member, height: pairs, steps };
                *scale = quantize::<B, _>(Row::new(x, row), precision, levels, to);
            }
            (words, scales) = (rest, rest_scales);
        }
    }
}

/// Where the words of a row go. Implementations are `#[inline(always)]`.
///
/// # Safety
/// If there is room for some words of so many steps, [`Place::at`] is inside [`Place::words`] for all of them.
unsafe trait Place {
    /// Whether there is room for `words` words of each of `steps`, and no more.
    fn has(&self, steps: usize, words: usize) -> bool;
    /// Where word `word` of `words` goes, of step `step` of those.
    fn at(&self, step: usize, word: usize, words: usize) -> usize;
    /// What `at` counts in.
    fn words(&mut self) -> &mut [f32];
}

/// Beside the other rows of its tile.
struct InTile<'w> {
    /// Of the tile.
    words: &'w mut [f32],
    /// The row's place in its tile, and how many the tile has.
    place: usize,
    height: usize,
}

// SAFETY: step `step < steps`, place `place < height` and word `word < words` of a slice that has them all.
unsafe impl Place for InTile<'_> {
    #[inline(always)]
    fn has(&self, steps: usize, words: usize) -> bool {
        self.place < self.height && self.words.len() == steps * self.height * words
    }
    #[inline(always)]
    fn at(&self, step: usize, word: usize, words: usize) -> usize {
        (step * self.height + self.place) * words + word
    }
    #[inline(always)]
    fn words(&mut self) -> &mut [f32] {
        self.words
    }
}

/// By itself, the first words of all steps first.
#[cfg(any(target_arch = "x86_64", test))]
struct InRow<'w> {
    /// Of the row.
    words: &'w mut [f32],
    steps: usize,
}

#[cfg(any(target_arch = "x86_64", test))]
// SAFETY: word `word < words` of step `step < steps` of a slice that has them all.
unsafe impl Place for InRow<'_> {
    #[inline(always)]
    fn has(&self, steps: usize, words: usize) -> bool {
        steps == self.steps && self.words.len() == steps * words
    }
    #[inline(always)]
    fn at(&self, step: usize, word: usize, _: usize) -> usize {
        word * self.steps + step
    }
    #[inline(always)]
    fn words(&mut self) -> &mut [f32] {
        self.words
    }
}

/// Beside the other row of its pair, or its high bytes beside its low ones, two steps at a time.
#[cfg(target_arch = "aarch64")]
struct InPair<'w> {
    /// Of the tile.
    words: &'w mut [f32],
    /// The pair's place in its tile, which row of it this is, and how many the tile has.
    pair: usize,
    member: usize,
    height: usize,
    steps: usize,
}

#[cfg(target_arch = "aarch64")]
// SAFETY: pair `pair < height`, and of it one of two rows, of step `step < steps`, of a slice that has them all.
unsafe impl Place for InPair<'_> {
    #[inline(always)]
    fn has(&self, steps: usize, words: usize) -> bool {
        self.pair < self.height
            && self.member + words <= 2
            && steps == self.steps
            && self.words.len() == 2 * steps * self.height
    }
    #[inline(always)]
    fn at(&self, step: usize, word: usize, _: usize) -> usize {
        let of_pair = self.member + word;
        if step / 2 < self.steps / 2 {
            (step / 2 * self.height + self.pair) * 4 + 2 * of_pair + step % 2
        } else {
            self.steps / 2 * self.height * 4 + 2 * self.pair + of_pair
        }
    }
    #[inline(always)]
    fn words(&mut self) -> &mut [f32] {
        self.words
    }
}

/// Rounds a row, and returns its scale.
#[inline(always)]
fn quantize<B: Int8Dot, P: Place>(row: Row, precision: ActivationBits, levels: i32, to: P) -> f32 {
    let mut chains = [0i32; CHAINS];
    for first in (0..row.depth).step_by(CHAINS) {
        let group = row.group::<CHAINS>(first);
        for (largest, x) in chains.iter_mut().zip(group) {
            *largest = magnitude(x).max(*largest);
        }
    }
    let largest = chains.into_iter().fold(0, i32::max);
    let rounding = Rounding::new(largest, levels);
    match (B::STORED, precision) {
        (ActivationEncoding::Unsigned, ActivationBits::Eight) => {
            words(row, rounding, to, &Bytes8(0x80))
        }
        (ActivationEncoding::Signed, ActivationBits::Eight) => words(row, rounding, to, &Bytes8(0)),
        // High and low bytes of what is stored 32,768 higher; or both signed, the high one of what rounds to
        // it.
        (ActivationEncoding::Unsigned, ActivationBits::Sixteen) => {
            words(row, rounding, to, &Digits(0x8000))
        }
        (ActivationEncoding::Signed, ActivationBits::Sixteen) => {
            words(row, rounding, to, &Digits(0x80))
        }
        (ActivationEncoding::Pairs, _) => words(row, rounding, to, &Pairs),
    }
    rounding.scale
}

/// What words are made of integers.
trait Pack<const N: usize> {
    /// `N` words for each four integers. Implementations are `#[inline(always)]`.
    fn pack(&self, rounded: &[u16; GROUP], words: &mut [[u32; STEPS]; N]);
}

/// Rounds a row, and stores `N` words for each of its steps.
#[inline(always)]
fn words<const N: usize>(row: Row, rounding: Rounding, mut to: impl Place, pack: &impl Pack<N>) {
    let steps = row.depth.div_ceil(4);
    assert!(to.has(steps, N));
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
                let at = to.at(first + step, i, N);
                // SAFETY: step `first + step < steps` and word `i < N`, which there is room for.
                unsafe { *to.words().get_unchecked_mut(at) = f32::from_bits(words[step]) };
            }
        }
    }
}

/// Bytes, with some bits turned.
struct Bytes8(u8);

impl Pack<1> for Bytes8 {
    #[inline(always)]
    fn pack(&self, rounded: &[u16; GROUP], [words]: &mut [[u32; STEPS]; 1]) {
        let mut bytes = [0u8; GROUP];
        for (byte, x) in bytes.iter_mut().zip(rounded) {
            *byte = *x as u8 ^ self.0;
        }
        join(&bytes, words);
    }
}

/// The high bytes of what is given so much higher, and the low bytes.
struct Digits(u16);

impl Pack<2> for Digits {
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

/// Words of four bytes.
#[inline(always)]
fn join(bytes: &[u8; GROUP], words: &mut [u32; STEPS]) {
    for (word, four) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    }
}

/// Elements of 16 bits: the first and the third of each four, the second and the fourth.
struct Pairs;

impl Pack<2> for Pairs {
    #[inline(always)]
    fn pack(&self, rounded: &[u16; GROUP], [odd, even]: &mut [[u32; STEPS]; 2]) {
        for ((odd, even), four) in odd.iter_mut().zip(even).zip(rounded.chunks_exact(4)) {
            *odd = u32::from(four[0]) | u32::from(four[2]) << 16;
            *even = u32::from(four[1]) | u32::from(four[3]) << 16;
        }
    }
}
