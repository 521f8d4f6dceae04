//! int8 weights: [`QuantizedMatrix`], its panels, and how they are quantized. The
//! [`PruningTable`](crate::pruned_argmax::PruningTable) has the same panels.

use super::quantization::{LEVELS, MAX_DEPTH, Rounding, magnitude, round};
use crate::error::{Error, Expected};
use crate::gemm::pack_options::check_block;
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::simd::simd_op;
use crate::simd::u8_activations::U8_OFFSET;
use core::fmt;
use core::ops::Range;

/// A weight matrix `[depth, columns]` in int8, with one scale per column. The layout is the same on every instruction
/// set: panels of 32 columns. A panel has `[ceil(depth / 4)][32]` words of four consecutive values of a column, then 32
/// scales (f32), then 32 integers, which are -128 times the sum of the values of a column.
///
/// It takes slightly more than a quarter of the memory of the f32 matrix. Like a [`PackedMatrix`](crate::PackedMatrix)
/// it borrows its words: store a buffer of [`QuantizedMatrix::buffer_len`] floats and the shape, and create a view with
/// [`QuantizedMatrix::from_quantized`] for each use. The words are not numbers: copy them as bits. Kernels are fastest
/// when the buffer starts on a multiple of 64 bytes.
///
/// Words from another source are read as another matrix, with no other effect. If their integers are not -128 times the
/// sums of the values, the result differs between instruction sets.
///
/// ```
/// use simdformer_kernels::{QuantizedMatrix, Isa, Matrix};
///
/// // A weight stored `[out, in]`: three columns of two.
/// let weight = Matrix::new(&[1.0, -2.0, 3.0, 4.0, 0.0, 0.0], 3, 2)?;
/// let mut words = vec![0.0; QuantizedMatrix::buffer_len(2, 3)?];
/// let matrix = QuantizedMatrix::quantize(Isa::best(), weight.transposed(), &mut words)?;
/// assert_eq!((matrix.depth(), matrix.columns()), (2, 3));
/// assert_eq!(matrix.column_scale(0), 2.0 / 127.0);
/// let saved = words; // A file of them is valid on every machine of the same byte order.
/// assert_eq!(QuantizedMatrix::from_quantized(2, 3, &saved)?.column_scale(2), 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct QuantizedMatrix<'a>(Int8Panels<'a>);

impl<'a> QuantizedMatrix<'a> {
    /// Words of four bytes of a `[depth, columns]` matrix, on any instruction set. A buffer that begins at a multiple of
    /// 64 bytes is fastest: with AMX a product whose buffers all do takes about half of the time.
    ///
    /// # Errors
    /// The depth is so large that a sum might not fit 32 bits; [`Error::TooLarge`] if the size overflows;
    /// [`Error::Unsupported`] without the feature `int8`.
    pub fn buffer_len(depth: usize, columns: usize) -> Result<usize, Error> {
        let operand = "the quantized matrix";
        Int8Panels::len(operand, (depth, columns), MAX_DEPTH, SCALE_AND_OFFSET)
    }

    /// Quantizes `weight`, `[depth, columns]` with any strides. A matrix stored `[out, in]` is passed as
    /// `Matrix::new(data, out, in)?.transposed()`. The previous content of `buffer` does not matter. The bits do not
    /// depend on `isa`.
    ///
    /// # Errors
    /// As [`QuantizedMatrix::buffer_len`], or the buffer is shorter than that.
    pub fn quantize(isa: Isa, weight: Matrix<'_>, buffer: &'a mut [f32]) -> Result<Self, Error> {
        let (depth, columns) = (weight.rows(), weight.columns());
        let words = Self::buffer_len(depth, columns)?;
        Self::quantize_block(isa, weight, (depth, columns), 0, buffer)?;
        // The buffer may be longer than `words`; `quantize_block` checked that it is not shorter.
        Self::from_quantized(depth, columns, buffer.get(..words).unwrap_or(&[]))
    }

    /// Quantizes `block`, `[depth, n]`, as columns `first..first + n` of a matrix of `shape = (depth, columns)` in
    /// `buffer`. It fuses several matrices, or quantizes one that arrives in pieces. The block with the last column
    /// also writes the zero columns after it.
    ///
    /// # Errors
    /// The buffer is too short, or the block does not fit the shape. Nothing is written then.
    ///
    /// ```
    /// use simdformer_kernels::{QuantizedMatrix, Isa, Matrix};
    ///
    /// // Query, key and value projections of two columns each as one matrix of six.
    /// let (isa, shape) = (Isa::best(), (2, 6));
    /// let mut words = vec![0.0; QuantizedMatrix::buffer_len(2, 6)?];
    /// for (index, projection) in [[1.0, 0.0, 0.0, 1.0], [2.0; 4], [3.0; 4]].iter().enumerate() {
    ///     let block = Matrix::new(projection, 2, 2)?;
    ///     QuantizedMatrix::quantize_block(isa, block, shape, 2 * index, &mut words)?;
    /// }
    /// let fused = QuantizedMatrix::from_quantized(2, 6, &words)?;
    /// assert_eq!(fused.column_scale(5), 3.0 / 127.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quantize_block(
        isa: Isa,
        block: Matrix<'_>,
        shape: (usize, usize),
        first: usize,
        buffer: &mut [f32],
    ) -> Result<(), Error> {
        // `len` also checks this. The check here removes the code below from builds without the feature.
        if !cfg!(feature = "int8") {
            return Err(Error::NO_INT8);
        }
        let (depth, columns) = shape;
        let expected = Self::buffer_len(depth, columns)?;
        Error::check_min_len("buffer", expected, buffer)?;
        let buffer = &mut buffer[..expected];
        let end = check_block(block.shape(), shape, first)?;
        // The zero columns after the last column belong to the last block.
        let end = if end == columns { end.next_multiple_of(PANEL) } else { end };
        let panel_len = Int8Panels::panel_len(depth, SCALE_AND_OFFSET);
        let mut column = first;
        while column < end {
            let panel = column / PANEL;
            let count = end.min((panel + 1) * PANEL) - column;
            let panel = &mut buffer[panel * panel_len..][..panel_len];
            let (first, place) = (column - first, column % PANEL);
            isa.dispatch(quantize_columns(&block, first, panel, place..place + count));
            column += count;
        }
        Ok(())
    }

    /// A view of a matrix that was quantized before, on any instruction set, for example one that was read from a file.
    ///
    /// # Errors
    /// As [`QuantizedMatrix::buffer_len`], or `data` has another length than that.
    pub fn from_quantized(depth: usize, columns: usize, data: &'a [f32]) -> Result<Self, Error> {
        let expected = Self::buffer_len(depth, columns)?;
        Error::check_len("data", expected, data)?;
        Ok(Self(Int8Panels::new(data, depth, columns, SCALE_AND_OFFSET)))
    }

    /// Rows of the matrix: the length of a sum.
    pub const fn depth(&self) -> usize {
        self.0.depth()
    }

    /// Columns of the matrix.
    pub const fn columns(&self) -> usize {
        self.0.columns()
    }

    /// The scale of `column`, which is the value of the integer 1: zero for a column of zeros, NaN for a column that is
    /// not finite, and NaN if there is no such column. For measurement tools.
    pub fn column_scale(&self, column: usize) -> f32 {
        if column >= self.columns() {
            return f32::NAN;
        }
        self.0.panel(column / PANEL).1[0][column % PANEL]
    }

    pub(super) const fn panels(&self) -> usize {
        self.0.panels()
    }

    /// The address of `panel`, for any index. After the last panel it must not be read.
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize) -> *const f32 {
        self.0.address(panel)
    }

    /// The words of `panel`: values, scales and offsets.
    #[cfg(any(vectors = "x86_64", vectors = "aarch64", test))]
    #[inline(always)]
    pub(super) fn parts(&self, panel: usize) -> (&'a [f32], &'a [f32; PANEL], &'a [f32; PANEL]) {
        match self.0.panel(panel) {
            (words, [scales, offsets]) => (words, scales, offsets),
            _ => unreachable!("{SCALE_AND_OFFSET} statistics"),
        }
    }
}

impl fmt::Debug for QuantizedMatrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuantizedMatrix({} x {})", self.depth(), self.columns())
    }
}

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

    /// Words of the panels of a matrix that errors call `operand`.
    ///
    /// # Errors
    /// The depth is larger than `max_depth`; the words exceed the address space; the feature `int8` is off.
    pub(crate) fn len(
        operand: &'static str,
        (depth, columns): (usize, usize),
        max_depth: usize,
        statistics: usize,
    ) -> Result<usize, Error> {
        if !cfg!(feature = "int8") {
            return Err(Error::NO_INT8);
        }
        Error::check_size("depth", operand, Expected::AtMost(max_depth), depth)?;
        let words = columns.div_ceil(PANEL).checked_mul(Self::panel_len(depth, statistics));
        words.filter(|&words| words <= isize::MAX as usize / 4).ok_or(Error::TooLarge { operand })
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

simd_op!(
    /// Quantizes columns of a matrix, from `first` on, into columns `places` of a panel: words, scales and offsets. Columns
    /// after the last one of the matrix are zeros.
    pub(crate) fn quantize_columns<S: SimdF32, C: Columns>(
        _s: S,
        from: &C,
        first: usize,
        panel: &mut [f32],
        places: Range<usize>,
    ) {
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
            *to = f32::from_bits(sum.wrapping_mul(-U8_OFFSET).cast_unsigned());
        }
    }
);
