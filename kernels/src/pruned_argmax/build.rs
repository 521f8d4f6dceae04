//! Quantizes a packed matrix to int8, with bounds on the quantization error.
//!
//! The table is a sequence of panels of [`PANEL`] columns. A panel is `[steps][PANEL]` words, each with four
//! consecutive int8 values of one column (`steps` is a quarter of the depth, rounded up), followed by four rows of
//! `PANEL` column statistics, see [`ColumnStatistic`]. A scan over all columns therefore reads memory in order.

use super::error_bound::{self, MAX_DEPTH, SMALLEST};
use crate::error::{Error, Expected};
use crate::isa::AutoVectorize;
use crate::{Isa, PackedMatrix};
use core::fmt;

/// Columns in a panel, on every instruction set.
pub(super) const PANEL: usize = 32;

/// A statistic of a column.
#[derive(Clone, Copy)]
pub(super) enum ColumnStatistic {
    /// The scale of the int8 values of the column.
    Scale,
    /// `-128` times the sum of the int8 values, a 32-bit integer. It compensates that the values of `x` are stored plus
    /// 128.
    Offset,
    /// An upper bound of the norm of the column.
    Norm,
    /// An upper bound of the norm of the quantization error of the column.
    Error,
}

/// Number of [`ColumnStatistic`]s.
const COLUMN_STATISTICS: usize = 4;

/// A weight matrix `[depth, columns]` in int8, with bounds on the quantization error of its columns.
///
/// It takes slightly more than a quarter of the floats of the matrix. Like a [`PackedMatrix`] it borrows its floats:
/// store a buffer of [`PruningTable::len`] floats and the shape, and create a view with [`PruningTable::from_built`]
/// for each use.
#[derive(Clone, Copy)]
pub struct PruningTable<'a> {
    data: &'a [f32],
    depth: usize,
    columns: usize,
}

impl<'a> PruningTable<'a> {
    /// Floats of the table of a `[depth, columns]` matrix, on any instruction set.
    ///
    /// # Errors
    /// The depth is so large that a sum might not fit 32 bits, or an index of a column `u32`; [`Error::TooLarge`] if
    /// the size overflows; [`Error::MissingFeature`] without the feature `int8`.
    pub fn len(depth: usize, columns: usize) -> Result<usize, Error> {
        if !cfg!(feature = "int8") {
            return Err(Error::MissingFeature { feature: "int8" });
        }
        Error::check_size("depth", "the pruning table", Expected::AtMost(MAX_DEPTH), depth)?;
        // Column indices are `u32`.
        let columns_at_most = Expected::AtMost(u32::MAX as usize - 1);
        Error::check_size("columns", "the pruning table", columns_at_most, columns)?;
        columns
            .div_ceil(PANEL)
            .checked_mul(panel_words(depth))
            .filter(|&floats| floats <= isize::MAX as usize / 4)
            .ok_or(Error::TooLarge { operand: "the pruning table" })
    }

    /// Builds the table of `weight` in `buffer`. A column with an element that is not finite is always a candidate.
    ///
    /// # Errors
    /// As [`PruningTable::len`], or the buffer is shorter than that.
    pub fn build(weight: &PackedMatrix<'_>, buffer: &'a mut [f32]) -> Result<Self, Error> {
        // `len` also checks this. The check here removes the code below from builds without the feature.
        if !cfg!(feature = "int8") {
            return Err(Error::MissingFeature { feature: "int8" });
        }
        let (depth, columns) = (weight.depth(), weight.columns());
        let expected = Self::len(depth, columns)?;
        Error::check_min_len("the pruning table", expected, buffer)?;
        let data = &mut buffer[..expected];
        for (index, panel) in data.chunks_exact_mut(panel_words(depth)).enumerate() {
            weight.isa().run(Build { weight, first: index * PANEL, panel });
        }
        Self::from_built(depth, columns, data)
    }

    /// A view of a table that was built before.
    ///
    /// # Errors
    /// As [`PruningTable::len`], or `data` has another length than that.
    pub fn from_built(depth: usize, columns: usize, data: &'a [f32]) -> Result<Self, Error> {
        let expected = Self::len(depth, columns)?;
        Error::check_len("the pruning table", expected, data)?;
        Ok(Self { data, depth, columns })
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
        self.depth
    }

    /// Columns of the matrix.
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Words of four int8 values per column.
    pub(super) const fn steps(&self) -> usize {
        self.depth.div_ceil(4)
    }

    pub(super) const fn panels(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }

    /// The words of `panel`, `[steps][PANEL]`, followed by its statistics.
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize) -> &'a [f32] {
        let words = panel_words(self.depth);
        &self.data[panel * words..][..words]
    }

    /// The address where [`PruningTable::panel`] would start, for any index.
    #[inline(always)]
    pub(super) fn address(&self, panel: usize) -> *const f32 {
        self.data.as_ptr().wrapping_add(panel * panel_words(self.depth))
    }
}

impl fmt::Debug for PruningTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PruningTable({} x {})", self.depth, self.columns)
    }
}

/// Offset of the `PANEL` values of a statistic in a panel.
#[inline(always)]
pub(super) const fn start_of(statistic: ColumnStatistic, steps: usize) -> usize {
    (steps + statistic as usize) * PANEL
}

const fn panel_words(depth: usize) -> usize {
    (depth.div_ceil(4) + COLUMN_STATISTICS) * PANEL
}

/// Adding this constant rounds to an integer.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// The nearest integer, for `|x| < 2^22`.
#[inline(always)]
pub(super) fn round(x: f32) -> f32 {
    (x + ROUND) - ROUND
}

/// Builds one panel.
struct Build<'b, 'a> {
    weight: &'b PackedMatrix<'a>,
    first: usize,
    panel: &'b mut [f32],
}

/// `count` columns of row `k` of `weight` from `first` on, followed by zeros. This is not a closure, because a closure
/// would compile to a separate function without the target features of the instruction set.
#[inline(always)]
fn row(weight: &PackedMatrix<'_>, k: usize, first: usize, count: usize) -> [f32; PANEL] {
    let mut row = [0.0f32; PANEL];
    weight.copy_row(k, first, &mut row[..count]);
    row
}

impl AutoVectorize for Build<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { weight, first, panel } = self;
        let (depth, steps) = (weight.depth(), weight.depth().div_ceil(4));
        // Columns after the last one are zeros, as in the packed matrix.
        let count = (weight.columns() - first).min(PANEL);
        let mut largest = [0.0f32; PANEL];
        let mut squares = [0.0f32; PANEL];
        for k in 0..depth {
            let weights = row(weight, k, first, count);
            for j in 0..PANEL {
                let w = weights[j];
                largest[j] = if w.abs() > largest[j] { w.abs() } else { largest[j] };
                squares[j] += w * w;
            }
        }
        // Both are zero for a column that cannot be quantized: its elements are too small, or one is not finite, which
        // makes the sum of squares NaN or infinite.
        let mut scale = [0.0f32; PANEL];
        let mut inverse = [0.0f32; PANEL];
        for j in 0..PANEL {
            if largest[j] > SMALLEST && squares[j] < f32::INFINITY {
                scale[j] = largest[j] / 127.0;
                inverse[j] = 127.0 / largest[j];
            }
        }
        let mut error_squares = [0.0f32; PANEL];
        let mut sums = [0i32; PANEL];
        for step in 0..steps {
            let mut words = [0u32; PANEL];
            for byte in 0..4.min(depth - 4 * step) {
                let weights = row(weight, 4 * step + byte, first, count);
                for j in 0..PANEL {
                    let usable = inverse[j] != 0.0;
                    // The low bits of the sum are an integer of at most 127.
                    let shifted = if usable { weights[j] * inverse[j] + ROUND } else { ROUND };
                    let error = weights[j] - (shifted - ROUND) * scale[j];
                    error_squares[j] += error * error;
                    let q = shifted.to_bits().wrapping_sub(ROUND.to_bits());
                    sums[j] += q.cast_signed();
                    words[j] |= (q & 0xff) << (8 * byte);
                }
            }
            for (to, word) in panel[step * PANEL..][..PANEL].iter_mut().zip(words) {
                *to = f32::from_bits(word);
            }
        }
        let norm = squares.map(|squares| error_bound::norm(squares, depth));
        let error: [f32; PANEL] =
            core::array::from_fn(|j| error_bound::column_error(error_squares[j], norm[j], depth));
        let mut write_statistic = |which: ColumnStatistic, values: [f32; PANEL]| {
            panel[start_of(which, steps)..][..PANEL].copy_from_slice(&values);
        };
        write_statistic(ColumnStatistic::Scale, scale);
        write_statistic(
            ColumnStatistic::Offset,
            sums.map(|sum| f32::from_bits((-128 * sum).cast_unsigned())),
        );
        write_statistic(ColumnStatistic::Norm, norm);
        write_statistic(ColumnStatistic::Error, error);
    }
}
