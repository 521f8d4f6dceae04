//! Rounding of the rows of a tile, where an instruction set makes vectors of words.
//!
//! A row of words is a vector of them after the other, and the words of a tile lie `[steps][rows]`: a few rows are
//! rounded side by side, and what comes of each vector turned. Each row is read twice, for its largest magnitude and to
//! be rounded: so few that the second time they are in the first-level cache.

use super::activation_bits::Rounding;
use super::row_reader::Row;
use crate::matrix::Matrix;
use crate::simd::MAX_LANES;
use crate::simd::quantize::{LINES, Round};

/// Elements of a row that make a vector of words, at most.
const GROUP: usize = 4 * MAX_LANES;

/// What words are made of four vectors of integers. Implementations are `#[inline(always)]`.
pub(super) trait Words<const N: usize> {
    /// Those of zeros.
    const ZEROS: [u32; N];
    fn make<R: Round>(&self, r: R, x: [R::F32; 4]) -> [R::F32; N];
}

/// Bytes that are 128 higher.
pub(super) struct Bytes;

impl Words<1> for Bytes {
    const ZEROS: [u32; 1] = [0x8080_8080];
    #[inline(always)]
    fn make<R: Round>(&self, r: R, x: [R::F32; 4]) -> [R::F32; 1] {
        [r.bytes(x)]
    }
}

/// The high bytes of what is 32,768 higher, and the low bytes.
pub(super) struct Digits;

impl Words<2> for Digits {
    const ZEROS: [u32; 2] = [0x8080_8080, 0];
    #[inline(always)]
    fn make<R: Round>(&self, r: R, x: [R::F32; 4]) -> [R::F32; 2] {
        r.digits(x)
    }
}

/// Pairs of 16 bits.
pub(super) struct Pairs;

impl Words<2> for Pairs {
    const ZEROS: [u32; 2] = [0; 2];
    #[inline(always)]
    fn make<R: Round>(&self, r: R, x: [R::F32; 4]) -> [R::F32; 2] {
        r.pairs(x)
    }
}

/// Rounds the rows of `x` from `first_row` on to `words`, `N` for each four elements, of a tile of as many rows as
/// there are `scales`, to integers up to `levels`.
#[inline(always)]
pub(super) fn round_tile<R: Round, W: Words<N>, const N: usize>(
    s: R,
    kind: &W,
    (x, first_row): (&Matrix<'_>, usize),
    levels: i32,
    words: &mut [f32],
    scales: &mut [f32],
) {
    const { assert!(LINES.is_multiple_of(N)) };
    let lines = scales.len() * N;
    assert!(words.len() == x.columns().div_ceil(4) * lines);
    // What is written behind the last rows of a step belongs to the first ones of the next, which come later.
    for (group, scales) in scales.chunks_mut(LINES / N).enumerate().rev() {
        let place = group * LINES;
        round_rows(
            s,
            kind,
            (x, first_row + group * (LINES / N)),
            levels,
            (words, place, lines),
            scales,
        );
    }
}

/// [`round_tile`] for rows whose words are up to [`LINES`] of `lines`, those from `place` on.
#[inline(always)]
fn round_rows<R: Round, W: Words<N>, const N: usize>(
    s: R,
    kind: &W,
    (x, first_row): (&Matrix<'_>, usize),
    levels: i32,
    (words, place, lines): (&mut [f32], usize, usize),
    scales: &mut [f32],
) {
    let (lanes, depth, own) = (R::LANES, x.columns(), scales.len() * N);
    assert!(own <= LINES && place + own <= lines);
    let mut room = [0.0; GROUP];
    let mut inverses = [None; LINES];
    let mut plain = x.column_stride() == 1;
    for (i, scale) in scales.iter_mut().enumerate() {
        let largest = largest(s, Row::new(x, first_row + i), &mut room);
        let rounding = Rounding::new(largest, levels);
        (*scale, inverses[i]) = (rounding.scale, rounding.inverse);
        plain &= rounding.inverse.is_some();
    }
    let start = x.as_ptr().wrapping_add(first_row * x.row_stride());
    for first in (0..depth).step_by(4 * lanes) {
        let whole = plain && depth - first >= 4 * lanes;
        let mut made = [s.splat(0.0); LINES];
        for (i, made) in made.chunks_exact_mut(N).enumerate().take(scales.len()) {
            let Some(inverse) = inverses[i] else {
                for (made, &zeros) in made.iter_mut().zip(&W::ZEROS) {
                    *made = s.splat(f32::from_bits(zeros));
                }
                continue;
            };
            let from = if whole {
                start.wrapping_add(i * x.row_stride() + first)
            } else {
                Row::new(x, first_row + i).place(first, 4 * lanes, &mut room)
            };
            let inverse = s.splat(inverse);
            let mut x = [inverse; 4];
            for (v, x) in x.iter_mut().enumerate() {
                // SAFETY: four vectors of the row, or of the room.
                *x = s.mul(unsafe { s.load(from.add(v * lanes)) }, inverse);
            }
            made.copy_from_slice(&kind.make(s, x));
        }
        let words = &mut words[first / 4 * lines..];
        let count = ((depth - first).div_ceil(4)).min(lanes);
        if lines == 1 {
            // SAFETY: there are `count` words more.
            unsafe { s.store_prefix(words.as_mut_ptr(), s.in_order(made[0]), count) };
        } else if count == lanes && (lanes - 1) * lines + place + LINES <= words.len() {
            // SAFETY: all of it fits the words.
            unsafe { s.store_columns(made, words.as_mut_ptr().add(place), lines) };
        } else {
            let mut columns = [0.0; LINES * MAX_LANES];
            // SAFETY: there is room for as many columns as lanes.
            unsafe { s.store_columns(made, columns.as_mut_ptr(), LINES) };
            for (step, column) in columns.chunks_exact(LINES).enumerate().take(count) {
                words[step * lines + place..][..own].copy_from_slice(&column[..own]);
            }
        }
    }
}

/// The bits of the largest magnitude of a row.
#[inline(always)]
fn largest<R: Round>(s: R, row: Row, room: &mut [f32; GROUP]) -> i32 {
    let lanes = R::LANES;
    let mut largest = [s.none(); 4];
    for first in (0..row.depth).step_by(4 * lanes) {
        let from = row.place(first, 4 * lanes, room);
        for (v, largest) in largest.iter_mut().enumerate() {
            // SAFETY: four vectors of the row, or of the room.
            *largest = s.larger(*largest, unsafe { s.load(from.add(v * lanes)) });
        }
    }
    s.largest(largest)
}
