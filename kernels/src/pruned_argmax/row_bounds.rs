//! The quantized rows of `x`, with bounds on the quantization error.

use super::error_bound;
use crate::error::Error;
use crate::gemm::{LEVELS, Rounding, Row, magnitude, round};
use crate::simd::simd_op;
use crate::{Isa, Matrix, QuantizedActivations};
use core::sync::atomic::{AtomicU32, Ordering};

/// Statistics of a row: those of [`RowBound`], and the best lower bound.
pub(super) const ROW_STATISTICS: usize = 4;

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

/// The largest lower bound that any part has found for a row. It never decreases, and it is infinite if the row is
/// undecided.
pub(super) struct Best<'a>(pub(super) &'a AtomicU32);

impl Best<'_> {
    #[inline(always)]
    pub(super) fn get(&self) -> f32 {
        f32::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn raise(&self, bound: f32) {
        let raised = |seen| (bound > f32::from_bits(seen)).then_some(bound.to_bits());
        // An error means that `bound` is not larger.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised);
    }
}

/// The quantized rows and their bounds.
#[derive(Clone, Copy)]
pub(super) struct BoundedRows<'a> {
    pub(super) quantized: QuantizedActivations<'a>,
    /// The fields of [`RowBound`] for each row.
    bounds: &'a [[f32; ROW_STATISTICS - 1]],
    /// The best lower bound of each row.
    best: &'a [AtomicU32],
}

impl<'a> BoundedRows<'a> {
    /// Quantizes `x`. `words` has [`QuantizedActivations::buffer_len`] elements, `statistics` [`ROW_STATISTICS`] for each
    /// row.
    pub(super) fn new(
        isa: Isa,
        x: &Matrix<'_>,
        words: &'a mut [f32],
        statistics: &'a mut [f32],
    ) -> Result<Self, Error> {
        let (best, bounds) = statistics.split_at_mut(x.rows());
        let (bounds, _) = bounds.as_chunks_mut();
        for (row, (bounds, best)) in bounds.iter_mut().zip(&mut *best).enumerate() {
            let [scale, norm_factor, error_factor, lowest] =
                isa.dispatch(row_statistics(Row::new(x, row)));
            (*bounds, *best) = ([scale, norm_factor, error_factor], lowest);
        }
        let quantized = QuantizedActivations::quantize_for_panels(isa, *x, words)?;
        // SAFETY: an f32 has the size and alignment of an `AtomicU32`, and `best` is borrowed exclusively for `'a`.
        let best = unsafe { core::slice::from_raw_parts(best.as_mut_ptr().cast(), best.len()) };
        Ok(Self { quantized, bounds, best })
    }

    #[inline(always)]
    pub(super) fn bound(&self, row: usize) -> RowBound {
        let [scale, norm_factor, error_factor] = self.bounds[row];
        RowBound { scale, norm_factor, error_factor }
    }

    #[inline(always)]
    pub(super) fn best(&self, row: usize) -> Best<'a> {
        Best(&self.best[row])
    }
}

/// Independent partial sums.
const LANES: usize = 16;

simd_op!(
    /// The statistics of a row, whose quantized values are those of [`QuantizedActivations`]: both use [`Rounding`] and
    /// round to the nearest integer.
    fn row_statistics<S: SimdF32>(_s: S, row: Row) -> [f32; ROW_STATISTICS] {
        let depth = row.depth;
        // Zeros after the last element do not change the sums.
        let (mut largest, mut squares) = ([0i32; LANES], [0.0f32; LANES]);
        for first in (0..depth).step_by(LANES) {
            let group = row.group::<LANES>(first);
            for i in 0..LANES {
                largest[i] = magnitude(group[i]).max(largest[i]);
                squares[i] += group[i] * group[i];
            }
        }
        let squares: f32 = squares.into_iter().sum();
        // A row with elements that are not finite, or with a norm that is not finite, is undecided. The other factors
        // are zero, so that its bounds are finite and no column is a candidate.
        if !(squares < f32::INFINITY) {
            return [0.0, 0.0, 0.0, f32::INFINITY];
        }
        let rounding = Rounding::new(largest.into_iter().fold(0, i32::max), LEVELS);
        let (scale, inverse) = (rounding.scale, rounding.inverse.unwrap_or(0.0));
        let (mut error_squares, mut dequantized_squares) = ([0.0f32; LANES], [0.0f32; LANES]);
        for first in (0..depth).step_by(LANES) {
            let group = row.group::<LANES>(first);
            for i in 0..LANES {
                let dequantized = f32::from(round(group[i], inverse).cast_signed()) * scale;
                let error = group[i] - dequantized;
                error_squares[i] += error * error;
                dequantized_squares[i] += dequantized * dequantized;
            }
        }
        let error_squares = error_squares.into_iter().sum();
        let norm = error_bound::norm(squares, depth);
        [
            scale,
            error_bound::norm_factor(error_squares, norm, depth),
            error_bound::error_factor(dequantized_squares.into_iter().sum(), depth),
            f32::NEG_INFINITY,
        ]
    }
);
