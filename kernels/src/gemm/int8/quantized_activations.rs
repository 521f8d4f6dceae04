//! The activations: rows that are quantized at run time.

#[cfg(vectors = "aarch64")]
use super::pack_activations::quantize_by_pair;
#[cfg(vectors = "x86_64")]
use super::pack_activations::quantize_by_row;
use super::pack_activations::{Layout, MAX_WORDS, Quantize, quantize_tiles};
use super::quantization::{MAX_DEPTH, Quantization};
use crate::error::{Error, Expected};
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::{Exec, Workers, share, work_to_share};
use crate::simd::matrix_unit::MatrixUnit;
use crate::sync_ptr::SharedMut;
use core::fmt;
use core::ops::Range;

/// Approximate number of elements in one task: a few microseconds of work.
const TASK: usize = work_to_share(1 << 15);

/// Activations `[rows, depth]`, quantized with one scale per row, in the layout of one instruction set. Several
/// products may read them: query, key and value; gate and inner.
///
/// It borrows the words of a buffer of [`QuantizedActivations::buffer_len`] words. The length does not depend on the
/// instruction set.
///
/// ```
/// use simdformer_kernels::{Exec, Isa, Matrix, Quantization, QuantizedActivations};
///
/// let (x, precision) = ([1.0, -2.0, 3.0, 0.5, 0.0, 1.0], Quantization::W8A16);
/// let mut buffer = vec![0.0; QuantizedActivations::buffer_len(2, 3, precision)?];
/// let x = Matrix::new(&x, 2, 3)?;
/// let rows =
///     QuantizedActivations::quantize(Exec::serial(Isa::best()), x, precision, &mut buffer)?;
/// assert_eq!((rows.rows(), rows.depth(), rows.precision()), (2, 3, precision));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct QuantizedActivations<'a> {
    isa: Isa,
    rows: usize,
    depth: usize,
    precision: Quantization,
    layout: Layout,
    /// The matrix unit, if the layout is for one.
    matrices: Option<MatrixUnit>,
    /// The tiles in order, or the rows in order.
    words: &'a [f32],
    /// One scale per row.
    scales: &'a [f32],
}

impl<'a> QuantizedActivations<'a> {
    /// Words of four bytes of the quantized rows, on any instruction set. A buffer that begins at a multiple of 64 bytes
    /// is fastest, as for [`QuantizedMatrix::buffer_len`](super::QuantizedMatrix::buffer_len). For AMX, all rows then begin at one if the
    /// depth is a multiple of 64.
    ///
    /// # Errors
    /// The depth is so large that a sum might not fit 32 bits; [`Error::TooLarge`] if the size overflows;
    /// [`Error::Unsupported`] without the feature `int8`.
    pub fn buffer_len(rows: usize, depth: usize, precision: Quantization) -> Result<usize, Error> {
        if !cfg!(feature = "int8") {
            return Err(Error::NO_INT8);
        }
        Error::check_size(
            "depth",
            "the quantized activations",
            Expected::AtMost(MAX_DEPTH),
            depth,
        )?;
        // The size is the same for both precisions: instruction sets that widen int8 before they multiply store 16 bits
        // for 8-bit rows too.
        let (Quantization::W8A8 | Quantization::W8A16) = precision;
        rows.checked_mul(MAX_WORDS * depth.div_ceil(4) + 1)
            .filter(|&words| words <= isize::MAX as usize / 4)
            .ok_or(Error::TooLarge { operand: "the quantized activations" })
    }

    /// Quantizes the rows of `x`, with any strides, for products on `isa`. The previous content of `buffer` does not
    /// matter.
    ///
    /// # Errors
    /// As [`QuantizedActivations::buffer_len`], or the buffer is shorter than that. Nothing is written then.
    pub fn quantize(
        exec: Exec<'_>,
        x: Matrix<'_>,
        precision: Quantization,
        buffer: &'a mut [f32],
    ) -> Result<Self, Error> {
        let Exec { isa, threads } = exec;
        // `len` also checks this. The check here removes the code below from builds without the feature.
        if !cfg!(feature = "int8") {
            return Err(Error::NO_INT8);
        }
        let (shape, workers) = ((x.rows(), x.columns()), threads.workers());
        let layout = |matrices| Layout::for_matrix_unit(matrices, shape.0, shape.1, precision);
        let matrices = isa.matrices().and_then(|matrices| Some((matrices, layout(matrices)?)));
        if let Some((matrices, layout)) = matrices {
            #[cfg_attr(not(any(vectors = "x86_64", vectors = "aarch64")), allow(unused_variables))]
            let round = |tiles: Quantize<'_, '_>| match matrices {
                #[cfg(vectors = "x86_64")]
                MatrixUnit::Amx(amx) => amx.enter(quantize_by_row(tiles)),
                #[cfg(vectors = "aarch64")]
                MatrixUnit::Neon(neon) => neon.enter(quantize_by_pair(tiles)),
            };
            let read = Self::quantize_by((isa, layout), x, precision, buffer, workers, &round);
            return Ok(Self { matrices: Some(matrices), ..read? });
        }
        let round = |tiles: Quantize<'_, '_>| isa.dispatch_bytes(quantize_tiles(tiles));
        let set = (isa, Layout::new(isa, precision));
        Self::quantize_by(set, x, precision, buffer, workers, &round)
    }

    /// [`QuantizedActivations::quantize`] to 8 bits, on the calling thread, in tiles of at most `Int8Dot::ROWS` rows,
    /// which are multiplied by whole panels.
    pub(crate) fn quantize_for_panels(
        isa: Isa,
        x: Matrix<'_>,
        buffer: &'a mut [f32],
    ) -> Result<Self, Error> {
        let round = |tiles: Quantize<'_, '_>| isa.dispatch_bytes(quantize_tiles(tiles));
        let set = (isa, Layout::of_panels(isa));
        Self::quantize_by(set, x, Quantization::W8A8, buffer, Workers::SERIAL, &round)
    }

    /// [`QuantizedActivations::quantize`] for a given layout. `round` quantizes some tiles.
    pub(super) fn quantize_by(
        (isa, layout): (Isa, Layout),
        x: Matrix<'_>,
        precision: Quantization,
        buffer: &'a mut [f32],
        workers: Workers<'_>,
        round: &(impl Fn(Quantize<'_, '_>) + Sync),
    ) -> Result<Self, Error> {
        let (rows, depth) = (x.rows(), x.columns());
        let expected = Self::buffer_len(rows, depth, precision)?;
        Error::check_min_len("buffer", expected, buffer)?;
        let buffer = &mut buffer[..expected];
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
                // SAFETY: `words` and `scales` have all rows and units of `layout`, and `share` gives each tile to one
                // task.
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

    /// Number of rows.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Elements per row: the length of a sum.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// The precision of the quantization.
    pub const fn precision(&self) -> Quantization {
        self.precision
    }

    /// The instruction set of the layout.
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// The scale of `row`, which is the value of the integer 1: zero for a row of zeros, NaN for a row that is not
    /// finite, and NaN if there is no such row. For measurement tools.
    pub fn row_scale(&self, row: usize) -> f32 {
        self.scales.get(row).copied().unwrap_or(f32::NAN)
    }

    /// The matrix unit, if the layout is for one.
    pub(super) const fn matrices(&self) -> Option<MatrixUnit> {
        self.matrices
    }

    /// The rows of some tiles, in the layout of pairs.
    #[cfg(vectors = "aarch64")]
    #[inline(always)]
    pub(super) fn of_pairs(&self, tiles: Range<usize>) -> Range<usize> {
        self.layout.rows_of(self.rows, tiles)
    }

    /// The words of the pairs of `rows`, the rows of a tile.
    #[cfg(vectors = "aarch64")]
    #[inline(always)]
    pub(super) fn pairs(&self, rows: Range<usize>) -> &'a [f32] {
        let row_words = self.depth.div_ceil(4) * self.layout.words;
        let end = rows.end.next_multiple_of(self.layout.unit);
        &self.words[rows.start * row_words..end * row_words]
    }

    /// Number of tiles of rows.
    pub(crate) const fn tiles(&self) -> usize {
        self.layout.tiles(self.rows)
    }

    /// The words of `rows`, the rows of a tile.
    #[inline(always)]
    pub(crate) fn words(&self, rows: Range<usize>) -> &'a [f32] {
        let row_words = self.depth.div_ceil(4) * self.layout.words;
        &self.words[rows.start * row_words..rows.end * row_words]
    }

    /// All words, and the number of words per row, in the row-by-row layout.
    #[cfg(any(vectors = "x86_64", test))]
    #[inline(always)]
    pub(super) const fn by_row(&self) -> (&'a [f32], usize) {
        (self.words, self.depth.div_ceil(4) * self.layout.words)
    }

    /// The rows of some tiles, in the row-by-row layout. All tiles except the last are full.
    #[cfg(any(vectors = "x86_64", test))]
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
