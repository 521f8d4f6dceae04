//! Where rounded rows lie, and how they get there.
//!
//! The rows of a tile lie side by side, `[steps][rows of the tile]`, so that a tile reads them in one
//! direction. An element of a step is a word of four bytes, or two words, as the instruction set wants
//! them; behind all tiles is one scale a row.

use super::rounding::{Rounding, RowPrecision, magnitude, round};
use super::source::Row;
use super::tile::{self, round_tile};
use crate::isa::Isa;
use crate::lanes::bytes::{Bytes, BytesKernel, Stored};
use crate::matrix::Matrix;
use crate::parallel::share;
use core::ops::Range;

/// How rows lie for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Rows of the tallest tile.
    tall: usize,
    /// Words of a row for each four elements.
    pub(super) words: usize,
}

/// Most words of a row for each four elements.
pub(super) const MOST_WORDS: usize = 2;

impl Layout {
    pub(super) fn new(isa: Isa, precision: RowPrecision) -> Self {
        isa.dispatch_bytes(Of(precision))
    }

    /// Tiles of so many rows.
    #[inline(always)]
    pub(super) const fn tiles(self, rows: usize) -> usize {
        rows.div_ceil(self.tall)
    }
}

/// [`Layout::new`].
struct Of(RowPrecision);

impl BytesKernel for Of {
    type Output = Layout;

    #[inline(always)]
    fn run<B: Bytes, const NV: usize, const TV: usize>(self, _: B) -> Layout {
        match (B::STORED, self.0) {
            (Stored::Pairs, _) => Layout { tall: B::TALL, words: 2 },
            (_, RowPrecision::Eight) => Layout { tall: B::TALL, words: 1 },
            (_, RowPrecision::Sixteen) => Layout { tall: B::TALL / 2, words: 2 },
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
pub(super) struct Quantise<'r, 'a> {
    pub(super) x: &'r Matrix<'a>,
    pub(super) precision: RowPrecision,
    pub(super) layout: Layout,
    /// Of all tiles.
    pub(super) tiles: Range<usize>,
    /// Of these tiles' rows.
    pub(super) words: &'r mut [f32],
    /// Of these tiles' rows.
    pub(super) scales: &'r mut [f32],
}

impl BytesKernel for Quantise<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<B: Bytes, const NV: usize, const TV: usize>(self, b: B) {
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
                    (Stored::Pairs, _) => round_tile(s, &tile::Pairs, from, levels, words, scales),
                    (_, RowPrecision::Eight) => {
                        round_tile(s, &tile::Bytes, from, levels, words, scales);
                    }
                    (_, RowPrecision::Sixteen) => {
                        round_tile(s, &tile::Digits, from, levels, words, scales);
                    }
                }
                continue;
            }
            for (place, row) in rows.clone().enumerate() {
                let to = Place { words, place, height: rows.len() };
                scales[row - first] = quantise::<B>(Row::new(x, row), precision, levels, to);
            }
        }
    }
}

/// Where the words of a row go.
struct Place<'w> {
    /// Of the tile.
    words: &'w mut [f32],
    /// The row's place in its tile, and how many the tile has.
    place: usize,
    height: usize,
}

/// Rounds a row, and returns its scale.
#[inline(always)]
fn quantise<B: Bytes>(row: Row, precision: RowPrecision, levels: i32, to: Place<'_>) -> f32 {
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
        (Stored::Unsigned, RowPrecision::Eight) => words(row, rounding, to, &Bytes8(0x80)),
        (Stored::Signed, RowPrecision::Eight) => words(row, rounding, to, &Bytes8(0)),
        // High and low bytes of what is stored 32,768 higher; or both signed, the high one of what rounds to
        // it.
        (Stored::Unsigned, RowPrecision::Sixteen) => words(row, rounding, to, &Digits(0x8000)),
        (Stored::Signed, RowPrecision::Sixteen) => words(row, rounding, to, &Digits(0x80)),
        (Stored::Pairs, _) => words(row, rounding, to, &Pairs),
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
fn words<const N: usize>(row: Row, rounding: Rounding, to: Place<'_>, pack: &impl Pack<N>) {
    let Place { words: to, place, height } = to;
    let steps = row.depth.div_ceil(4);
    assert!(place < height && to.len() == steps * height * N);
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
                let at = ((first + step) * height + place) * N + i;
                // SAFETY: step `first + step < steps`, place `place < height` and word `i < N` of a slice
                // that has them all.
                unsafe { *to.get_unchecked_mut(at) = f32::from_bits(words[step]) };
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
