//! From a weight matrix to panels, once, into the caller's buffer.

use super::dtype::{Dtype, Halves};
use super::error::GemmError;
use super::pack_fast::{TOGETHER, panel_of_columns, panels_of_rows};
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::{Parallelism, Workers, share, work_to_share};
use crate::shared::SharedMut;
use crate::simd::{CACHE_LINE_F32, SimdF32, SimdOp};
use core::fmt;
use core::ops::Range;

/// Floats of a packed matrix that no cache holds until it is multiplied: a CPU with little bandwidth for its
/// cores writes them past its caches, and need not read what it overwrites.
const UNCACHED: usize = 8 << 20;

/// Floats below which a second thread costs more than it packs.
pub(super) const MIN_PACKED_TO_FORK: usize = work_to_share(1 << 16);

/// Tasks per thread.
pub(super) const TASKS_PER_THREAD: usize = 2;

/// A weight matrix `[depth, columns]` in the layout of one instruction set:
/// `[ceil(columns / panel)][depth][panel]`, zero columns at the end. It holds f32, or numbers of 16 bits
/// ([`Dtype`]) with two rows in each `[panel]`.
///
/// The buffer may have any alignment; kernels are fastest when it starts on a multiple of 64 bytes.
///
/// A `PackedMatrix` borrows its floats. Whoever owns a weight owns the floats with the instruction set
/// and the shape, and makes a view of them for each call, which is a check of the length:
///
/// ```
/// use simdformer_kernels::{
///     Epilogue, GemmError, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, gemm,
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
///     /// From a weight stored `[out, in]`, which is not needed afterwards.
///     fn new(isa: Isa, weight: Matrix<'_>) -> Result<Self, GemmError> {
///         let (depth, columns) = (weight.columns(), weight.rows());
///         let mut packed = vec![0.0; PackedMatrix::len(isa, depth, columns)?];
///         PackedMatrix::pack(isa, weight.transposed(), &mut packed)?;
///         Ok(Self { packed, isa, depth, columns })
///     }
///
///     fn weight(&self) -> Result<PackedMatrix<'_>, GemmError> {
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
    /// Floats that a packed `[depth, columns]` matrix takes on `isa`: `depth` times the columns rounded up
    /// to whole panels of [`Isa::panel`].
    ///
    /// # Errors
    /// The product overflows.
    pub fn len(isa: Isa, depth: usize, columns: usize) -> Result<usize, GemmError> {
        Self::len_as(isa, Dtype::F32, depth, columns)
    }

    /// [`PackedMatrix::len`] of a matrix that is stored as `storage`, in words of four bytes: half as many
    /// for 16 bits, where a depth is rounded up to an even one.
    ///
    /// # Errors
    /// As [`PackedMatrix::len`].
    pub fn len_as(
        isa: Isa,
        storage: Dtype,
        depth: usize,
        columns: usize,
    ) -> Result<usize, GemmError> {
        if !storage.is_enabled() {
            return Err(GemmError::MissingFeature { feature: "f16" });
        }
        columns
            .div_ceil(isa.panel())
            .checked_mul(isa.panel())
            .and_then(|padded| padded.checked_mul(storage.words(depth)))
            .filter(|&floats| floats <= isize::MAX as usize / 4)
            .ok_or(GemmError::TooLarge)
    }

    /// Packs `weight`, `[depth, columns]` with any strides. A matrix stored `[out, in]` is packed as
    /// `Matrix::new(data, out, in)?.transposed()`. What `buffer` holds does not matter; no float is
    /// changed on the way.
    ///
    /// # Errors
    /// The buffer is shorter than [`PackedMatrix::len`].
    pub fn pack(isa: Isa, weight: Matrix<'_>, buffer: &'a mut [f32]) -> Result<Self, GemmError> {
        Self::pack_with(isa, weight, buffer, Parallelism::Serial)
    }

    /// [`PackedMatrix::pack`] by several threads, for weights that change: the same floats, whoever packs
    /// them.
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
    ) -> Result<Self, GemmError> {
        Self::pack_by(isa, weight, buffer, parallelism.workers())
    }

    /// [`PackedMatrix::pack_with`] inside a call that has counted its threads.
    pub(super) fn pack_by(
        isa: Isa,
        weight: Matrix<'_>,
        buffer: &'a mut [f32],
        workers: Workers<'_>,
    ) -> Result<Self, GemmError> {
        let (depth, columns) = (weight.rows(), weight.columns());
        let floats = Self::len(isa, depth, columns)?;
        Self::pack_block_by(isa, weight, (depth, columns), 0, buffer, workers)?;
        // The buffer may be longer; it was checked to have this many.
        Self::from_packed(isa, depth, columns, buffer.get(..floats).unwrap_or(&[]))
    }

    /// Packs `block`, `[depth, n]`, as columns `first..first + n` of a matrix of `shape = (depth,
    /// columns)` in `buffer`: several matrices side by side, or one that arrives piece by piece. The
    /// block that holds the last column also writes the zero columns after it.
    ///
    /// # Errors
    /// The buffer is too short, or the block does not fit the shape; then nothing is written.
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
    ) -> Result<(), GemmError> {
        Self::pack_block_with(isa, block, shape, first, buffer, Parallelism::Serial)
    }

    /// [`PackedMatrix::pack_block`] by several threads.
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
    ) -> Result<(), GemmError> {
        Self::pack_block_by(isa, block, shape, first, buffer, parallelism.workers())
    }

    /// [`PackedMatrix::pack_block_with`] inside a call that has counted its threads.
    fn pack_block_by(
        isa: Isa,
        block: Matrix<'_>,
        shape: (usize, usize),
        first: usize,
        buffer: &mut [f32],
        workers: Workers<'_>,
    ) -> Result<(), GemmError> {
        let (depth, columns) = shape;
        let expected = Self::len(isa, depth, columns)?;
        let end = Self::check_block(&block, shape, first, (expected, buffer.len()))?;
        let buffer = &mut buffer[..expected];
        let panels = first / isa.panel()..end.div_ceil(isa.panel());
        let threads = workers.threads();
        if threads == 1 || panels.len() <= 1 || depth * block.columns() < MIN_PACKED_TO_FORK {
            isa.dispatch(Pack { block, columns, first, buffer, past: expected > UNCACHED });
            return Ok(());
        }
        let buffer = SharedMut::new(buffer);
        let tasks = panels.len().min(threads * TASKS_PER_THREAD);
        workers.for_each(tasks, &|task| {
            let own = share(panels.len(), tasks, task);
            let own = panels.start + own.start..panels.start + own.end;
            // SAFETY: the buffer was checked to have all panels, and each is one task's.
            unsafe { pack_panels(isa, block, shape, first, own, (buffer, expected > UNCACHED)) };
        });
        Ok(())
    }

    /// Whether a block fits into a matrix of `shape` and that into a buffer of `found` words: the column
    /// after its last.
    pub(super) fn check_block(
        block: &Matrix<'_>,
        shape: (usize, usize),
        first: usize,
        (expected, found): (usize, usize),
    ) -> Result<usize, GemmError> {
        if found < expected {
            return Err(GemmError::PackedLength { expected, found });
        }
        let end = first.saturating_add(block.columns());
        if block.rows() != shape.0 || end > shape.1 {
            return Err(GemmError::PackedBlock { expected: shape, found: (block.rows(), end) });
        }
        Ok(end)
    }

    /// Packs `block`, `[depth, n]`, as panels that begin with `to`, where nothing else of their matrix is.
    #[cfg(feature = "train")]
    pub(super) fn pack_whole(isa: Isa, block: Matrix<'_>, to: &mut [f32]) {
        let columns = block.columns();
        debug_assert!(to.len() >= columns.next_multiple_of(isa.panel()) * block.rows());
        let past = to.len() > UNCACHED;
        isa.dispatch(Pack { block, columns, first: 0, buffer: to, past });
    }

    /// A matrix that was packed before, by [`PackedMatrix::pack`] or [`PackedMatrix::pack_block`] on the
    /// same instruction set, or read back from where such floats were kept. See [`PackedMatrix`] for how to
    /// own one.
    ///
    /// `data` has exactly [`PackedMatrix::len`] floats: another length means another instruction set,
    /// another storage or another shape. Floats of that length that were packed otherwise cannot be told
    /// apart, and are another matrix.
    ///
    /// # Errors
    /// The length of `data` is not [`PackedMatrix::len`].
    pub fn from_packed(
        isa: Isa,
        depth: usize,
        columns: usize,
        data: &'a [f32],
    ) -> Result<Self, GemmError> {
        Self::from_packed_as(isa, Dtype::F32, depth, columns, data)
    }

    /// [`PackedMatrix::from_packed`] of a matrix that is stored as `storage`, packed by
    /// [`PackedMatrix::pack_block_as`].
    ///
    /// # Errors
    /// The length of `data` is not [`PackedMatrix::len_as`].
    pub fn from_packed_as(
        isa: Isa,
        storage: Dtype,
        depth: usize,
        columns: usize,
        data: &'a [f32],
    ) -> Result<Self, GemmError> {
        let expected = Self::len_as(isa, storage, depth, columns)?;
        if data.len() != expected {
            return Err(GemmError::PackedLength { expected, found: data.len() });
        }
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

    /// The instruction set it was packed for.
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// How it stores its numbers.
    pub const fn storage(&self) -> Dtype {
        self.storage
    }

    /// Where row `k` of panel `panel` starts, or the words of rows `k` and `k + 1`; `k` is even then.
    #[inline(always)]
    pub(super) fn address(&self, panel: usize, k: usize) -> *const f32 {
        let row = panel * self.storage.words(self.depth) + self.storage.words(k);
        self.data.as_ptr().wrapping_add(row * self.isa.panel())
    }

    /// Copies row `k` from column `first` on; `to` ends at the last column or before.
    #[inline(always)]
    pub(crate) fn copy_row(&self, k: usize, first: usize, to: &mut [f32]) {
        let panel = self.isa.panel();
        let (mut column, mut rest) = (first, to);
        if self.storage != Dtype::F32 {
            // As many as surely lie alike in memory: columns of one vector.
            let lanes = self.isa.lanes();
            while !rest.is_empty() {
                let (part, after) = rest.split_at_mut(rest.len().min(lanes - column % lanes));
                let halves = Halves::of_column(self.isa, self.storage, self.depth, column);
                let step = if self.storage == Dtype::F16 { 1 } else { 2 };
                for (i, to) in part.iter_mut().enumerate() {
                    let at = halves.row(k) + i * step;
                    // SAFETY: the caller's columns, and one of the rows.
                    *to = self.storage.widen(unsafe { *self.data.as_ptr().cast::<u16>().add(at) });
                }
                (column, rest) = (column + lanes - column % lanes, after);
            }
            return;
        }
        while !rest.is_empty() {
            // Panels are powers of two, and a division takes as long as the copy.
            let within = column & (panel - 1);
            let (part, after) = rest.split_at_mut(rest.len().min(panel - within));
            let from = (column - within) * self.depth + k * panel + within;
            let from = &self.data[from..from + part.len()];
            // Eight at a time, as panels are of so many or more: a copy of unknown length would be a call.
            let (eights, more) = part.as_chunks_mut::<8>();
            let (from_eights, from_more) = from.as_chunks::<8>();
            eights.iter_mut().zip(from_eights).for_each(|(to, from)| *to = *from);
            more.iter_mut().zip(from_more).for_each(|(to, from)| *to = *from);
            (column, rest) = (column + part.len(), after);
        }
    }

    /// Column `column`.
    #[inline(always)]
    pub(crate) fn column(&self, column: usize) -> Column {
        let panel = self.isa.panel();
        if self.storage == Dtype::F32 {
            let start = (column - column % panel) * self.depth + column % panel;
            return Column::Floats { start: self.data.as_ptr().wrapping_add(start), step: panel };
        }
        let halves = Halves::of_column(self.isa, self.storage, self.depth, column);
        Column::Halves { data: self.data.as_ptr().cast(), halves, storage: self.storage }
    }
}

/// A column of a matrix, read one element at a time.
#[derive(Clone, Copy)]
pub(crate) enum Column {
    /// f32.
    Floats {
        /// Row 0.
        start: *const f32,
        /// From one row to the next.
        step: usize,
    },
    /// Numbers of sixteen bits.
    Halves {
        /// Where the packed matrix starts.
        data: *const u16,
        halves: Halves,
        storage: Dtype,
    },
}

impl Column {
    /// The element in row `k`.
    ///
    /// # Safety
    /// The matrix has the column and the row.
    #[inline(always)]
    pub(crate) unsafe fn row(&self, k: usize) -> f32 {
        // SAFETY: the caller's contract.
        unsafe {
            match *self {
                Self::Floats { start, step } => *start.wrapping_add(k * step),
                Self::Halves { data, halves, storage } => {
                    storage.widen(*data.wrapping_add(halves.row(k)))
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

/// Packs those columns of `block`, which begin at column `first` of a matrix of `columns` columns, that lie in
/// panels `panels` of `buffer`.
///
/// # Safety
/// `buffer` has the panels, and nobody else uses them.
unsafe fn pack_panels(
    isa: Isa,
    block: Matrix<'_>,
    (depth, columns): (usize, usize),
    first: usize,
    panels: Range<usize>,
    (buffer, past): (SharedMut<'_>, bool),
) {
    let width = isa.panel();
    // Counted from the first column of these panels, the same block in a matrix of the others.
    let origin = panels.start * width;
    let start = first.max(origin);
    let end = (first + block.columns()).min(panels.end * width);
    // SAFETY: columns of the block; the panels are the caller's contract.
    let (block, buffer) = unsafe {
        (
            block.columns_unchecked(start - first, end - start),
            buffer.part(origin * depth, panels.len() * width * depth),
        )
    };
    isa.dispatch(Pack { block, columns: columns - origin, first: start - origin, buffer, past });
}

pub(super) struct Pack<'a, 'b> {
    pub(super) block: Matrix<'a>,
    /// Columns of the whole matrix.
    pub(super) columns: usize,
    pub(super) first: usize,
    pub(super) buffer: &'b mut [f32],
    /// Whether the matrix is more than caches hold.
    pub(super) past: bool,
}

impl SimdOp for Pack<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let Self { block, columns, first, buffer, past } = self;
        let depth = block.rows();
        let count = block.columns();
        if depth == 0 {
            return;
        }
        let (row_stride, column_stride) = (block.row_stride(), block.column_stride());
        let from = block.as_ptr();
        let to = buffer.as_mut_ptr();
        let past = const { S::MAY_PREFER_HW_PREFETCH && S::LANES == CACHE_LINE_F32 }
            && past
            && s.prefers_hw_prefetch()
            && to.addr().is_multiple_of(size_of::<[f32; CACHE_LINE_F32]>());
        // Where column `first + j` starts: then one element every PANEL floats.
        let place = |j: usize| {
            let column = first + j;
            (column / S::PANEL) * depth * S::PANEL + column % S::PANEL
        };
        let mut j = 0;
        while j < count {
            let aligned = (first + j).is_multiple_of(S::PANEL) && count - j >= S::PANEL;
            if aligned && (row_stride == 1 || column_stride == 1) {
                let panels = if row_stride == 1 { 1 } else { TOGETHER.min((count - j) / S::PANEL) };
                // SAFETY: so many panels of columns from `j` are in the block, and their places in the
                // buffer, whose length was checked for the whole shape.
                unsafe {
                    let (from, to) = (from.add(j * column_stride), to.add(place(j)));
                    match (row_stride == 1, past) {
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
            // A group of columns that is one aligned vector of a panel goes through registers.
            let whole = (first + j).is_multiple_of(S::LANES) && count - j >= S::LANES;
            let mut k = 0;
            if whole && row_stride == 1 {
                while k + S::LANES <= depth {
                    // SAFETY: LANES columns from `j` and LANES rows from `k` are in the block
                    // (`whole` and the condition of this loop). Their places are in the buffer,
                    // because `place` stays below the length of the packed shape, which the callers
                    // of `Pack` check.
                    unsafe {
                        s.transpose(
                            from.add(j * column_stride + k),
                            column_stride,
                            to.add(place(j) + k * S::PANEL),
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
                        s.store(to.add(place(j) + k * S::PANEL), row);
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
                        *to.add(place(column) + k * S::PANEL) =
                            *from.add(k * row_stride + column * column_stride);
                    }
                }
            }
            j += group;
        }
        if past {
            s.fence();
        }
        if first + count == columns {
            for column in columns..columns.next_multiple_of(S::PANEL) {
                for k in 0..depth {
                    // SAFETY: padding columns are part of the packed length.
                    unsafe { *to.add(place(column - first) + k * S::PANEL) = 0.0 };
                }
            }
        }
    }
}
