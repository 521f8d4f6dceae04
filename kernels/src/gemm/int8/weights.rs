//! int8 weights.

use super::panel::{Int8Panels, PANEL, QuantizeColumns, SCALE_AND_OFFSET};
use super::quantization::MAX_DEPTH;
use crate::error::{Error, Expected};
use crate::gemm::packing::check_block;
use crate::isa::Isa;
use crate::matrix::Matrix;
use core::fmt;

/// A weight matrix `[depth, columns]` in int8, with one scale per column. The layout is the same on every instruction
/// set: panels of 32 columns. A panel has `[ceil(depth / 4)][32]` words of four consecutive values of a column, then 32
/// scales (f32), then 32 integers, which are -128 times the sum of the values of a column.
///
/// It takes slightly more than a quarter of the memory of the f32 matrix. Like a [`PackedMatrix`](crate::PackedMatrix)
/// it borrows its words: store a buffer of [`QuantizedMatrix::len`] floats and the shape, and create a view with
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
/// let mut words = vec![0.0; QuantizedMatrix::len(2, 3)?];
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
    /// Words of four bytes of a `[depth, columns]` matrix, on any instruction set.
    ///
    /// # Errors
    /// The depth is so large that a sum might not fit 32 bits; [`Error::TooLarge`] if the size overflows;
    /// [`Error::MissingFeature`] without the feature `int8`.
    pub fn len(depth: usize, columns: usize) -> Result<usize, Error> {
        if !cfg!(feature = "int8") {
            return Err(Error::MissingFeature { feature: "int8" });
        }
        Error::check_size("depth", "the quantized matrix", Expected::AtMost(MAX_DEPTH), depth)?;
        Int8Panels::len(depth, columns, SCALE_AND_OFFSET)
            .ok_or(Error::TooLarge { operand: "the quantized matrix" })
    }

    /// Quantizes `weight`, `[depth, columns]` with any strides. A matrix stored `[out, in]` is passed as
    /// `Matrix::new(data, out, in)?.transposed()`. The previous content of `buffer` does not matter. The bits do not
    /// depend on `isa`.
    ///
    /// # Errors
    /// As [`QuantizedMatrix::len`], or the buffer is shorter than that.
    pub fn quantize(isa: Isa, weight: Matrix<'_>, buffer: &'a mut [f32]) -> Result<Self, Error> {
        let (depth, columns) = (weight.rows(), weight.columns());
        let words = Self::len(depth, columns)?;
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
    /// let mut words = vec![0.0; QuantizedMatrix::len(2, 6)?];
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
            return Err(Error::MissingFeature { feature: "int8" });
        }
        let (depth, columns) = shape;
        let expected = Self::len(depth, columns)?;
        Error::check_min_len("the quantized matrix", expected, buffer)?;
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
            isa.run(QuantizeColumns { from: &block, first, panel, places: place..place + count });
            column += count;
        }
        Ok(())
    }

    /// A view of a matrix that was quantized before, on any instruction set, for example one that was read from a file.
    ///
    /// # Errors
    /// As [`QuantizedMatrix::len`], or `data` has another length than that.
    pub fn from_quantized(depth: usize, columns: usize, data: &'a [f32]) -> Result<Self, Error> {
        let expected = Self::len(depth, columns)?;
        Error::check_len("the quantized matrix", expected, data)?;
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
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", test))]
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
