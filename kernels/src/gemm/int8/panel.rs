//! Panels of int8 weights: 32 columns, as words of four consecutive values of a column, followed by rows of column
//! statistics. The builder of [`QuantizedMatrix`](super::QuantizedMatrix) and of the
//! [`PruningTable`](crate::pruned_argmax::PruningTable).

use super::quantization::{LEVELS, Rounding, magnitude, round};
use crate::isa::AutoVectorize;
use crate::matrix::Matrix;
use core::ops::Range;

/// Columns in a panel, on every instruction set.
pub(crate) const PANEL: usize = 32;

/// Statistics that every panel has: the scale of each column, and its offset, an integer, which is -128 times the sum of
/// its values.
pub(crate) const SCALE_AND_OFFSET: usize = 2;

/// A matrix `[depth, columns]` in panels, in any memory of `Panels::len` words.
#[derive(Clone, Copy)]
pub(crate) struct Int8Panels<'a> {
    data: &'a [f32],
    depth: usize,
    columns: usize,
    /// Words of a panel.
    words: usize,
}

impl<'a> Int8Panels<'a> {
    /// Words of one panel with `statistics` rows of column statistics.
    pub(crate) const fn panel_len(depth: usize, statistics: usize) -> usize {
        (depth.div_ceil(4) + statistics) * PANEL
    }

    /// Words of the panels of a matrix. `None` if they exceed the address space.
    pub(crate) fn len(depth: usize, columns: usize, statistics: usize) -> Option<usize> {
        let words = columns.div_ceil(PANEL).checked_mul(Self::panel_len(depth, statistics))?;
        (words <= isize::MAX as usize / 4).then_some(words)
    }

    /// # Panics
    /// If `data` has fewer words than [`Int8Panels::len`].
    pub(crate) fn new(data: &'a [f32], depth: usize, columns: usize, statistics: usize) -> Self {
        let words = Self::panel_len(depth, statistics);
        assert!(data.len() / words >= columns.div_ceil(PANEL));
        Self { data, depth, columns, words }
    }

    pub(crate) const fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) const fn columns(&self) -> usize {
        self.columns
    }

    /// Words of four values per column.
    #[inline(always)]
    pub(crate) const fn steps(&self) -> usize {
        self.depth.div_ceil(4)
    }

    pub(crate) const fn panels(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }

    /// The address of `panel`, for any index. After the last panel it must not be read.
    #[inline(always)]
    pub(crate) fn address(&self, panel: usize) -> *const f32 {
        self.data.as_ptr().wrapping_add(panel * self.words)
    }

    /// The words of `panel`, `[steps][PANEL]`, and its statistics, `[statistics][PANEL]`.
    #[inline(always)]
    pub(crate) fn panel(&self, panel: usize) -> (&'a [f32], &'a [[f32; PANEL]]) {
        let (words, rest) =
            self.data[panel * self.words..][..self.words].split_at(self.steps() * PANEL);
        (words, rest.as_chunks().0)
    }
}

/// A matrix of f32 columns that are quantized. Implementations are `#[inline(always)]`: other functions are not compiled
/// for the instruction set.
pub(crate) trait Columns {
    /// Rows and columns.
    fn shape(&self) -> (usize, usize);
    /// `count` columns of row `k` from `first` on, followed by zeros. The columns must be in the matrix.
    fn row(&self, k: usize, first: usize, count: usize) -> [f32; PANEL];
}

impl Columns for Matrix<'_> {
    #[inline(always)]
    fn shape(&self) -> (usize, usize) {
        (self.rows(), self.columns())
    }

    #[inline(always)]
    fn row(&self, k: usize, first: usize, count: usize) -> [f32; PANEL] {
        let mut row = [0.0; PANEL];
        if self.column_stride() == 1 && count == PANEL {
            assert!(k < self.rows() && first + PANEL <= self.columns());
            // SAFETY: the column stride is 1 and the assertion checks the position, so the row has these elements.
            return unsafe {
                let at = self.as_ptr().add(k * self.row_stride() + first);
                at.cast::<[f32; PANEL]>().read_unaligned()
            };
        }
        for (j, x) in row.iter_mut().enumerate().take(count) {
            *x = self.at(k, first + j);
        }
        row
    }
}

/// Quantizes columns of a matrix into columns of a panel: words, scales and offsets.
pub(crate) struct QuantizeColumns<'b, C> {
    pub(crate) from: &'b C,
    /// The first column that is quantized. Columns after the last one of the matrix are zeros.
    pub(crate) first: usize,
    /// The words and the statistics of the panel.
    pub(crate) panel: &'b mut [f32],
    /// The destination columns in the panel.
    pub(crate) places: Range<usize>,
}

impl<C: Columns> AutoVectorize for QuantizeColumns<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { from, first, panel, places } = self;
        let (depth, columns) = from.shape();
        let steps = depth.div_ceil(4);
        let count = places.len().min(columns.saturating_sub(first));
        let mut largest = [0i32; PANEL];
        for k in 0..depth {
            for (largest, x) in largest.iter_mut().zip(from.row(k, first, count)) {
                *largest = magnitude(x).max(*largest);
            }
        }
        let mut scales = [0.0f32; PANEL];
        let mut inverses = [0.0f32; PANEL];
        // A mask: all bits set for columns that are quantized, zero for columns of zeros.
        let mut mask = [0u16; PANEL];
        for j in 0..PANEL {
            let rounding = Rounding::new(largest[j], LEVELS);
            scales[j] = rounding.scale;
            if let Some(inverse) = rounding.inverse {
                (inverses[j], mask[j]) = (inverse, u16::MAX);
            }
        }
        let mut sums = [0i32; PANEL];
        for step in 0..steps {
            let mut four = [0u32; PANEL];
            for byte in 0..4.min(depth - 4 * step) {
                let x = from.row(4 * step + byte, first, count);
                for j in 0..PANEL {
                    let q = (round(x[j], inverses[j]) & mask[j]) as u8;
                    sums[j] += i32::from(q.cast_signed());
                    four[j] |= u32::from(q) << (8 * byte);
                }
            }
            let to = &mut panel[step * PANEL..][..PANEL];
            for (to, four) in to[places.clone()].iter_mut().zip(four) {
                *to = f32::from_bits(four);
            }
        }
        let (to_scales, offsets) = panel[steps * PANEL..].split_at_mut(PANEL);
        for (to, scale) in to_scales[places.clone()].iter_mut().zip(scales) {
            *to = scale;
        }
        for (to, sum) in offsets[places].iter_mut().zip(sums) {
            *to = f32::from_bits(sum.wrapping_mul(-128).cast_unsigned());
        }
    }
}
