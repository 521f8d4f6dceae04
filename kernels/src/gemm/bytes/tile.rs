//! Rounding of the rows of a tile side by side, where an instruction set makes vectors of words.
//!
//! A row of words is a vector of them after the other, and the words of a tile lie `[steps][rows]`: so a square
//! of words is made, one row after the other, and turned. Each row is read twice, for its largest magnitude
//! and to be rounded, and the words are written in one direction.

use super::rounding::Rounding;
use super::source::Row;
use crate::lanes::rounds::{Round, word_of};
use crate::lanes::{Lanes, MAX_LANES};
use crate::matrix::Matrix;
use core::mem::MaybeUninit;

/// Elements of a row that make a vector of words, at most.
const GROUP: usize = 4 * MAX_LANES;

/// A vector of words for each row of a tile.
#[repr(align(64))]
struct Square(MaybeUninit<[f32; MAX_LANES * MAX_LANES]>);

/// Rounds the rows of `x` from `first_row` on to `words`, those of a tile of as many rows as there are `scales`, to
/// integers up to `levels`, of so many bytes.
#[inline(always)]
pub(super) fn round_tile<R: Round, const DIGITS: usize>(
    r: R,
    (x, first_row): (&Matrix<'_>, usize),
    levels: i32,
    words: &mut [f32],
    scales: &mut [f32],
) {
    let s = r.lanes();
    let (lanes, height, depth) = (R::Lanes::LANES, scales.len(), x.columns());
    let (lines, steps) = (height * DIGITS, depth.div_ceil(4));
    assert!((1..=lanes).contains(&lines) && words.len() == steps * lines);
    let mut room = [0.0; GROUP];
    let mut inverses = [None; MAX_LANES];
    let mut plain = x.column_stride() == 1;
    for place in 0..height {
        let largest = largest(r, Row::new(x, first_row + place), &mut room);
        let rounding = Rounding::new(largest, levels);
        (scales[place], inverses[place]) = (rounding.scale, rounding.inverse);
        plain &= rounding.inverse.is_some();
    }
    let start = x.as_ptr().wrapping_add(first_row * x.row_stride());
    let (mut square, mut turned) = (Square(MaybeUninit::uninit()), Square(MaybeUninit::uninit()));
    if lines > 1 {
        // Lines of rows that the tile has not.
        square.0.write([0.0; MAX_LANES * MAX_LANES]);
    }
    let square = square.0.as_mut_ptr().cast::<f32>();
    let turned = turned.0.as_mut_ptr().cast::<f32>();
    for first in (0..depth).step_by(4 * lanes) {
        let whole = plain && depth - first >= 4 * lanes;
        let count = (steps - first / 4).min(lanes);
        let words = &mut words[first / 4 * lines..];
        for place in 0..height {
            // Zeros, in bytes that are 128 higher or the high ones; the low ones are no higher.
            let mut made = [s.splat(f32::from_bits(0x8080_8080)), s.splat(0.0)];
            if let Some(inverse) = inverses[place] {
                let from = if whole {
                    start.wrapping_add(place * x.row_stride() + first)
                } else {
                    Row::new(x, first_row + place).place(first, 4 * lanes, &mut room)
                };
                let inverse = s.splat(inverse);
                let mut x = [inverse; 4];
                for (v, x) in x.iter_mut().enumerate() {
                    // SAFETY: four vectors of the row, or of the room.
                    *x = s.mul(unsafe { s.load(from.add(v * lanes)) }, inverse);
                }
                if DIGITS == 1 {
                    made[0] = r.bytes(x);
                } else {
                    made = r.digits(x);
                }
            }
            if lines == 1 {
                // SAFETY: there are `count` words more.
                unsafe { s.store_first(words.as_mut_ptr(), r.in_order(made[0]), count) };
            }
            for (digit, &words) in made[..DIGITS].iter().enumerate() {
                // SAFETY: a line of the square, which has as many as lanes.
                unsafe { s.store(square.add((place * DIGITS + digit) * lanes), words) };
            }
        }
        if lines == 1 {
            continue;
        }
        // SAFETY: two squares, apart from each other; the first one was written.
        unsafe { s.transpose(square, lanes, turned, lanes) };
        let to = words.as_mut_ptr();
        // What is written behind the words of a step belongs to the next one, which comes after it.
        if count == lanes && (lanes - 1) * lines + lanes <= words.len() {
            for step in 0..lanes {
                // SAFETY: a line of the square; all of it fits the words.
                unsafe {
                    s.store(to.add(step * lines), s.load(turned.add(word_of(step, lanes) * lanes)))
                };
            }
        } else {
            for step in 0..count {
                let room = lanes.min(words.len() - step * lines);
                // SAFETY: a line of the square; words of the tile.
                unsafe {
                    let x = s.load(turned.add(word_of(step, lanes) * lanes));
                    let to = to.add(step * lines);
                    if room == lanes {
                        s.store(to, x);
                    } else {
                        s.store_first(to, x, room);
                    }
                }
            }
        }
    }
}

/// The bits of the largest magnitude of a row.
#[inline(always)]
fn largest<R: Round>(r: R, row: Row, room: &mut [f32; GROUP]) -> i32 {
    let s = r.lanes();
    let lanes = R::Lanes::LANES;
    let mut largest = [r.none(); 4];
    for first in (0..row.depth).step_by(4 * lanes) {
        let from = row.place(first, 4 * lanes, room);
        for (v, largest) in largest.iter_mut().enumerate() {
            // SAFETY: four vectors of the row, or of the room.
            *largest = r.larger(*largest, unsafe { s.load(from.add(v * lanes)) });
        }
    }
    r.largest(largest)
}
