//! Packed weights, and how f32 weights are packed into the caller's buffer. `pack_options.rs` has the other dtypes and
//! blocks of columns, `unpack.rs` reads packed values.
//!
//! Whole panels of a matrix with contiguous rows or contiguous columns have their own loops; other columns are copied
//! in vectors or one by one.

use crate::dtype::Dtype;
use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::{Workers, share, work_to_share};
use crate::prefetch::strong_hw_prefetcher;
use crate::simd::{CACHE_LINE_F32, SimdF32, simd_op};
use crate::sync_ptr::SharedMut;
use core::fmt;
use core::ops::Range;

/// A weight matrix `[depth, columns]` in the layout of one instruction set: `[ceil(columns / panel)][depth][panel]`,
/// with zero columns at the end. The dtype is f32 or 16-bit ([`Dtype`]); 16-bit values are stored with two rows in each
/// `[panel]`.
///
/// The buffer may have any alignment. Kernels are fastest when it starts on a multiple of 64 bytes.
///
/// A `PackedMatrix` borrows its floats. The owner of a weight stores the floats, the instruction set and the shape, and
/// creates a view for each call, which only checks the length. [`Linear`](crate::Linear) is such an owner. The
/// functions of this type pack f32 on the calling thread; [`PackOptions`](crate::PackOptions) has the other dtypes and threads.
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
    pub(super) data: &'a [f32],
    pub(super) depth: usize,
    pub(super) columns: usize,
    pub(super) isa: Isa,
    pub(super) dtype: Dtype,
}

impl<'a> PackedMatrix<'a> {
    /// Floats of a packed f32 matrix `[depth, columns]` on `isa`: `depth` times the number of columns rounded up to
    /// whole panels of [`Isa::panel`].
    ///
    /// # Errors
    /// The product overflows.
    pub fn buffer_len(isa: Isa, depth: usize, columns: usize) -> Result<usize, Error> {
        packed_len(isa, Dtype::F32, depth, columns)
    }

    /// Packs `weight`, `[depth, columns]` with any strides. A matrix stored `[out, in]` is packed as
    /// `Matrix::new(data, out, in)?.transposed()`. The previous content of `buffer` does not matter. Values are copied
    /// bit for bit.
    ///
    /// # Errors
    /// The buffer is shorter than [`PackedMatrix::buffer_len`].
    pub fn pack(isa: Isa, weight: Matrix<'_>, buffer: &'a mut [f32]) -> Result<Self, Error> {
        Self::pack_by(isa, weight, buffer, Workers::SERIAL)
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
            pack_f32(isa, weight, columns, 0, buffer, workers);
        }
        Self::from_packed(isa, depth, columns, buffer)
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
        Self::of_words(isa, Dtype::F32, depth, columns, data)
    }

    /// [`PackedMatrix::from_packed`] of any dtype.
    pub(super) fn of_words(
        isa: Isa,
        dtype: Dtype,
        depth: usize,
        columns: usize,
        data: &'a [f32],
    ) -> Result<Self, Error> {
        Error::check_len("data", packed_len(isa, dtype, depth, columns)?, data)?;
        Ok(Self { data, depth, columns, isa, dtype })
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
}

/// Words of four bytes of a packed matrix `[depth, columns]`.
pub(super) fn packed_len(
    isa: Isa,
    dtype: Dtype,
    depth: usize,
    columns: usize,
) -> Result<usize, Error> {
    if !dtype.is_enabled() {
        return Err(Error::NO_F16);
    }
    columns
        .div_ceil(isa.panel())
        .checked_mul(isa.panel())
        .and_then(|padded| padded.checked_mul(dtype.words(depth)))
        .filter(|&floats| floats <= isize::MAX as usize / 4)
        .ok_or(Error::TooLarge { operand: "the packed matrix" })
}

impl fmt::Debug for PackedMatrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { depth, columns, isa, dtype, .. } = self;
        write!(f, "PackedMatrix({depth} x {columns}, {isa}")?;
        if *dtype != Dtype::F32 { write!(f, ", {dtype:?})") } else { f.write_str(")") }
    }
}

/// Floats of a packed matrix from which packing uses non-temporal stores on a CPU with little bandwidth per core: a
/// matrix of this size is not in a cache when it is multiplied, and a non-temporal store does not read the line that it
/// overwrites.
const UNCACHED: usize = 8 << 20;

/// Floats below which a second thread costs more time than it saves.
pub(super) const MIN_PACKED_TO_FORK: usize = work_to_share(1 << 16);

/// Tasks per thread.
pub(super) const TASKS_PER_THREAD: usize = 2;

/// Rows between the prefetch of a row and its use, for contiguous rows.
const PREFETCH_ROWS: usize = 4;

/// Panels that are packed in one pass over contiguous rows: one KiB of each row, and no more write streams than the
/// hardware prefetcher tracks.
const PANELS_PER_PASS: usize = 4;

/// Rows of a panel that are transposed before the next vector of columns. Two vectors of columns write to one cache
/// line, and the line is then still in a cache.
const TRANSPOSE_ROWS: usize = 512;

/// Packs one panel from contiguous columns, `stride` floats apart. It reads one vector of columns after another,
/// because the hardware prefetcher tracks that many streams but not a whole panel of them.
///
/// # Safety
/// `from` is valid for reads of `depth` floats at each of `PANEL` columns, and `to` for writes of `depth * PANEL`
/// floats; they do not overlap. If `NONTEMPORAL`, `to` is aligned to a cache line.
#[inline(always)]
unsafe fn panel_of_columns<S: SimdF32, const NONTEMPORAL: bool>(
    s: S,
    from: *const f32,
    stride: usize,
    depth: usize,
    to: *mut f32,
) {
    let whole = depth - depth % S::LANES;
    for block in (0..whole).step_by(TRANSPOSE_ROWS) {
        for group in (0..S::PANEL).step_by(S::LANES) {
            for k in (block..whole.min(block + TRANSPOSE_ROWS)).step_by(S::LANES) {
                // SAFETY: `# Safety` of this function: LANES columns from `group` (below `PANEL`) and LANES rows from
                // `k` (below `whole`).
                unsafe {
                    let to = to.add(k * S::PANEL + group);
                    let from = from.add(group * stride + k);
                    if NONTEMPORAL {
                        s.transpose_nontemporal(from, stride, to, S::PANEL);
                    } else {
                        s.transpose(from, stride, to, S::PANEL);
                    }
                }
            }
        }
    }
    for k in whole..depth {
        for column in 0..S::PANEL {
            // SAFETY: `# Safety` of this function: `k < depth` and `column < PANEL`.
            unsafe { *to.add(k * S::PANEL + column) = *from.add(column * stride + k) };
        }
    }
}

/// Packs `panels` whole panels from contiguous rows, `stride` floats apart. It prefetches the next rows and their
/// places in the panels, because the hardware prefetcher does not follow steps from row to row.
///
/// # Safety
/// `from` is valid for reads of `panels * PANEL` floats at each of `depth` rows, and `to` for writes of
/// `panels * PANEL * depth` floats; they do not overlap. If `NONTEMPORAL`, `to` is aligned to a cache line.
#[inline(always)]
unsafe fn panels_of_rows<S: SimdF32, const NONTEMPORAL: bool>(
    s: S,
    from: *const f32,
    stride: usize,
    depth: usize,
    to: *mut f32,
    panels: usize,
) {
    for k in 0..depth {
        for panel in 0..panels {
            let from = from.wrapping_add(k * stride + panel * S::PANEL);
            let to = to.wrapping_add((panel * depth + k) * S::PANEL);
            for line in (0..S::PANEL).step_by(CACHE_LINE_F32) {
                s.prefetch(from.wrapping_add(PREFETCH_ROWS.wrapping_mul(stride) + line));
                if !NONTEMPORAL {
                    s.prefetch(to.wrapping_add(PREFETCH_ROWS * S::PANEL + line));
                }
            }
            for group in (0..S::PANEL).step_by(S::LANES) {
                // SAFETY: `# Safety` of this function: `k < depth`, `panel < panels` and `group + LANES <= PANEL`.
                unsafe {
                    let (to, v) = (to.add(group), s.load(from.add(group)));
                    if NONTEMPORAL { s.store_nontemporal(to, v) } else { s.store(to, v) }
                };
            }
        }
    }
}

/// Packs `block`, `[depth, n]`, as columns `first..first + n` of a matrix with `columns` columns in `buffer`, which has
/// the length of the whole matrix.
pub(super) fn pack_f32(
    isa: Isa,
    block: Matrix<'_>,
    columns: usize,
    first: usize,
    buffer: &mut [f32],
    workers: Workers<'_>,
) {
    let end = first + block.columns();
    let panels = first / isa.panel()..end.div_ceil(isa.panel());
    let (threads, nontemporal) = (workers.threads(), buffer.len() > UNCACHED);
    let elements = block.rows() * block.columns();
    if threads == 1 || panels.len() <= 1 || elements < MIN_PACKED_TO_FORK {
        // SAFETY: the buffer has the length of the whole matrix.
        isa.dispatch(unsafe { pack_block(block, columns, first, buffer, nontemporal) });
        return;
    }
    let buffer = SharedMut::new(buffer);
    let tasks = panels.len().min(threads * TASKS_PER_THREAD);
    workers.for_each(tasks, &|task| {
        let own = share(panels.len(), tasks, task);
        let own = panels.start + own.start..panels.start + own.end;
        // SAFETY: the buffer has all panels, and `share` gives each panel to one task.
        unsafe { pack_panels(isa, block, columns, first, own, (buffer, nontemporal)) };
    });
}

/// Packs the columns of `block` that are in panels `panels` of `buffer`. `block` starts at column `first` of a matrix
/// with `columns` columns.
///
/// # Safety
/// `buffer` has the panels, and no other thread uses them.
unsafe fn pack_panels(
    isa: Isa,
    block: Matrix<'_>,
    columns: usize,
    first: usize,
    panels: Range<usize>,
    (buffer, nontemporal): (SharedMut<'_>, bool),
) {
    let (width, depth) = (isa.panel(), block.rows());
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
    let (columns, first) = (columns - origin, start - origin);
    // SAFETY: `buffer` has the length of these panels.
    isa.dispatch(unsafe { pack_block(block, columns, first, buffer, nontemporal) });
}

simd_op!(
    /// Packs `block` as columns `first..` of a matrix with `columns` columns. `nontemporal` is whether the packed matrix
    /// is larger than [`UNCACHED`].
    ///
    /// # Safety
    /// `buffer` has the length of the packed matrix.
    pub(super) unsafe fn pack_block<S: SimdF32>(
        s: S,
        block: Matrix<'_>,
        columns: usize,
        first: usize,
        buffer: &mut [f32],
        nontemporal: bool,
    ) {
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
            && strong_hw_prefetcher(s)
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
                // `panels`). Their places are in the buffer, whose length the callers of `pack_block` check. If
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
            let group = if whole { S::LANES } else { 1 };
            let mut k = 0;
            // SAFETY: columns `j..j + group` and rows below `depth` are in the block. Their places are in the buffer, because
            // `offset_of` stays below the length of the packed shape, which the callers of `pack_block` check.
            unsafe {
                if whole && row_stride == 1 {
                    while k + S::LANES <= depth {
                        let from = from.add(j * column_stride + k);
                        s.transpose(
                            from,
                            column_stride,
                            to.add(offset_of(j) + k * S::PANEL),
                            S::PANEL,
                        );
                        k += S::LANES;
                    }
                } else if whole && column_stride == 1 {
                    while k < depth {
                        let row = s.load(from.add(k * row_stride + j));
                        s.store(to.add(offset_of(j) + k * S::PANEL), row);
                        k += 1;
                    }
                }
                for column in j..j + group {
                    for k in k..depth {
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
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn nontemporal_stores_pack_the_same_floats() {
        for isa in Isa::available() {
            for (depth, columns) in [(1, 64), (17, 150), (40, 192), (550, 330)] {
                let w: Vec<f32> = (0..depth * columns).map(|i| i as f32).collect();
                let by_row = Matrix::new(&w, depth, columns).expect("W");
                let by_column = Matrix::new(&w, columns, depth).expect("W").transposed();
                for block in [by_row, by_column] {
                    let len = columns.next_multiple_of(isa.panel()) * depth;
                    let packed = [false, true].map(|nontemporal| {
                        let mut buffer = vec![f32::NAN; len + 16];
                        let start = buffer.as_ptr().align_offset(64);
                        let buffer = &mut buffer[start..start + len];
                        // SAFETY: `buffer` has the length of the packed matrix.
                        isa.dispatch(unsafe { pack_block(block, columns, 0, buffer, nontemporal) });
                        buffer.to_vec()
                    });
                    assert_eq!(packed[0], packed[1], "{isa}: {depth} x {columns}");
                }
            }
        }
    }
}
