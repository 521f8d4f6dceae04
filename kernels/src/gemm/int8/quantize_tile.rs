//! Quantizes the rows of a tile, on instruction sets that pack words in vectors.
//!
//! Each row gives one vector of words after another, while a tile stores its words as `[steps][rows]`. So a few rows
//! are quantized together, and each group of vectors is transposed. Each row is read twice, once for its largest
//! magnitude and once for the quantization. The rows are so few that the second read hits the L1 cache.

use super::quantization::Rounding;
use crate::matrix::Matrix;
use crate::simd::MAX_LANES;
use crate::simd::quantize::{LINES, Round};

/// A row of a matrix.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    at: *const f32,
    stride: usize,
    pub(crate) depth: usize,
}

impl Row {
    #[inline(always)]
    pub(crate) fn new(x: &Matrix<'_>, row: usize) -> Self {
        assert!(row < x.rows());
        let at = x.as_ptr().wrapping_add(row * x.row_stride());
        Self { at, stride: x.column_stride(), depth: x.columns() }
    }

    /// `N` elements from `first` on, with zeros after the last element.
    #[inline(always)]
    pub(crate) fn group<const N: usize>(self, first: usize) -> [f32; N] {
        let count = (self.depth - first).min(N);
        if self.stride == 1 && count == N {
            // SAFETY: the stride is 1 and `first + N <= depth`, so the elements are contiguous and inside the row.
            return unsafe { self.at.add(first).cast::<[f32; N]>().read_unaligned() };
        }
        self.copied(first)
    }

    /// The address of `count` elements from `first` on, with zeros after the last element: in the row if they are
    /// contiguous, otherwise in `buffer`.
    #[inline(always)]
    pub(super) fn place<const N: usize>(
        self,
        first: usize,
        count: usize,
        buffer: &mut [f32; N],
    ) -> *const f32 {
        if self.stride == 1 && self.depth - first >= count {
            return self.at.wrapping_add(first);
        }
        *buffer = self.copied(first);
        buffer.as_ptr()
    }

    /// [`Row::group`], one element at a time.
    #[inline(never)]
    fn copied<const N: usize>(self, first: usize) -> [f32; N] {
        let mut group = [0.0; N];
        for (i, x) in group[..(self.depth - first).min(N)].iter_mut().enumerate() {
            // SAFETY: `first + i < depth`, so the element is inside the row.
            *x = unsafe { *self.at.add((first + i) * self.stride) };
        }
        group
    }
}

/// Largest number of elements that make one vector of words.
const GROUP: usize = 4 * MAX_LANES;

/// Packs four vectors of integers into words. Implementations are `#[inline(always)]`.
pub(super) trait Words<const N: usize> {
    fn make<R: Round>(&self, r: R, x: [R::F32; 4]) -> [R::F32; N];
}

/// 8-bit values plus [`U8_OFFSET`](crate::simd::u8_activations::U8_OFFSET).
pub(super) struct ByteWords;

impl Words<1> for ByteWords {
    #[inline(always)]
    fn make<R: Round>(&self, r: R, x: [R::F32; 4]) -> [R::F32; 1] {
        [r.bytes(x)]
    }
}

/// The high bytes of the values plus 32,768, and the low bytes.
pub(super) struct DigitWords;

impl Words<2> for DigitWords {
    #[inline(always)]
    fn make<R: Round>(&self, r: R, x: [R::F32; 4]) -> [R::F32; 2] {
        r.digits(x)
    }
}

/// Pairs of 16-bit values.
pub(super) struct PairWords;

impl Words<2> for PairWords {
    #[inline(always)]
    fn make<R: Round>(&self, r: R, x: [R::F32; 4]) -> [R::F32; 2] {
        r.pairs(x)
    }
}

/// Quantizes `scales.len()` rows of `x`, from `first_row` on, to integers up to `levels`. `words` is the tile of these
/// rows, with `N` words for each four elements.
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
    // A store may write past the last rows of a step, into the first rows of the next step. Those are written later,
    // because the groups are in descending order.
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

/// [`round_tile`] for rows that take at most [`LINES`] of the `lines` words of a step, from `place` on.
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
    let mut buffer = [0.0; GROUP];
    let zeros = [0.0; GROUP];
    // The first element of each row, the distance to the next one, and the factor before rounding.
    let mut rows = [(zeros.as_ptr(), 0, s.splat(0.0)); LINES];
    for (i, (scale, of_row)) in scales.iter_mut().zip(&mut rows).enumerate() {
        let row = Row::new(x, first_row + i);
        let rounding = Rounding::new(largest(s, row, &mut buffer), levels);
        *scale = rounding.scale;
        // A row without factor becomes zeros.
        if let Some(inverse) = rounding.inverse {
            *of_row = (row.at, row.stride, s.splat(inverse));
        }
    }
    let plain = x.column_stride() == 1;
    for first in (0..depth).step_by(4 * lanes) {
        let whole = plain && depth - first >= 4 * lanes;
        let mut packed = [s.splat(0.0); LINES];
        // The compiler unrolls this loop, so that the vectors stay in registers.
        for i in 0..const { LINES / N } {
            if i >= scales.len() {
                break;
            }
            let (at, stride, inverse) = rows[i];
            let from = if whole {
                at.wrapping_add(first * stride)
            } else if core::ptr::eq(at, zeros.as_ptr()) {
                at
            } else {
                Row { at, stride, depth }.place(first, 4 * lanes, &mut buffer)
            };
            let mut x = [inverse; 4];
            for (v, x) in x.iter_mut().enumerate() {
                // SAFETY: `from` has four vectors: in the row, or in `buffer` or `zeros` of `GROUP` floats.
                *x = s.mul(unsafe { s.load(from.add(v * lanes)) }, inverse);
            }
            packed[i * N..][..N].copy_from_slice(&kind.make(s, x));
        }
        let words = &mut words[first / 4 * lines..];
        let count = ((depth - first).div_ceil(4)).min(lanes);
        if lines == 1 {
            // SAFETY: `words` has at least `count` words: one for each of the remaining steps.
            unsafe { s.store_prefix(words.as_mut_ptr(), s.in_order(packed[0]), count) };
        } else if count == lanes && (lanes - 1) * lines + place + LINES <= words.len() {
            // SAFETY: the condition above: the last of `lanes` columns ends inside `words`.
            unsafe { s.store_columns(packed, words.as_mut_ptr().add(place), lines) };
        } else {
            let mut columns = [0.0; LINES * MAX_LANES];
            // SAFETY: `columns` has LINES words for each of at most MAX_LANES columns.
            unsafe { s.store_columns(packed, columns.as_mut_ptr(), LINES) };
            for (step, column) in columns.chunks_exact(LINES).enumerate().take(count) {
                words[step * lines + place..][..own].copy_from_slice(&column[..own]);
            }
        }
    }
}

/// The largest magnitude of a row, as bits.
#[inline(always)]
fn largest<R: Round>(s: R, row: Row, buffer: &mut [f32; GROUP]) -> i32 {
    let lanes = R::LANES;
    let mut largest = [s.none(); 4];
    for first in (0..row.depth).step_by(4 * lanes) {
        let from = row.place(first, 4 * lanes, buffer);
        for (v, largest) in largest.iter_mut().enumerate() {
            // SAFETY: `from` has four vectors: in the row, or in `buffer` of `GROUP` floats.
            *largest = s.larger(*largest, unsafe { s.load(from.add(v * lanes)) });
        }
    }
    s.largest(largest)
}
