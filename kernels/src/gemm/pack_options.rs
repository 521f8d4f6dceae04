//! How weights are packed: in which dtype, by which threads, whole or in blocks of columns.

use super::pack_f16;
use super::packing::{PackedMatrix, pack_f32, packed_len};
use super::weight_source::PackSource;
use crate::dtype::Dtype;
use crate::error::Error;
use crate::isa::Isa;
use crate::parallel::Parallelism;

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
    /// The product overflows; [`Error::Unsupported`] for a 16-bit dtype without the feature `f16`.
    pub fn buffer_len(&self, isa: Isa, depth: usize, columns: usize) -> Result<usize, Error> {
        packed_len(isa, self.dtype, depth, columns)
    }

    /// Packs `weight`, `[depth, columns]`: a [`Matrix`](crate::Matrix) with any strides, or a [`PackSource`] of 16-bit values. The
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
                pack_f32(isa, block, columns, first, buffer, workers);
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
        PackedMatrix::of_words(isa, self.dtype, depth, columns, data)
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
