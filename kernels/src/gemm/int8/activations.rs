//! The other operand: rows, rounded as they come.

use super::activation_bits::{ActivationBits, MOST_DEPTH};
#[cfg(target_arch = "aarch64")]
use super::pack_activations::ByPair;
#[cfg(target_arch = "x86_64")]
use super::pack_activations::ByRow;
use super::pack_activations::{Layout, MOST_WORDS, Quantize};
use crate::gemm::error::GemmError;
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::{Parallelism, Workers, share, work_to_share};
use crate::shared::SharedMut;
use crate::simd::matrix_unit::MatrixUnit;
use core::fmt;
use core::ops::Range;

/// Elements in one task, about: a few microseconds of work.
const TASK: usize = work_to_share(1 << 15);

/// Rows `[rows, depth]`, each rounded to integers with a scale of its own, laid out for one instruction set. Several
/// products may read them: query, key and value; gate and inner.
///
/// It borrows words of a buffer of [`QuantizedActivations::len`], which does not depend on the instruction set.
///
/// ```
/// use simdformer_kernels::{QuantizedActivations, Isa, Matrix, Parallelism, ActivationBits};
///
/// let (x, precision) = ([1.0, -2.0, 3.0, 0.5, 0.0, 1.0], ActivationBits::Sixteen);
/// let mut buffer = vec![0.0; QuantizedActivations::len(2, 3, precision)?];
/// let x = Matrix::new(&x, 2, 3)?;
/// let rows = QuantizedActivations::quantize(Isa::best(), x, precision, &mut buffer, Parallelism::Serial)?;
/// assert_eq!((rows.rows(), rows.depth(), rows.precision()), (2, 3, precision));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct QuantizedActivations<'a> {
    isa: Isa,
    rows: usize,
    depth: usize,
    precision: ActivationBits,
    layout: Layout,
    /// What multiplies matrices of them, if they are laid out for that.
    matrices: Option<MatrixUnit>,
    /// Tile after tile, or row after row.
    words: &'a [f32],
    /// One a row.
    scales: &'a [f32],
}

impl<'a> QuantizedActivations<'a> {
    /// Words of four bytes that rounded rows take, on any instruction set.
    ///
    /// # Errors
    /// [`GemmError::TooDeep`] for sums that might not fit 32 bits; the product overflows;
    /// [`GemmError::MissingFeature`] without the feature `int8`.
    pub fn len(rows: usize, depth: usize, precision: ActivationBits) -> Result<usize, GemmError> {
        if !cfg!(feature = "int8") {
            return Err(GemmError::MissingFeature { feature: "int8" });
        }
        if depth > MOST_DEPTH {
            return Err(GemmError::TooDeep { expected_at_most: MOST_DEPTH, found: depth });
        }
        // In eight bits too: where bytes are widened to be multiplied, they are stored so.
        let (ActivationBits::Eight | ActivationBits::Sixteen) = precision;
        rows.checked_mul(MOST_WORDS * depth.div_ceil(4) + 1)
            .filter(|&words| words <= isize::MAX as usize / 4)
            .ok_or(GemmError::TooLarge)
    }

    /// Rounds the rows of `x`, with any strides, for products on `isa`. What `buffer` holds does not matter.
    ///
    /// # Errors
    /// As [`QuantizedActivations::len`]; the buffer is shorter than that. Then nothing is written.
    pub fn quantize(
        isa: Isa,
        x: Matrix<'_>,
        precision: ActivationBits,
        buffer: &'a mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<Self, GemmError> {
        // Also said by `len`; here it keeps the code below out of builds without the feature.
        if !cfg!(feature = "int8") {
            return Err(GemmError::MissingFeature { feature: "int8" });
        }
        let (shape, workers) = ((x.rows(), x.columns()), parallelism.workers());
        let layout = |matrices| Layout::of(matrices, shape.0, shape.1, precision);
        let matrices = isa.matrices().and_then(|matrices| Some((matrices, layout(matrices)?)));
        if let Some((matrices, layout)) = matrices {
            #[cfg_attr(
                not(any(target_arch = "x86_64", target_arch = "aarch64")),
                allow(unused_variables)
            )]
            let round = |tiles: Quantize<'_, '_>| match matrices {
                #[cfg(target_arch = "x86_64")]
                MatrixUnit::Amx(amx) => amx.enter(ByRow(tiles)),
                #[cfg(target_arch = "aarch64")]
                MatrixUnit::Neon(neon) => neon.enter(ByPair(tiles)),
            };
            let read = Self::quantize_by((isa, layout), x, precision, buffer, workers, &round);
            return Ok(Self { matrices: Some(matrices), ..read? });
        }
        let round = |tiles: Quantize<'_, '_>| isa.dispatch_bytes(tiles);
        let set = (isa, Layout::new(isa, precision));
        Self::quantize_by(set, x, precision, buffer, workers, &round)
    }

    /// [`QuantizedActivations::quantize`] for a layout, of which `round` does some tiles.
    pub(super) fn quantize_by(
        (isa, layout): (Isa, Layout),
        x: Matrix<'_>,
        precision: ActivationBits,
        buffer: &'a mut [f32],
        workers: Workers<'_>,
        round: &(impl Fn(Quantize<'_, '_>) + Sync),
    ) -> Result<Self, GemmError> {
        let (rows, depth) = (x.rows(), x.columns());
        let expected = Self::len(rows, depth, precision)?;
        let found = buffer.len();
        let Some(buffer) = buffer.get_mut(..expected) else {
            return Err(GemmError::RowsLength { expected, found });
        };
        let row_words = depth.div_ceil(4) * layout.words;
        let all_words = rows.next_multiple_of(layout.unit) * row_words;
        let (words, rest) = buffer.split_at_mut(all_words);
        let scales = &mut rest[..rows];
        let tiles = layout.tiles(rows);
        let tasks = tiles.min((rows * depth).div_ceil(TASK));
        if rows == 0 {
            // No tile.
        } else if tasks <= 1 || workers.threads() == 1 {
            let tiles = 0..tiles;
            round(Quantize { x: &x, precision, layout, tiles, words, scales });
        } else {
            let (words, scales) = (SharedMut::new(words), SharedMut::new(scales));
            workers.for_each(tasks, &|task| {
                let own = share(tiles, tasks, task);
                let Range { start: first, end } = layout.rows_of(rows, own.clone());
                let count = end - first;
                let units = count.next_multiple_of(layout.unit);
                // SAFETY: rows of the buffer, and each tile is one task's.
                let (words, scales) = unsafe {
                    (words.part(first * row_words, units * row_words), scales.part(first, count))
                };
                round(Quantize { x: &x, precision, layout, tiles: own, words, scales });
            });
        }
        let (words, rest) = buffer.split_at(all_words);
        let scales = &rest[..rows];
        Ok(Self { isa, rows, depth, precision, layout, matrices: None, words, scales })
    }

    /// Rows.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row: the length of a sum.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// How they were rounded.
    pub const fn precision(&self) -> ActivationBits {
        self.precision
    }

    /// The instruction set they were laid out for.
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// What an integer of `row` stands for: zero for a row of zeros, NaN for one that is not finite. For tools
    /// that measure; NaN if there is no such row.
    pub fn row_scale(&self, row: usize) -> f32 {
        self.scales.get(row).copied().unwrap_or(f32::NAN)
    }

    /// What multiplies matrices of them, if they are laid out for that.
    pub(super) const fn matrices(&self) -> Option<MatrixUnit> {
        self.matrices
    }

    /// The rows of some tiles of pairs.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn of_pairs(&self, tiles: Range<usize>) -> Range<usize> {
        self.layout.rows_of(self.rows, tiles)
    }

    /// The words of the pairs of `rows`, those of a tile.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) fn pairs(&self, rows: Range<usize>) -> &'a [f32] {
        let row_words = self.depth.div_ceil(4) * self.layout.words;
        let end = rows.end.next_multiple_of(self.layout.unit);
        &self.words[rows.start * row_words..end * row_words]
    }

    /// Tiles that the rows are shared out to.
    pub(super) const fn tiles(&self) -> usize {
        self.layout.tiles(self.rows)
    }

    /// The words of `rows`, those of a tile.
    #[inline(always)]
    pub(super) fn words(&self, rows: Range<usize>) -> &'a [f32] {
        let row_words = self.depth.div_ceil(4) * self.layout.words;
        &self.words[rows.start * row_words..rows.end * row_words]
    }

    /// All words, and how many a row has: of those that lie one after the other.
    #[cfg(any(target_arch = "x86_64", test))]
    #[inline(always)]
    pub(super) const fn by_row(&self) -> (&'a [f32], usize) {
        (self.words, self.depth.div_ceil(4) * self.layout.words)
    }

    /// The rows of some tiles, if rows lie one after the other: all tiles but the last are whole.
    #[cfg(any(target_arch = "x86_64", test))]
    #[inline(always)]
    pub(super) fn of_blocks(&self, tiles: Range<usize>) -> Range<usize> {
        let row = |tile: usize| (tile * self.layout.tall).min(self.rows);
        row(tiles.start)..row(tiles.end)
    }

    /// The scales of `rows`.
    #[inline(always)]
    pub(super) fn scales(&self, rows: Range<usize>) -> &'a [f32] {
        &self.scales[rows]
    }
}

impl fmt::Debug for QuantizedActivations<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, depth, precision, isa, .. } = self;
        write!(f, "QuantizedActivations({rows} x {depth}, {precision:?}, {isa})")
    }
}
