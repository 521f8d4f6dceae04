//! The pruning table: a matrix in int8, with bounds on the quantization error of its columns.
//!
//! It has the panels of a [`QuantizedMatrix`](crate::QuantizedMatrix), with two more rows of column statistics in each
//! panel, see [`ColumnStatistic`]. A scan over all columns therefore reads memory in order.

use super::error_bound::{self, MAX_DEPTH};
use crate::error::{Error, Expected};
use crate::gemm::{Columns, Int8Panels, PANEL, quantize_columns};
use crate::simd::simd_op;
use crate::{Isa, PackedMatrix};
use core::fmt;

/// A statistic of a column.
#[derive(Clone, Copy)]
pub(super) enum ColumnStatistic {
    /// The scale of the int8 values of the column; NaN for a column with an element that is not finite.
    Scale,
    /// `-128` times the sum of the int8 values, a 32-bit integer, for instruction sets that store the values of `x`
    /// plus 128.
    Offset,
    /// An upper bound of the norm of the column.
    Norm,
    /// An upper bound of the norm of the quantization error of the column.
    Error,
}

/// Number of [`ColumnStatistic`]s.
pub(super) const COLUMN_STATISTICS: usize = 4;

/// A weight matrix `[depth, columns]` in int8, with bounds on the quantization error of its columns.
///
/// It takes slightly more than a quarter of the floats of the matrix. Like a [`PackedMatrix`] it borrows its floats:
/// store a buffer of [`PruningTable::buffer_len`] floats and the shape, and create a view with [`PruningTable::from_built`]
/// for each use.
#[derive(Clone, Copy)]
pub struct PruningTable<'a>(Int8Panels<'a>);

impl<'a> PruningTable<'a> {
    /// Floats of the table of a `[depth, columns]` matrix, on any instruction set.
    ///
    /// # Errors
    /// The depth is so large that a sum might not fit 32 bits, or an index of a column `u32`; [`Error::TooLarge`] if
    /// the size overflows; [`Error::Unsupported`] without the feature `int8`.
    pub fn buffer_len(depth: usize, columns: usize) -> Result<usize, Error> {
        let operand = "the pruning table";
        // Column indices are `u32`.
        let columns_at_most = Expected::AtMost(u32::MAX as usize - 1);
        Error::check_size("columns", operand, columns_at_most, columns)?;
        Int8Panels::len(operand, (depth, columns), MAX_DEPTH, COLUMN_STATISTICS)
    }

    /// Builds the table of `weight` in `buffer`. A column with an element that is not finite is always a candidate.
    ///
    /// # Errors
    /// As [`PruningTable::buffer_len`], or the buffer is shorter than that.
    pub fn build(weight: &PackedMatrix<'_>, buffer: &'a mut [f32]) -> Result<Self, Error> {
        // `len` also checks this. The check here removes the code below from builds without the feature.
        if !cfg!(feature = "int8") {
            return Err(Error::NO_INT8);
        }
        let (depth, columns) = (weight.depth(), weight.columns());
        let expected = Self::buffer_len(depth, columns)?;
        Error::check_min_len("buffer", expected, buffer)?;
        let (data, isa) = (&mut buffer[..expected], weight.isa());
        let panel_len = Int8Panels::panel_len(depth, COLUMN_STATISTICS);
        for (index, panel) in data.chunks_exact_mut(panel_len).enumerate() {
            let first = index * PANEL;
            isa.dispatch(quantize_columns(weight, first, panel, 0..PANEL));
            isa.dispatch(column_bounds(weight, first, panel));
        }
        Self::from_built(depth, columns, data)
    }

    /// A view of a table that was built before.
    ///
    /// # Errors
    /// As [`PruningTable::buffer_len`], or `data` has another length than that.
    pub fn from_built(depth: usize, columns: usize, data: &'a [f32]) -> Result<Self, Error> {
        let expected = Self::buffer_len(depth, columns)?;
        Error::check_len("data", expected, data)?;
        Ok(Self(Int8Panels::new(data, depth, columns, COLUMN_STATISTICS)))
    }

    /// Whether int8 multiplication on `isa` is so much faster than f32 that the table saves time. The gain is largest
    /// with VNNI on AVX-512. It is smallest where int8 values are widened before they are multiplied, and there it
    /// exists only for few rows. On the scalar instruction set the table gives the same results, slowly. Always false
    /// without the feature `int8`.
    pub fn is_profitable(isa: Isa) -> bool {
        cfg!(feature = "int8") && isa.has_bytes()
    }

    /// Rows of the matrix: the length of a sum.
    pub const fn depth(&self) -> usize {
        self.0.depth()
    }

    /// Columns of the matrix.
    pub const fn columns(&self) -> usize {
        self.0.columns()
    }

    pub(super) const fn panels(&self) -> &Int8Panels<'a> {
        &self.0
    }

    /// The words of `panel`, `[steps][PANEL]`, and its statistics in the order of [`ColumnStatistic`].
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize) -> (&'a [f32], &'a [[f32; PANEL]; COLUMN_STATISTICS]) {
        let (words, statistics) = self.0.panel(panel);
        match statistics.first_chunk() {
            Some(statistics) => (words, statistics),
            None => unreachable!("{COLUMN_STATISTICS} statistics"),
        }
    }
}

impl fmt::Debug for PruningTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PruningTable({} x {})", self.depth(), self.columns())
    }
}

impl Columns for PackedMatrix<'_> {
    #[inline(always)]
    fn shape(&self) -> (usize, usize) {
        (self.depth(), self.columns())
    }

    #[inline(always)]
    fn row(&self, k: usize, first: usize, count: usize) -> [f32; PANEL] {
        let mut row = [0.0; PANEL];
        self.copy_row(k, first, &mut row[..count]);
        row
    }
}

simd_op!(
    /// Writes the bounds of a panel whose values and scales are written. `first` is the first column of the panel.
    fn column_bounds<S: SimdF32>(
        _s: S,
        weight: &PackedMatrix<'_>,
        first: usize,
        panel: &mut [f32],
    ) {
        let depth = weight.depth();
        let count = (weight.columns() - first).min(PANEL);
        let (words, statistics) = panel.split_at_mut(depth.div_ceil(4) * PANEL);
        let [scales, _, norms, errors] = statistics.as_chunks_mut::<PANEL>().0 else {
            unreachable!("{COLUMN_STATISTICS} statistics")
        };
        let (mut squares, mut error_squares) = ([0.0f32; PANEL], [0.0f32; PANEL]);
        for k in 0..depth {
            let weights = weight.row(k, first, count);
            let words = &words[k / 4 * PANEL..][..PANEL];
            for j in 0..PANEL {
                let q = (words[j].to_bits() >> (k % 4 * 8)) as u8;
                let error = weights[j] - f32::from(q.cast_signed()) * scales[j];
                squares[j] += weights[j] * weights[j];
                error_squares[j] += error * error;
            }
        }
        *norms = squares.map(|squares| error_bound::norm(squares, depth));
        *errors =
            core::array::from_fn(|j| error_bound::column_error(error_squares[j], norms[j], depth));
    }
);
