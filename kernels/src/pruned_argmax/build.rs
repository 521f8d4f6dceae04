//! From packed floats to bytes, with what they leave out.
//!
//! Panels of [`PANEL`] columns follow each other. A panel is `[steps][PANEL]` words, each four
//! consecutive signed bytes of one column (`steps` is a quarter of the depth, rounded up), and then
//! four rows of `PANEL` statistics of the columns, see [`ColumnStatistic`]. So a sweep over all columns reads
//! memory in one direction only.

use super::error::PrunedArgmaxError;
use super::error_bound::{self, MAX_DEPTH, SMALLEST};
use crate::isa::AutoVectorize;
use crate::{Isa, PackedMatrix};
use core::fmt;

/// Columns in a panel of bytes, on every instruction set.
pub(super) const PANEL: usize = 32;

/// What is kept of a column beside its bytes.
#[derive(Clone, Copy)]
pub(super) enum ColumnStatistic {
    /// What a byte of the column is multiplied by.
    Scale,
    /// `-128` times the sum of its bytes, a 32-bit integer: the bytes of `x` are stored 128 higher.
    Offset,
    /// No less than the norm of the column.
    Norm,
    /// No less than the norm of what its bytes leave out.
    Error,
}

/// How many [`ColumnStatistic`]s there are.
const COLUMN_STATISTICS: usize = 4;

/// A weight matrix `[depth, columns]` as bytes, with bounds on what they leave out.
///
/// It takes a little more than a quarter of the floats of the matrix, and like a
/// [`PackedMatrix`] it borrows them: own a buffer of [`PruningTable::len`] floats with the shape, and make a
/// view with [`PruningTable::from_built`] where it is used.
#[derive(Clone, Copy)]
pub struct PruningTable<'a> {
    data: &'a [f32],
    depth: usize,
    columns: usize,
}

impl<'a> PruningTable<'a> {
    /// Floats that the screen of a `[depth, columns]` matrix takes, on any instruction set.
    ///
    /// # Errors
    /// [`PrunedArgmaxError::TooDeep`], [`PrunedArgmaxError::TooLarge`]; [`PrunedArgmaxError::MissingFeature`] without the feature `int8`.
    pub fn len(depth: usize, columns: usize) -> Result<usize, PrunedArgmaxError> {
        if !cfg!(feature = "int8") {
            return Err(PrunedArgmaxError::MissingFeature { feature: "int8" });
        }
        if depth > MAX_DEPTH {
            return Err(PrunedArgmaxError::TooDeep { expected_at_most: MAX_DEPTH, found: depth });
        }
        if columns >= u32::MAX as usize {
            return Err(PrunedArgmaxError::TooLarge);
        }
        columns
            .div_ceil(PANEL)
            .checked_mul(panel_words(depth))
            .filter(|&floats| floats <= isize::MAX as usize / 4)
            .ok_or(PrunedArgmaxError::TooLarge)
    }

    /// The screen of `weight`, in `buffer`. Columns with something in them that is not finite are
    /// always candidates.
    ///
    /// # Errors
    /// As [`PruningTable::len`]; the buffer is shorter than that.
    pub fn build(
        weight: &PackedMatrix<'_>,
        buffer: &'a mut [f32],
    ) -> Result<Self, PrunedArgmaxError> {
        // Also said by `len`; here it keeps the code below out of builds without the feature.
        if !cfg!(feature = "int8") {
            return Err(PrunedArgmaxError::MissingFeature { feature: "int8" });
        }
        let (depth, columns) = (weight.depth(), weight.columns());
        let expected = Self::len(depth, columns)?;
        let found = buffer.len();
        let Some(data) = buffer.get_mut(..expected) else {
            return Err(PrunedArgmaxError::Length { buffer: "screen", expected, found });
        };
        for (index, panel) in data.chunks_exact_mut(panel_words(depth)).enumerate() {
            weight.isa().run(Build { weight, first: index * PANEL, panel });
        }
        Self::from_built(depth, columns, data)
    }

    /// A screen that was built before.
    ///
    /// # Errors
    /// As [`PruningTable::len`]; `data` has another length than that.
    pub fn from_built(
        depth: usize,
        columns: usize,
        data: &'a [f32],
    ) -> Result<Self, PrunedArgmaxError> {
        let expected = Self::len(depth, columns)?;
        if data.len() != expected {
            return Err(PrunedArgmaxError::Length {
                buffer: "screen",
                expected,
                found: data.len(),
            });
        }
        Ok(Self { data, depth, columns })
    }

    /// Whether bytes are multiplied so much faster than floats on `isa` that a screen pays: most with VNNI
    /// beside AVX-512, least where bytes are widened to be multiplied, and then for few rows. In plain Rust it
    /// gives the same answers, slowly. Never without the feature `int8`.
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

    /// Words of four bytes in a column.
    pub(super) const fn steps(&self) -> usize {
        self.depth.div_ceil(4)
    }

    pub(super) const fn panels(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }

    /// The words of `panel`, `[steps][PANEL]`, and its statistics behind them.
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize) -> &'a [f32] {
        let words = panel_words(self.depth);
        &self.data[panel * words..][..words]
    }

    /// Where [`PruningTable::panel`] would start, for any index.
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

/// Where the `PANEL` values of a statistic start in a panel.
#[inline(always)]
pub(super) const fn start_of(statistic: ColumnStatistic, steps: usize) -> usize {
    (steps + statistic as usize) * PANEL
}

const fn panel_words(depth: usize) -> usize {
    (depth.div_ceil(4) + COLUMN_STATISTICS) * PANEL
}

/// Adding it rounds to an integer.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// The nearest integer, for `|x| < 2^22`.
#[inline(always)]
pub(super) fn round(x: f32) -> f32 {
    (x + ROUND) - ROUND
}

/// One panel of bytes.
struct Build<'b, 'a> {
    weight: &'b PackedMatrix<'a>,
    first: usize,
    panel: &'b mut [f32],
}

/// `count` columns of row `k` of `weight` from `first` on, and zeros. Not a closure, which would be a function of
/// its own, and one of no instruction set.
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
        // Columns beyond the last are zeros, as in the packed matrix.
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
        // Both are zero where a column is not usable: too small, or with something that is not finite, which
        // makes the sum of squares NaN or infinite.
        let mut scale = [0.0f32; PANEL];
        let mut inverse = [0.0f32; PANEL];
        for j in 0..PANEL {
            if largest[j] > SMALLEST && squares[j] < f32::INFINITY {
                scale[j] = largest[j] / 127.0;
                inverse[j] = 127.0 / largest[j];
            }
        }
        let mut left_out = [0.0f32; PANEL];
        let mut sums = [0i32; PANEL];
        for step in 0..steps {
            let mut words = [0u32; PANEL];
            for byte in 0..4.min(depth - 4 * step) {
                let weights = row(weight, 4 * step + byte, first, count);
                for j in 0..PANEL {
                    let usable = inverse[j] != 0.0;
                    // An integer of at most 127 is in the lowest bits of this.
                    let high = if usable { weights[j] * inverse[j] + ROUND } else { ROUND };
                    let error = weights[j] - (high - ROUND) * scale[j];
                    left_out[j] += error * error;
                    let q = high.to_bits().wrapping_sub(ROUND.to_bits());
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
            core::array::from_fn(|j| error_bound::column_error(left_out[j], norm[j], depth));
        let mut put = |which: ColumnStatistic, values: [f32; PANEL]| {
            panel[start_of(which, steps)..][..PANEL].copy_from_slice(&values);
        };
        put(ColumnStatistic::Scale, scale);
        put(ColumnStatistic::Offset, sums.map(|sum| f32::from_bits((-128 * sum).cast_unsigned())));
        put(ColumnStatistic::Norm, norm);
        put(ColumnStatistic::Error, error);
    }
}
