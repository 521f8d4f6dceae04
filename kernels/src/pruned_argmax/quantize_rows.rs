//! Quantizes the rows of `x` to int8, with bounds on the quantization error.

use super::build::{PruningTable, round};
use super::candidates::Best;
use super::error_bound::{self, SMALLEST};
use crate::isa::AutoVectorize;
use crate::parallel::share;
use crate::simd::int8::{Int8Dot, Int8Op};
use crate::{Isa, Matrix};
use core::sync::atomic::AtomicU32;

/// Statistics of a row: those of [`RowBound`], and the best lower bound.
pub(super) const ROW_STATISTICS: usize = 4;

/// The number of tiles for a number of rows.
pub(super) struct Tiles(pub(super) usize);

impl Int8Op for Tiles {
    type Output = usize;

    #[inline(always)]
    fn run<B: Int8Dot, const NV: usize, const TV: usize>(self, _: B) -> usize {
        self.0.div_ceil(B::ROWS)
    }
}

/// The scale of a row, and its factors in the bound of a column.
#[derive(Clone, Copy)]
pub(super) struct RowBound {
    /// The value of the integer 1.
    pub(super) scale: f32,
    /// The factor of the norm of a column.
    pub(super) norm_factor: f32,
    /// The factor of the norm of the quantization error of a column. The bound is the sum of both products.
    pub(super) error_factor: f32,
}

/// The quantized rows, in the layout that the scan reads.
#[derive(Clone, Copy)]
pub(super) struct QuantizedRows<'a> {
    pub(super) count: usize,
    /// The rows of each tile interleaved, `[steps][rows of the tile]`: words of four values, each stored plus 128.
    words: &'a [f32],
    /// `[count][ROW_STATISTICS]`. The last statistic is the best lower bound of the row.
    statistics: *const f32,
    lifetime: core::marker::PhantomData<&'a mut [f32]>,
}

// SAFETY: the statistics are only read while `QuantizedRows` exists, except for the best lower bounds, which are
// atomic.
unsafe impl Send for QuantizedRows<'_> {}
// SAFETY: with a `&QuantizedRows` the statistics are only read, except for the best lower bounds, which are atomic.
unsafe impl Sync for QuantizedRows<'_> {}

impl<'a> QuantizedRows<'a> {
    /// The words of the tile of `height` rows from `row` on.
    #[inline(always)]
    pub(super) fn words(&self, row: usize, height: usize, steps: usize) -> *const i32 {
        self.words[row * steps..][..height * steps].as_ptr().cast()
    }

    #[inline(always)]
    pub(super) fn bound(&self, row: usize) -> RowBound {
        assert!(row < self.count);
        // SAFETY: the assertion checks `row`, and `quantize` sliced ROW_STATISTICS floats for each of `count` rows.
        unsafe {
            let at = self.statistics.add(row * ROW_STATISTICS);
            RowBound { scale: *at, norm_factor: *at.add(1), error_factor: *at.add(2) }
        }
    }

    #[inline(always)]
    pub(super) fn best(&self, row: usize) -> Best<'a> {
        assert!(row < self.count);
        // SAFETY: the assertion checks `row`. This is the last word of the statistics of a row, which only this
        // function accesses; an f32 has the size and alignment of an `AtomicU32`.
        unsafe {
            let at = self.statistics.add(row * ROW_STATISTICS + 3).cast_mut().cast::<u32>();
            Best(AtomicU32::from_ptr(at))
        }
    }
}

/// Quantizes `x`. `words` has `rows * steps` elements, `statistics` is `[rows][ROW_STATISTICS]`.
pub(super) fn quantize<'a>(
    isa: Isa,
    x: &Matrix<'_>,
    screen: &PruningTable<'_>,
    words: &'a mut [f32],
    statistics: &'a mut [f32],
) -> QuantizedRows<'a> {
    let (steps, tiles) = (screen.steps(), isa.dispatch_bytes(Tiles(x.rows())));
    for tile in (0..tiles).map(|tile| share(x.rows(), tiles, tile)) {
        let words = &mut words[tile.start * steps..tile.end * steps];
        for (i, row) in tile.clone().enumerate() {
            let statistics = &mut statistics[row * ROW_STATISTICS..][..ROW_STATISTICS];
            isa.run(Quantize { x, row, words, place: (i, tile.len()), statistics });
        }
    }
    QuantizedRows {
        count: x.rows(),
        words,
        statistics: statistics.as_mut_ptr(),
        lifetime: core::marker::PhantomData,
    }
}

struct Quantize<'r, 'a> {
    x: &'r Matrix<'a>,
    row: usize,
    /// The words of the tile.
    words: &'r mut [f32],
    /// Index of the row in its tile, and number of rows of the tile.
    place: (usize, usize),
    statistics: &'r mut [f32],
}

/// Independent partial sums.
const LANES: usize = 16;

impl AutoVectorize for Quantize<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { x, row, words, place: (place, height), statistics } = self;
        let depth = x.columns();
        // Zeros after the last element do not change the sums.
        let group = |first: usize| -> [f32; LANES] {
            if x.column_stride() == 1 && first + LANES <= depth {
                // SAFETY: the column stride is 1 and `first + LANES <= depth`, so row `row` of the view has these
                // elements.
                unsafe {
                    let from = x.as_ptr().add(row * x.row_stride() + first);
                    from.cast::<[f32; LANES]>().read_unaligned()
                }
            } else {
                core::array::from_fn(|i| if first + i < depth { x.at(row, first + i) } else { 0.0 })
            }
        };
        let mut largest = [0.0f32; LANES];
        let mut squares = [0.0f32; LANES];
        for first in (0..depth).step_by(LANES) {
            for ((largest, squares), x) in largest.iter_mut().zip(&mut squares).zip(group(first)) {
                *largest = if x.abs() > *largest { x.abs() } else { *largest };
                *squares += x * x;
            }
        }
        let largest = largest.into_iter().fold(0.0f32, f32::max);
        let squares: f32 = squares.into_iter().sum();
        let (scale, inverse) =
            if largest > SMALLEST { (largest / 127.0, 127.0 / largest) } else { (0.0, 0.0) };
        let (mut error_squares, mut dequantized_squares) = ([0.0f32; LANES], [0.0f32; LANES]);
        for first in (0..depth).step_by(LANES) {
            let words = &mut words[first / 4 * height..];
            let group = group(first);
            let bytes: [f32; LANES] = core::array::from_fn(|i| round(group[i] * inverse));
            for i in 0..LANES {
                let dequantized = bytes[i] * scale;
                let error = group[i] - dequantized;
                error_squares[i] += error * error;
                dequantized_squares[i] += dequantized * dequantized;
            }
            let bytes = bytes.map(|byte| (byte + 128.0) as u8);
            let words = words.iter_mut().skip(place).step_by(height);
            for (word, bytes) in words.zip(bytes.chunks_exact(4)) {
                let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
                *word = f32::from_bits(u32::from_le_bytes(bytes));
            }
        }
        let error_squares: f32 = error_squares.into_iter().sum();
        let dequantized_squares: f32 = dequantized_squares.into_iter().sum();
        // A row with elements that are not finite, or with a norm that is not finite, is undecided.
        let certain = squares < f32::INFINITY;
        statistics[0] = scale;
        statistics[1] =
            error_bound::norm_factor(error_squares, error_bound::norm(squares, depth), depth);
        statistics[2] = error_bound::error_factor(dequantized_squares, depth);
        statistics[3] = if certain { f32::NEG_INFINITY } else { f32::INFINITY };
    }
}
