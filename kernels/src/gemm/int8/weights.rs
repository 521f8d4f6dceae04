//! Weights in eight bits.

use super::activation_bits::MOST_DEPTH;
use super::quantize_weights::{Columns, PANEL, SCALES, panel_words};
use crate::gemm::error::GemmError;
use crate::isa::Isa;
use crate::matrix::Matrix;
use core::fmt;

/// A weight matrix `[depth, columns]` in signed bytes, with one scale a column. The layout is the same on
/// every instruction set: panels of 32 columns, `[ceil(depth / 4)][32]` words of four consecutive bytes of a column,
/// then 32 scales (f32), then 32 integers, -128 times the sum of a column's bytes.
///
/// A quarter of the memory of the floats, and a little. Like a
/// [`PackedMatrix`](crate::PackedMatrix) it borrows its words: own a buffer of [`QuantizedMatrix::len`] floats with
/// the shape, and make a view with [`QuantizedMatrix::from_quantized`] where it is used. Words are no numbers:
/// copy them as bits. Kernels are fastest when they start on a multiple of 64 bytes.
///
/// Words that nothing here wrote are another matrix, no more; where the integers are not those of the
/// bytes, not the same one on every instruction set.
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
/// let kept = words; // In a file, for any machine of the same byte order.
/// assert_eq!(QuantizedMatrix::from_quantized(2, 3, &kept)?.column_scale(2), 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct QuantizedMatrix<'a> {
    data: &'a [f32],
    depth: usize,
    columns: usize,
}

impl<'a> QuantizedMatrix<'a> {
    /// Words of four bytes that a `[depth, columns]` matrix takes, on any instruction set.
    ///
    /// # Errors
    /// [`GemmError::TooDeep`] for sums that might not fit 32 bits; the product overflows;
    /// [`GemmError::MissingFeature`] without the feature `int8`.
    pub fn len(depth: usize, columns: usize) -> Result<usize, GemmError> {
        if !cfg!(feature = "int8") {
            return Err(GemmError::MissingFeature { feature: "int8" });
        }
        if depth > MOST_DEPTH {
            return Err(GemmError::TooDeep { expected_at_most: MOST_DEPTH, found: depth });
        }
        columns
            .div_ceil(PANEL)
            .checked_mul(panel_words(depth))
            .filter(|&words| words <= isize::MAX as usize / 4)
            .ok_or(GemmError::TooLarge)
    }

    /// Rounds `weight`, `[depth, columns]` with any strides. A matrix stored `[out, in]` is
    /// `Matrix::new(data, out, in)?.transposed()`. What `buffer` holds does not matter, nor does `isa` to
    /// the bits.
    ///
    /// # Errors
    /// As [`QuantizedMatrix::len`]; the buffer is shorter than that.
    pub fn quantize(
        isa: Isa,
        weight: Matrix<'_>,
        buffer: &'a mut [f32],
    ) -> Result<Self, GemmError> {
        let (depth, columns) = (weight.rows(), weight.columns());
        let words = Self::len(depth, columns)?;
        Self::quantize_block(isa, weight, (depth, columns), 0, buffer)?;
        // The buffer may be longer; it was checked to have this many.
        Self::from_quantized(depth, columns, buffer.get(..words).unwrap_or(&[]))
    }

    /// Rounds `block`, `[depth, n]`, as columns `first..first + n` of a matrix of `shape = (depth, columns)`
    /// in `buffer`: several matrices side by side, or one that arrives piece by piece. The block that
    /// holds the last column also writes the columns of zeros after it.
    ///
    /// # Errors
    /// The buffer is too short, or the block does not fit the shape; then nothing is written.
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
    ) -> Result<(), GemmError> {
        // Also said by `len`; here it keeps the code below out of builds without the feature.
        if !cfg!(feature = "int8") {
            return Err(GemmError::MissingFeature { feature: "int8" });
        }
        let (depth, columns) = shape;
        let expected = Self::len(depth, columns)?;
        let found = buffer.len();
        let Some(buffer) = buffer.get_mut(..expected) else {
            return Err(GemmError::PackedLength { expected, found });
        };
        let end = first.saturating_add(block.columns());
        if block.rows() != depth || end > columns {
            return Err(GemmError::PackedBlock { expected: shape, found: (block.rows(), end) });
        }
        // The zeros after the last column are columns of the last block.
        let end = if end == columns { end.next_multiple_of(PANEL) } else { end };
        let mut column = first;
        while column < end {
            let panel = column / PANEL;
            let count = end.min((panel + 1) * PANEL) - column;
            let words = &mut buffer[panel * panel_words(depth)..][..panel_words(depth)];
            let (from, place) = (column - first, column % PANEL);
            isa.run(Columns { block: &block, from, words, places: place..place + count });
            column += count;
        }
        Ok(())
    }

    /// A matrix that was rounded before, on any instruction set, or read back from where its words were kept.
    ///
    /// # Errors
    /// As [`QuantizedMatrix::len`]; `data` has another length than that.
    pub fn from_quantized(
        depth: usize,
        columns: usize,
        data: &'a [f32],
    ) -> Result<Self, GemmError> {
        let expected = Self::len(depth, columns)?;
        if data.len() != expected {
            return Err(GemmError::PackedLength { expected, found: data.len() });
        }
        Ok(Self { data, depth, columns })
    }

    /// Rows of the matrix: the length of a sum.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Columns of the matrix.
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// What a byte of `column` stands for: zero for a column of zeros, NaN for one that is not finite. For
    /// tools that measure; NaN if there is no such column.
    pub fn column_scale(&self, column: usize) -> f32 {
        let words = panel_words(self.depth);
        let at = column / PANEL * words + words - SCALES + column % PANEL;
        if column < self.columns { self.data[at] } else { f32::NAN }
    }

    pub(super) const fn panels(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }

    /// The words of `panel`, for any index: beyond the last it is no place to read.
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize) -> *const f32 {
        self.data.as_ptr().wrapping_add(panel * panel_words(self.depth))
    }

    /// The words of `panel`: bytes, scales and offsets.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", test))]
    #[inline(always)]
    pub(super) fn parts(&self, panel: usize) -> (&'a [f32], &'a [f32; PANEL], &'a [f32; PANEL]) {
        let words = panel_words(self.depth);
        let (words, facts) = self.data[panel * words..][..words].split_at(words - SCALES);
        match (facts.first_chunk(), facts.last_chunk()) {
            (Some(scales), Some(offsets)) => (words, scales, offsets),
            _ => unreachable!("{SCALES} words"),
        }
    }
}

impl fmt::Debug for QuantizedMatrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuantizedMatrix({} x {})", self.depth, self.columns)
    }
}
