//! Where rounded rows lie, and how they get there.
//!
//! The rows of a tile lie side by side, `[steps][rows of the tile]`, so that a tile reads them in one
//! direction. An element of a step is a word of four bytes, or two words, as the instruction set wants
//! them; behind all tiles is one scale a row.

use super::rounding::{Rounding, RowPrecision, magnitude, round};
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

/// Elements that are rounded together.
const GROUP: usize = 16;

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
    fn run<B: Bytes, const NV: usize, const TV: usize>(self, _: B) {
        let Self { x, precision, layout, tiles, words, scales } = self;
        let all = layout.tiles(x.rows());
        let steps = x.columns().div_ceil(4);
        let levels = precision.levels(x.columns());
        let first = share(x.rows(), all, tiles.start).start;
        for tile in tiles {
            let rows = share(x.rows(), all, tile);
            let from = (rows.start - first) * steps * layout.words;
            let words = &mut words[from..][..rows.len() * steps * layout.words];
            for (place, row) in rows.clone().enumerate() {
                let to = Place { words, place, height: rows.len() };
                scales[row - first] = quantise::<B>(Row::new(x, row), precision, levels, to);
            }
        }
    }
}

/// A row of a matrix.
#[derive(Clone, Copy)]
struct Row {
    at: *const f32,
    stride: usize,
    depth: usize,
}

impl Row {
    #[inline(always)]
    fn new(x: &Matrix<'_>, row: usize) -> Self {
        assert!(row < x.rows());
        let at = x.as_ptr().wrapping_add(row * x.row_stride());
        Self { at, stride: x.column_stride(), depth: x.columns() }
    }

    /// `N` elements from `first` on, zeros beyond the last.
    #[inline(always)]
    fn group<const N: usize>(self, first: usize) -> [f32; N] {
        if self.stride == 1 && first + N <= self.depth {
            // SAFETY: contiguous elements of a row that the view has.
            return unsafe { self.at.add(first).cast::<[f32; N]>().read_unaligned() };
        }
        let mut group = [0.0; N];
        for (i, x) in group.iter_mut().enumerate() {
            if first + i < self.depth {
                // SAFETY: an element of the row.
                *x = unsafe { *self.at.add((first + i) * self.stride) };
            }
        }
        group
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
        (Stored::Unsigned, RowPrecision::Eight) => words(row, rounding, to, bytes::<0x80>),
        (Stored::Signed, RowPrecision::Eight) => words(row, rounding, to, bytes::<0>),
        (Stored::Unsigned, RowPrecision::Sixteen) => words(row, rounding, to, unsigned_digits),
        (Stored::Signed, RowPrecision::Sixteen) => words(row, rounding, to, signed_digits),
        (Stored::Pairs, _) => words(row, rounding, to, pairs),
    }
    rounding.scale
}

/// Rounds a row, and stores what `pack` makes of each [`GROUP`]: `N` words for each of its four steps.
#[inline(always)]
fn words<const N: usize>(
    row: Row,
    rounding: Rounding,
    to: Place<'_>,
    pack: impl Fn([u16; GROUP]) -> [[u32; N]; GROUP / 4],
) {
    let Place { words, place, height } = to;
    for first in (0..row.depth).step_by(GROUP) {
        let mut rounded = [0u16; GROUP];
        if let Some(inverse) = rounding.inverse {
            for (to, x) in rounded.iter_mut().zip(row.group::<GROUP>(first)) {
                *to = round(x, inverse);
            }
        }
        let packed = pack(rounded);
        let words = &mut words[first / 4 * height * N..];
        if words.len() >= 4 * height * N {
            for (step, packed) in packed.into_iter().enumerate() {
                for (i, word) in packed.into_iter().enumerate() {
                    words[(step * height + place) * N + i] = f32::from_bits(word);
                }
            }
        } else {
            let places = words.chunks_exact_mut(height * N);
            for (words, packed) in places.zip(packed) {
                for (i, word) in packed.into_iter().enumerate() {
                    words[place * N + i] = f32::from_bits(word);
                }
            }
        }
    }
}

#[inline(always)]
fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Bytes with the bits of `FLIP` turned.
#[inline(always)]
fn bytes<const FLIP: u8>(rounded: [u16; GROUP]) -> [[u32; 1]; GROUP / 4] {
    let mut bytes = [0u8; GROUP];
    for (byte, x) in bytes.iter_mut().zip(rounded) {
        *byte = x as u8 ^ FLIP;
    }
    let mut words = [[0; 1]; GROUP / 4];
    for (to, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *to = [word(bytes)];
    }
    words
}

/// High and low bytes of what is given 32,768 higher.
#[inline(always)]
fn unsigned_digits(rounded: [u16; GROUP]) -> [[u32; 2]; GROUP / 4] {
    digits(rounded, 0x8000)
}

/// High and low bytes, both signed: the high one is of what rounds to it.
#[inline(always)]
fn signed_digits(rounded: [u16; GROUP]) -> [[u32; 2]; GROUP / 4] {
    digits(rounded, 0x80)
}

/// High bytes of what is given `higher`, and low ones.
#[inline(always)]
fn digits(rounded: [u16; GROUP], higher: u16) -> [[u32; 2]; GROUP / 4] {
    let (mut high, mut low) = ([0u8; GROUP], [0u8; GROUP]);
    for ((high, low), x) in high.iter_mut().zip(&mut low).zip(rounded) {
        *high = (x.wrapping_add(higher) >> 8) as u8;
        *low = x as u8;
    }
    let mut words = [[0; 2]; GROUP / 4];
    let pairs = high.chunks_exact(4).zip(low.chunks_exact(4));
    for (to, (high, low)) in words.iter_mut().zip(pairs) {
        *to = [word(high), word(low)];
    }
    words
}

/// Elements of 16 bits: the first and the third of each four, the second and the fourth.
#[inline(always)]
fn pairs(rounded: [u16; GROUP]) -> [[u32; 2]; GROUP / 4] {
    let mut words = [[0; 2]; GROUP / 4];
    for (to, four) in words.iter_mut().zip(rounded.chunks_exact(4)) {
        let pair = |first: u16, second: u16| u32::from(first) | u32::from(second) << 16;
        *to = [pair(four[0], four[2]), pair(four[1], four[3])];
    }
    words
}
