//! Packs a weight matrix into panels, into the caller's buffer.

use super::check;
use super::f16_layout::F16Column;
use super::pack_fast::{PANELS_PER_PASS, panel_of_columns, panels_of_rows};
use crate::dtype::Dtype;
use crate::error::{Error, Expected};
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::{Parallelism, Workers, share, work_to_share};
use crate::shared::SharedMut;
use crate::simd::{CACHE_LINE_F32, SimdF32, SimdOp};
use core::fmt;
use core::ops::Range;

/// Floats of a packed matrix from which packing uses non-temporal stores on a CPU with little bandwidth per core: a
/// matrix of this size is not in a cache when it is multiplied, and a non-temporal store does not read the line that it
/// overwrites.
const UNCACHED: usize = 8 << 20;

/// Floats below which a second thread costs more time than it saves.
pub(super) const MIN_PACKED_TO_FORK: usize = work_to_share(1 << 16);

/// Tasks per thread.
pub(super) const TASKS_PER_THREAD: usize = 2;

/// A weight matrix `[depth, columns]` in the layout of one instruction set: `[ceil(columns / panel)][depth][panel]`,
/// with zero columns at the end. The dtype is f32 or 16-bit ([`Dtype`]); 16-bit values are stored with two rows in each
/// `[panel]`.
///
/// The buffer may have any alignment. Kernels are fastest when it starts on a multiple of 64 bytes.
///
/// A `PackedMatrix` borrows its floats. The owner of a weight stores the floats, the instruction set and the shape, and
/// creates a view for each call. Creating a view only checks the length:
///
/// ```
/// use simdformer_kernels::{
///     Epilogue, Error, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, gemm,
/// };
///
/// struct Linear {
///     packed: Vec<f32>,
///     isa: Isa,
///     depth: usize,
///     columns: usize,
/// }
///
/// impl Linear {
///     /// Packs a weight stored `[out, in]`. The source is not used afterwards.
///     fn new(isa: Isa, weight: Matrix<'_>) -> Result<Self, Error> {
///         let (depth, columns) = (weight.columns(), weight.rows());
///         let mut packed = vec![0.0; PackedMatrix::len(isa, depth, columns)?];
///         PackedMatrix::pack(isa, weight.transposed(), &mut packed)?;
///         Ok(Self { packed, isa, depth, columns })
///     }
///
///     fn weight(&self) -> Result<PackedMatrix<'_>, Error> {
///         PackedMatrix::from_packed(self.isa, self.depth, self.columns, &self.packed)
///     }
/// }
///
/// let linear = Linear::new(Isa::best(), Matrix::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, 2)?)?;
/// let mut y = [0.0; 3];
/// let c = MatrixMut::new(&mut y, 1, 3)?;
/// let x = Matrix::new(&[1.0, 10.0], 1, 2)?;
/// gemm(x, &linear.weight()?, &Epilogue::default(), c, Parallelism::Serial)?;
/// assert_eq!(y, [21.0, 43.0, 65.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct PackedMatrix<'a> {
    data: &'a [f32],
    depth: usize,
    columns: usize,
    isa: Isa,
    storage: Dtype,
}

impl<'a> PackedMatrix<'a> {
    /// Floats of a packed `[depth, columns]` matrix on `isa`: `depth` times the number of columns rounded up to whole
    /// panels of [`Isa::panel`].
    ///
    /// # Errors
    /// The product overflows.
    pub fn len(isa: Isa, depth: usize, columns: usize) -> Result<usize, Error> {
        Self::len_as(isa, Dtype::F32, depth, columns)
    }

    /// [`PackedMatrix::len`] of a matrix with dtype `storage`, in words of four bytes. A 16-bit dtype takes half as
    /// many words, and an odd depth is rounded up.
    ///
    /// # Errors
    /// As [`PackedMatrix::len`].
    pub fn len_as(isa: Isa, storage: Dtype, depth: usize, columns: usize) -> Result<usize, Error> {
        if !storage.is_enabled() {
            return Err(Error::MissingFeature { feature: "f16" });
        }
        columns
            .div_ceil(isa.panel())
            .checked_mul(isa.panel())
            .and_then(|padded| padded.checked_mul(storage.words(depth)))
            .filter(|&floats| floats <= isize::MAX as usize / 4)
            .ok_or(Error::TooLarge { operand: "the packed matrix" })
    }

    /// Packs `weight`, `[depth, columns]` with any strides. A matrix stored `[out, in]` is packed as
    /// `Matrix::new(data, out, in)?.transposed()`. The previous content of `buffer` does not matter. Values are copied
    /// bit for bit.
    ///
    /// # Errors
    /// The buffer is shorter than [`PackedMatrix::len`].
    pub fn pack(isa: Isa, weight: Matrix<'_>, buffer: &'a mut [f32]) -> Result<Self, Error> {
        Self::pack_with(isa, weight, buffer, Parallelism::Serial)
    }

    /// [`PackedMatrix::pack`] on several threads, for weights that change. The result does not depend on the threads.
    ///
    /// # Errors
    /// As [`PackedMatrix::pack`].
    ///
    /// ```
    /// use simdformer_kernels::{Isa, Matrix, PackedMatrix, Parallelism};
    ///
    /// // A layer's forward and backward operands, from its weight stored `[out, in]`.
    /// let (isa, threads) = (Isa::best(), Parallelism::Serial);
    /// let weight = Matrix::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, 2)?;
    /// let mut buffers = [vec![0.0; 2 * 64], vec![0.0; 3 * 64]];
    /// let [forward, backward] = &mut buffers;
    /// let x_to_y = PackedMatrix::pack_with(isa, weight.transposed(), forward, threads)?;
    /// let dy_to_dx = PackedMatrix::pack_with(isa, weight, backward, threads)?;
    /// assert_eq!((x_to_y.depth(), x_to_y.columns()), (2, 3));
    /// assert_eq!((dy_to_dx.depth(), dy_to_dx.columns()), (3, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pack_with(
        isa: Isa,
        weight: Matrix<'_>,
        buffer: &'a mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<Self, Error> {
        Self::pack_by(isa, weight, buffer, parallelism.workers())
    }

    /// [`PackedMatrix::pack_with`] with the workers of an enclosing call.
    pub(super) fn pack_by(
        isa: Isa,
        weight: Matrix<'_>,
        buffer: &'a mut [f32],
        workers: Workers<'_>,
    ) -> Result<Self, Error> {
        let (depth, columns) = (weight.rows(), weight.columns());
        let floats = Self::len(isa, depth, columns)?;
        Self::pack_block_by(isa, weight, (depth, columns), 0, buffer, workers)?;
        // The buffer may be longer than `floats`; `pack_block_by` checked that it is not shorter.
        Self::from_packed(isa, depth, columns, buffer.get(..floats).unwrap_or(&[]))
    }

    /// Packs `block`, `[depth, n]`, as columns `first..first + n` of a matrix of `shape = (depth, columns)` in
    /// `buffer`. It fuses several matrices, or packs one that arrives in pieces. The block with the last column also
    /// writes the zero columns after it.
    ///
    /// # Errors
    /// The buffer is too short, or the block does not fit the shape. Nothing is written then.
    ///
    /// ```
    /// use simdformer_kernels::{
    ///     Epilogue, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, gemm,
    /// };
    ///
    /// // Query, key and value projections of two columns each as one matrix of six.
    /// let (isa, shape) = (Isa::best(), (2, 6));
    /// let mut buffer = vec![0.0; PackedMatrix::len(isa, 2, 6)?];
    /// let projections = [[1.0, 0.0, 0.0, 1.0], [2.0, 0.0, 0.0, 2.0], [0.0, 3.0, 3.0, 0.0]];
    /// for (index, projection) in projections.iter().enumerate() {
    ///     let block = Matrix::new(projection, 2, 2)?;
    ///     PackedMatrix::pack_block(isa, block, shape, 2 * index, &mut buffer)?;
    /// }
    /// let fused = PackedMatrix::from_packed(isa, 2, 6, &buffer)?;
    ///
    /// let mut qkv = [0.0; 6];
    /// let c = MatrixMut::new(&mut qkv, 1, 6)?;
    /// let x = Matrix::new(&[5.0, 7.0], 1, 2)?;
    /// gemm(x, &fused, &Epilogue::default(), c, Parallelism::Serial)?;
    /// assert_eq!(qkv, [5.0, 7.0, 10.0, 14.0, 21.0, 15.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pack_block(
        isa: Isa,
        block: Matrix<'_>,
        shape: (usize, usize),
        first: usize,
        buffer: &mut [f32],
    ) -> Result<(), Error> {
        Self::pack_block_with(isa, block, shape, first, buffer, Parallelism::Serial)
    }

    /// [`PackedMatrix::pack_block`] on several threads.
    ///
    /// # Errors
    /// As [`PackedMatrix::pack_block`].
    pub fn pack_block_with(
        isa: Isa,
        block: Matrix<'_>,
        shape: (usize, usize),
        first: usize,
        buffer: &mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<(), Error> {
        Self::pack_block_by(isa, block, shape, first, buffer, parallelism.workers())
    }

    /// [`PackedMatrix::pack_block_with`] with the workers of an enclosing call.
    fn pack_block_by(
        isa: Isa,
        block: Matrix<'_>,
        shape: (usize, usize),
        first: usize,
        buffer: &mut [f32],
        workers: Workers<'_>,
    ) -> Result<(), Error> {
        let (depth, columns) = shape;
        let expected = Self::len(isa, depth, columns)?;
        let end = Self::check_block(&block, shape, first, (expected, buffer.len()))?;
        let buffer = &mut buffer[..expected];
        let panels = first / isa.panel()..end.div_ceil(isa.panel());
        let threads = workers.threads();
        if threads == 1 || panels.len() <= 1 || depth * block.columns() < MIN_PACKED_TO_FORK {
            isa.dispatch(Pack { block, columns, first, buffer, nontemporal: expected > UNCACHED });
            return Ok(());
        }
        let buffer = SharedMut::new(buffer);
        let tasks = panels.len().min(threads * TASKS_PER_THREAD);
        workers.for_each(tasks, &|task| {
            let own = share(panels.len(), tasks, task);
            let own = panels.start + own.start..panels.start + own.end;
            // SAFETY: `check_block` checked that the buffer has all panels, and `share` gives each panel to one task.
            unsafe { pack_panels(isa, block, shape, first, own, (buffer, expected > UNCACHED)) };
        });
        Ok(())
    }

    /// Checks that a block fits a matrix of `shape`, and that the matrix fits a buffer of `found` words. Returns the
    /// column after the last column of the block.
    pub(super) fn check_block(
        block: &Matrix<'_>,
        shape: (usize, usize),
        first: usize,
        (expected, found): (usize, usize),
    ) -> Result<usize, Error> {
        Error::check_size("length", "the packed matrix", Expected::AtLeast(expected), found)?;
        check::block(block.shape(), shape, first)
    }

    /// Packs `block`, `[depth, n]`, into panels from the start of `to` on. The panels contain no other block.
    #[cfg(feature = "train")]
    pub(super) fn pack_whole(isa: Isa, block: Matrix<'_>, to: &mut [f32]) {
        let columns = block.columns();
        debug_assert!(to.len() >= columns.next_multiple_of(isa.panel()) * block.rows());
        let nontemporal = to.len() > UNCACHED;
        isa.dispatch(Pack { block, columns, first: 0, buffer: to, nontemporal });
    }

    /// A view of a matrix that was packed by [`PackedMatrix::pack`] or [`PackedMatrix::pack_block`] for the same
    /// instruction set, for example one that was read from a file. [`PackedMatrix`] has an example of an owner.
    ///
    /// `data` has exactly [`PackedMatrix::len`] floats. Another length means another instruction set, dtype or shape.
    /// Floats of the same length that were packed differently cannot be detected; they are read as another matrix.
    ///
    /// # Errors
    /// The length of `data` is not [`PackedMatrix::len`].
    pub fn from_packed(
        isa: Isa,
        depth: usize,
        columns: usize,
        data: &'a [f32],
    ) -> Result<Self, Error> {
        Self::from_packed_as(isa, Dtype::F32, depth, columns, data)
    }

    /// [`PackedMatrix::from_packed`] of a matrix with dtype `storage`, packed by [`PackedMatrix::pack_block_as`].
    ///
    /// # Errors
    /// The length of `data` is not [`PackedMatrix::len_as`].
    pub fn from_packed_as(
        isa: Isa,
        storage: Dtype,
        depth: usize,
        columns: usize,
        data: &'a [f32],
    ) -> Result<Self, Error> {
        let expected = Self::len_as(isa, storage, depth, columns)?;
        Error::check_len("the packed matrix", expected, data)?;
        Ok(Self { data, depth, columns, isa, storage })
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
    pub const fn storage(&self) -> Dtype {
        self.storage
    }

    /// The start of row `k` of panel `panel`. With a 16-bit dtype `k` must be even, and the address is that of rows `k`
    /// and `k + 1`.
    #[inline(always)]
    pub(super) fn address(&self, panel: usize, k: usize) -> *const f32 {
        let row = panel * self.storage.words(self.depth) + self.storage.words(k);
        self.data.as_ptr().wrapping_add(row * self.isa.panel())
    }

    /// Copies row `k` from column `first` on into `to`. `to` must not extend past the last column.
    #[inline(always)]
    pub(crate) fn copy_row(&self, k: usize, first: usize, to: &mut [f32]) {
        let panel = self.isa.panel();
        let (mut column, mut rest) = (first, to);
        if self.storage != Dtype::F32 {
            // A part is within one vector of columns, where positions have a constant stride.
            let lanes = self.isa.lanes();
            while !rest.is_empty() {
                let (part, after) = rest.split_at_mut(rest.len().min(lanes - column % lanes));
                let positions = F16Column::of_column(self.isa, self.storage, self.depth, column);
                let step = if self.storage == Dtype::F16 { 1 } else { 2 };
                for (i, to) in part.iter_mut().enumerate() {
                    let at = positions.row(k) + i * step;
                    // SAFETY: `first + to.len()` is at most the number of columns and `k` is below `depth`, as the
                    // documentation of this function requires, so the position is inside `data`.
                    *to = self.storage.widen(unsafe { *self.data.as_ptr().cast::<u16>().add(at) });
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
        if self.storage == Dtype::F32 {
            let start = (column - column % panel) * self.depth + column % panel;
            return Column::F32 { start: self.data.as_ptr().wrapping_add(start), step: panel };
        }
        let positions = F16Column::of_column(self.isa, self.storage, self.depth, column);
        Column::F16 { data: self.data.as_ptr().cast(), positions, storage: self.storage }
    }
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
        storage: Dtype,
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
                Self::F16 { data, positions, storage } => {
                    storage.widen(*data.wrapping_add(positions.row(k)))
                }
            }
        }
    }
}

impl fmt::Debug for PackedMatrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { depth, columns, isa, storage, .. } = self;
        write!(f, "PackedMatrix({depth} x {columns}, {isa}")?;
        if *storage != Dtype::F32 { write!(f, ", {storage:?})") } else { f.write_str(")") }
    }
}

/// Packs the columns of `block` that are in panels `panels` of `buffer`. `block` starts at column `first` of a matrix
/// with `columns` columns.
///
/// # Safety
/// `buffer` has the panels, and no other thread uses them.
unsafe fn pack_panels(
    isa: Isa,
    block: Matrix<'_>,
    (depth, columns): (usize, usize),
    first: usize,
    panels: Range<usize>,
    (buffer, nontemporal): (SharedMut<'_>, bool),
) {
    let width = isa.panel();
    // Columns are counted from the first column of these panels: the same block, in a matrix that starts at that
    // column.
    let origin = panels.start * width;
    let start = first.max(origin);
    let end = (first + block.columns()).min(panels.end * width);
    // SAFETY: `start..end` is inside the columns of the block; `# Safety` of this function covers the panels.
    let (block, buffer) = unsafe {
        (
            block.columns_unchecked(start - first, end - start),
            buffer.part(origin * depth, panels.len() * width * depth),
        )
    };
    isa.dispatch(Pack {
        block,
        columns: columns - origin,
        first: start - origin,
        buffer,
        nontemporal,
    });
}

pub(super) struct Pack<'a, 'b> {
    pub(super) block: Matrix<'a>,
    /// Columns of the whole matrix.
    pub(super) columns: usize,
    pub(super) first: usize,
    pub(super) buffer: &'b mut [f32],
    /// Whether the packed matrix is larger than [`UNCACHED`].
    pub(super) nontemporal: bool,
}

impl SimdOp for Pack<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let Self { block, columns, first, buffer, nontemporal } = self;
        let depth = block.rows();
        let count = block.columns();
        if depth == 0 {
            return;
        }
        let (row_stride, column_stride) = (block.row_stride(), block.column_stride());
        let from = block.as_ptr();
        let to = buffer.as_mut_ptr();
        let nontemporal = const { S::MAY_PREFER_HW_PREFETCH && S::LANES == CACHE_LINE_F32 }
            && nontemporal
            && s.prefers_hw_prefetch()
            && to.addr().is_multiple_of(size_of::<[f32; CACHE_LINE_F32]>());
        // Offset of column `first + j` of the matrix in `to`. Its elements have a stride of PANEL floats.
        let offset_of = |j: usize| {
            let column = first + j;
            (column / S::PANEL) * depth * S::PANEL + column % S::PANEL
        };
        let mut j = 0;
        while j < count {
            let aligned = (first + j).is_multiple_of(S::PANEL) && count - j >= S::PANEL;
            if aligned && (row_stride == 1 || column_stride == 1) {
                let panels =
                    if row_stride == 1 { 1 } else { PANELS_PER_PASS.min((count - j) / S::PANEL) };
                // SAFETY: `panels * PANEL` columns from `j` are in the block (`aligned` and the definition of
                // `panels`). Their places are in the buffer, whose length the callers of `Pack` check. If
                // `nontemporal`, `to` is aligned to a cache line.
                unsafe {
                    let (from, to) = (from.add(j * column_stride), to.add(offset_of(j)));
                    match (row_stride == 1, nontemporal) {
                        (true, true) => {
                            panel_of_columns::<S, true>(s, from, column_stride, depth, to)
                        }
                        (true, _) => {
                            panel_of_columns::<S, false>(s, from, column_stride, depth, to)
                        }
                        (_, true) => {
                            panels_of_rows::<S, true>(s, from, row_stride, depth, to, panels)
                        }
                        _ => panels_of_rows::<S, false>(s, from, row_stride, depth, to, panels),
                    }
                }
                j += panels * S::PANEL;
                continue;
            }
            // Columns that fill one aligned vector of a panel are copied through registers.
            let whole = (first + j).is_multiple_of(S::LANES) && count - j >= S::LANES;
            let mut k = 0;
            if whole && row_stride == 1 {
                while k + S::LANES <= depth {
                    // SAFETY: LANES columns from `j` and LANES rows from `k` are in the block (`whole` and the
                    // condition of this loop). Their places are in the buffer, because `offset_of` stays below the
                    // length of the packed shape, which the callers of `Pack` check.
                    unsafe {
                        s.transpose(
                            from.add(j * column_stride + k),
                            column_stride,
                            to.add(offset_of(j) + k * S::PANEL),
                            S::PANEL,
                        );
                    }
                    k += S::LANES;
                }
            } else if whole && column_stride == 1 {
                while k < depth {
                    // SAFETY: LANES columns from `j` (`whole`) and row `k < depth` are in the
                    // block. Their places are in the buffer, whose length the callers of `Pack`
                    // check.
                    unsafe {
                        let row = s.load(from.add(k * row_stride + j));
                        s.store(to.add(offset_of(j) + k * S::PANEL), row);
                    }
                    k += 1;
                }
            }
            let group = if whole { S::LANES } else { 1 };
            for column in j..j + group {
                for k in k..depth {
                    // SAFETY: `column < j + group <= count` and `k < depth` are in the block. Their
                    // places are in the buffer, whose length the callers of `Pack` check.
                    unsafe {
                        *to.add(offset_of(column) + k * S::PANEL) =
                            *from.add(k * row_stride + column * column_stride);
                    }
                }
            }
            j += group;
        }
        if nontemporal {
            s.fence();
        }
        if first + count == columns {
            for column in columns..columns.next_multiple_of(S::PANEL) {
                for k in 0..depth {
                    // SAFETY: padding columns are part of the packed length.
                    unsafe { *to.add(offset_of(column - first) + k * S::PANEL) = 0.0 };
                }
            }
        }
    }
}
