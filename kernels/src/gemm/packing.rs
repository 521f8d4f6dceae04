//! Packed weights, and how weights are packed into the caller's buffer.

use super::pack_f16::{self, F16Column};
use super::pack_f32;
use super::weight_source::PackSource;
use crate::dtype::Dtype;
use crate::error::{Error, Expected};
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::{Parallelism, Workers};
use core::fmt;

/// A weight matrix `[depth, columns]` in the layout of one instruction set: `[ceil(columns / panel)][depth][panel]`,
/// with zero columns at the end. The dtype is f32 or 16-bit ([`Dtype`]); 16-bit values are stored with two rows in each
/// `[panel]`.
///
/// The buffer may have any alignment. Kernels are fastest when it starts on a multiple of 64 bytes.
///
/// A `PackedMatrix` borrows its floats. The owner of a weight stores the floats, the instruction set and the shape, and
/// creates a view for each call, which only checks the length. [`Linear`](crate::Linear) is such an owner. The
/// functions of this type pack f32 on the calling thread; [`PackOptions`] has the other dtypes and threads.
///
/// ```
/// use simdformer_kernels::{
///     Epilogue, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, gemm,
/// };
///
/// // A weight stored `[out, in]`. The source is not used after it was packed.
/// let (isa, weight) = (Isa::best(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// let mut floats = vec![0.0; PackedMatrix::buffer_len(isa, 2, 3)?];
/// PackedMatrix::pack(isa, Matrix::new(&weight, 3, 2)?.transposed(), &mut floats)?;
///
/// let weight = PackedMatrix::from_packed(isa, 2, 3, &floats)?;
/// let (x, mut y) = ([1.0, 10.0], [0.0; 3]);
/// let c = MatrixMut::new(&mut y, 1, 3)?;
/// gemm(Matrix::new(&x, 1, 2)?, &weight, &Epilogue::default(), c, Parallelism::Serial)?;
/// assert_eq!(y, [21.0, 43.0, 65.0]);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct PackedMatrix<'a> {
    data: &'a [f32],
    depth: usize,
    columns: usize,
    isa: Isa,
    dtype: Dtype,
}

impl<'a> PackedMatrix<'a> {
    /// Floats of a packed f32 matrix `[depth, columns]` on `isa`: `depth` times the number of columns rounded up to
    /// whole panels of [`Isa::panel`].
    ///
    /// # Errors
    /// The product overflows.
    pub fn buffer_len(isa: Isa, depth: usize, columns: usize) -> Result<usize, Error> {
        PackOptions::default().buffer_len(isa, depth, columns)
    }

    /// Packs `weight`, `[depth, columns]` with any strides. A matrix stored `[out, in]` is packed as
    /// `Matrix::new(data, out, in)?.transposed()`. The previous content of `buffer` does not matter. Values are copied
    /// bit for bit.
    ///
    /// # Errors
    /// The buffer is shorter than [`PackedMatrix::buffer_len`].
    pub fn pack(isa: Isa, weight: Matrix<'_>, buffer: &'a mut [f32]) -> Result<Self, Error> {
        PackOptions::default().pack(isa, weight, buffer)
    }

    /// [`PackedMatrix::pack`] with the workers of an enclosing call.
    pub(super) fn pack_by(
        isa: Isa,
        weight: Matrix<'_>,
        buffer: &'a mut [f32],
        workers: Workers<'_>,
    ) -> Result<Self, Error> {
        let (depth, columns) = (weight.rows(), weight.columns());
        let floats = Self::buffer_len(isa, depth, columns)?;
        Error::check_min_len("buffer", floats, buffer)?;
        let buffer = &mut buffer[..floats];
        if floats > 0 {
            pack_f32::pack(isa, weight, columns, 0, buffer, workers);
        }
        Self::from_packed(isa, depth, columns, buffer)
    }

    /// Packs `block`, `[depth, n]`, into panels from the start of `to` on. The panels contain no other block.
    #[cfg(feature = "train")]
    pub(super) fn pack_whole(isa: Isa, block: Matrix<'_>, to: &mut [f32]) {
        let columns = block.columns();
        debug_assert!(to.len() >= columns.next_multiple_of(isa.panel()) * block.rows());
        pack_f32::pack(isa, block, columns, 0, to, Workers::SERIAL);
    }

    /// A view of an f32 matrix that was packed before for the same instruction set, for example one that was read from
    /// a file.
    ///
    /// `data` has exactly [`PackedMatrix::buffer_len`] floats. Another length means another instruction set, dtype or shape.
    /// Floats of the same length that were packed differently cannot be detected; they are read as another matrix.
    ///
    /// # Errors
    /// The length of `data` is not [`PackedMatrix::buffer_len`].
    pub fn from_packed(
        isa: Isa,
        depth: usize,
        columns: usize,
        data: &'a [f32],
    ) -> Result<Self, Error> {
        PackOptions::default().from_packed(isa, depth, columns, data)
    }

    /// Rows of the matrix: the length of a sum.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Columns of the matrix.
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// The instruction set that the matrix was packed for.
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// The dtype of the matrix.
    pub const fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The start of row `k` of panel `panel`. With a 16-bit dtype `k` must be even, and the address is that of rows `k`
    /// and `k + 1`.
    #[inline(always)]
    pub(super) fn address(&self, panel: usize, k: usize) -> *const f32 {
        let row = panel * self.dtype.words(self.depth) + self.dtype.words(k);
        self.data.as_ptr().wrapping_add(row * self.isa.panel())
    }

    /// Copies row `k` into `to`, widened to f32: the packed values.
    ///
    /// # Errors
    /// The matrix has no row `k`, or the length of `to` is not its number of columns.
    ///
    /// ```
    /// use simdformer_kernels::{Isa, Matrix, PackedMatrix};
    ///
    /// let isa = Isa::best();
    /// let mut buffer = vec![0.0; PackedMatrix::buffer_len(isa, 2, 3)?];
    /// let weight = Matrix::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3)?;
    /// let packed = PackedMatrix::pack(isa, weight, &mut buffer)?;
    /// let mut row = [0.0; 3];
    /// packed.unpack_row(1, &mut row)?;
    /// assert_eq!(row, [4.0, 5.0, 6.0]);
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    pub fn unpack_row(&self, k: usize, to: &mut [f32]) -> Result<(), Error> {
        Error::check_size("row", "the packed matrix", Expected::Below(self.depth), k)?;
        Error::check_len("to", self.columns, to)?;
        self.copy_row(k, 0, to);
        Ok(())
    }

    /// Copies row `k` from column `first` on into `to`. `to` must not extend past the last column.
    #[inline(always)]
    pub(crate) fn copy_row(&self, k: usize, first: usize, to: &mut [f32]) {
        let panel = self.isa.panel();
        let (mut column, mut rest) = (first, to);
        if self.dtype != Dtype::F32 {
            // A part is within one vector of columns, where positions have a constant stride.
            let lanes = self.isa.lanes();
            while !rest.is_empty() {
                let (part, after) = rest.split_at_mut(rest.len().min(lanes - column % lanes));
                let positions = F16Column::of_column(self.isa, self.dtype, self.depth, column);
                let step = if self.dtype == Dtype::F16 { 1 } else { 2 };
                for (i, to) in part.iter_mut().enumerate() {
                    let at = positions.row(k) + i * step;
                    // SAFETY: `first + to.len()` is at most the number of columns and `k` is below `depth`, as the
                    // documentation of this function requires, so the position is inside `data`.
                    *to = self.dtype.widen(unsafe { *self.data.as_ptr().cast::<u16>().add(at) });
                }
                (column, rest) = (column + lanes - column % lanes, after);
            }
            return;
        }
        while !rest.is_empty() {
            // A panel width is a power of two. A division would take as long as the copy.
            let within = column & (panel - 1);
            let (part, after) = rest.split_at_mut(rest.len().min(panel - within));
            let from = (column - within) * self.depth + k * panel + within;
            let from = &self.data[from..from + part.len()];
            // A panel has at least eight columns. A copy of eight floats is inlined; a copy of unknown length would be
            // a function call.
            let (chunks, tail) = part.as_chunks_mut::<8>();
            let (from_chunks, from_tail) = from.as_chunks::<8>();
            chunks.iter_mut().zip(from_chunks).for_each(|(to, from)| *to = *from);
            tail.iter_mut().zip(from_tail).for_each(|(to, from)| *to = *from);
            (column, rest) = (column + part.len(), after);
        }
    }

    /// A reader of column `column`.
    #[inline(always)]
    pub(crate) fn column(&self, column: usize) -> Column {
        let panel = self.isa.panel();
        if self.dtype == Dtype::F32 {
            let start = (column - column % panel) * self.depth + column % panel;
            return Column::F32 { start: self.data.as_ptr().wrapping_add(start), step: panel };
        }
        let positions = F16Column::of_column(self.isa, self.dtype, self.depth, column);
        Column::F16 { data: self.data.as_ptr().cast(), positions, dtype: self.dtype }
    }
}

/// How a weight is packed. The default is f32 on the calling thread.
///
/// ```
/// use simdformer_kernels::{
///     Dtype, Epilogue, Isa, Matrix, MatrixMut, PackOptions, Parallelism, gemm,
/// };
///
/// let (isa, serial) = (Isa::best(), Parallelism::Serial);
/// let options = PackOptions { dtype: Dtype::F16, parallelism: serial };
/// let weight = Matrix::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3)?;
/// let mut buffer = vec![0.0; options.buffer_len(isa, 2, 3)?];
/// let packed = options.pack(isa, weight, &mut buffer)?;
///
/// let mut y = [0.0; 3];
/// let x = Matrix::new(&[1.0, 10.0], 1, 2)?;
/// gemm(x, &packed, &Epilogue::default(), MatrixMut::new(&mut y, 1, 3)?, serial)?;
/// assert_eq!(y, [41.0, 52.0, 63.0]);
///
/// // A value that f16 cannot represent is an error.
/// let large = [1e5; 6];
/// assert!(options.pack(isa, Matrix::new(&large, 2, 3)?, &mut buffer).is_err());
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PackOptions<'p> {
    /// The dtype of the packed matrix. Values are rounded as described at [`Dtype`]; values that the dtype can
    /// represent do not change. Infinities stay infinities. A NaN stays a NaN with the same sign and the upper bits of
    /// its payload, and becomes quiet.
    pub dtype: Dtype,
    /// The threads that pack, for weights that change. The result does not depend on them.
    pub parallelism: Parallelism<'p>,
}

impl PackOptions<'_> {
    /// `dtype` on the calling thread.
    pub const fn new(dtype: Dtype) -> Self {
        Self { dtype, parallelism: Parallelism::Serial }
    }

    /// Words of four bytes of a packed `[depth, columns]` matrix on `isa`. A 16-bit dtype takes half as many words as
    /// f32, and an odd depth is rounded up.
    ///
    /// # Errors
    /// The product overflows; [`Error::MissingFeature`] for a 16-bit dtype without the feature `f16`.
    pub fn buffer_len(&self, isa: Isa, depth: usize, columns: usize) -> Result<usize, Error> {
        if !self.dtype.is_enabled() {
            return Err(Error::MissingFeature { feature: "f16" });
        }
        columns
            .div_ceil(isa.panel())
            .checked_mul(isa.panel())
            .and_then(|padded| padded.checked_mul(self.dtype.words(depth)))
            .filter(|&floats| floats <= isize::MAX as usize / 4)
            .ok_or(Error::TooLarge { operand: "the packed matrix" })
    }

    /// Packs `weight`, `[depth, columns]`: a [`Matrix`] with any strides, or a [`PackSource`] of 16-bit values. The
    /// previous content of `buffer` does not matter.
    ///
    /// # Errors
    /// The buffer is shorter than [`PackOptions::buffer_len`]; [`Error::ValueTooLarge`] for a finite value that would round to
    /// infinity (for f16, a magnitude of 65,520 or more). Nothing is written then.
    pub fn pack<'s, 'b>(
        &self,
        isa: Isa,
        weight: impl Into<PackSource<'s>>,
        buffer: &'b mut [f32],
    ) -> Result<PackedMatrix<'b>, Error> {
        let weight = weight.into();
        let [depth, columns] = weight.shape();
        let words = self.buffer_len(isa, depth, columns)?;
        self.pack_columns(isa, weight, (depth, columns), 0, buffer)?;
        // `pack_columns` checked that the buffer is not shorter.
        self.from_packed(isa, depth, columns, &buffer[..words])
    }

    /// Packs `block`, `[depth, n]`, as columns `first..first + n` of a matrix of `shape = (depth, columns)` in
    /// `buffer`. It fuses several matrices, or packs one that arrives in pieces. The block with the last column also
    /// writes the zero columns after it. [`PackOptions::from_packed`] makes a matrix of the buffer.
    ///
    /// # Errors
    /// As [`PackOptions::pack`], or the block does not fit the shape. Nothing is written then.
    ///
    /// ```
    /// use simdformer_kernels::{
    ///     Epilogue, Isa, Matrix, MatrixMut, PackOptions, Parallelism, gemm,
    /// };
    ///
    /// // Query, key and value projections of two columns each as one matrix of six.
    /// let (isa, shape, options) = (Isa::best(), (2, 6), PackOptions::default());
    /// let mut buffer = vec![0.0; options.buffer_len(isa, 2, 6)?];
    /// let projections = [[1.0, 0.0, 0.0, 1.0], [2.0, 0.0, 0.0, 2.0], [0.0, 3.0, 3.0, 0.0]];
    /// for (index, projection) in projections.iter().enumerate() {
    ///     let block = Matrix::new(projection, 2, 2)?;
    ///     options.pack_columns(isa, block, shape, 2 * index, &mut buffer)?;
    /// }
    /// let fused = options.from_packed(isa, 2, 6, &buffer)?;
    ///
    /// let mut qkv = [0.0; 6];
    /// let c = MatrixMut::new(&mut qkv, 1, 6)?;
    /// let x = Matrix::new(&[5.0, 7.0], 1, 2)?;
    /// gemm(x, &fused, &Epilogue::default(), c, Parallelism::Serial)?;
    /// assert_eq!(qkv, [5.0, 7.0, 10.0, 14.0, 21.0, 15.0]);
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    pub fn pack_columns<'s>(
        &self,
        isa: Isa,
        block: impl Into<PackSource<'s>>,
        shape: (usize, usize),
        first: usize,
        buffer: &mut [f32],
    ) -> Result<(), Error> {
        let (block, (depth, columns)) = (block.into(), shape);
        let words = self.buffer_len(isa, depth, columns)?;
        Error::check_min_len("buffer", words, buffer)?;
        check_block(block.shape(), shape, first)?;
        if words == 0 {
            // Without rows there may be any number of columns.
            return Ok(());
        }
        let (buffer, workers) = (&mut buffer[..words], self.parallelism.workers());
        match block.as_f32() {
            Some(block) if self.dtype == Dtype::F32 => {
                pack_f32::pack(isa, block, columns, first, buffer, workers);
                Ok(())
            }
            _ => pack_f16::pack(isa, self.dtype, &block, columns, first, buffer, workers),
        }
    }

    /// A view of a matrix of this dtype that was packed before for the same instruction set; see
    /// [`PackedMatrix::from_packed`]. It does not use the threads.
    ///
    /// # Errors
    /// The length of `data` is not [`PackOptions::buffer_len`].
    pub fn from_packed<'b>(
        &self,
        isa: Isa,
        depth: usize,
        columns: usize,
        data: &'b [f32],
    ) -> Result<PackedMatrix<'b>, Error> {
        let expected = self.buffer_len(isa, depth, columns)?;
        Error::check_len("data", expected, data)?;
        Ok(PackedMatrix { data, depth, columns, isa, dtype: self.dtype })
    }
}

/// Checks that a block of `[rows, count]` fits columns `first..` of a matrix of `[depth, columns]`. Returns the column
/// after its last one.
pub(super) fn check_block(
    found @ [rows, count]: [usize; 2],
    (depth, columns): (usize, usize),
    first: usize,
) -> Result<usize, Error> {
    if rows != depth {
        let expected = [depth, columns.saturating_sub(first)];
        return Err(Error::Shape { operand: "block", expected, found });
    }
    Error::check_end("last column", "block", None, (first, count), columns)?;
    Ok(first + count)
}

/// A column of a packed matrix, read one element at a time.
#[derive(Clone, Copy)]
pub(crate) enum Column {
    /// An f32 matrix.
    F32 {
        /// Address of row 0.
        start: *const f32,
        /// Stride between rows, in floats.
        step: usize,
    },
    /// A 16-bit matrix.
    F16 {
        /// Start of the packed matrix.
        data: *const u16,
        positions: F16Column,
        dtype: Dtype,
    },
}

impl Column {
    /// The element of row `k`, as f32.
    ///
    /// # Safety
    /// The matrix has the column and the row.
    #[inline(always)]
    pub(crate) unsafe fn row(&self, k: usize) -> f32 {
        // SAFETY: `# Safety` of this function.
        unsafe {
            match *self {
                Self::F32 { start, step } => *start.wrapping_add(k * step),
                Self::F16 { data, positions, dtype } => {
                    dtype.widen(*data.wrapping_add(positions.row(k)))
                }
            }
        }
    }
}

impl fmt::Debug for PackedMatrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { depth, columns, isa, dtype, .. } = self;
        write!(f, "PackedMatrix({depth} x {columns}, {isa}")?;
        if *dtype != Dtype::F32 { write!(f, ", {dtype:?})") } else { f.write_str(")") }
    }
}
