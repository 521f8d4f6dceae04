//! Packs a weight matrix into 16-bit panels.
//!
//! A few rows of a panel at a time are packed as f32 on the stack, and then rounded into the panel. Strides,
//! transposition and prefetch are those of f32 packing.

use super::f16_layout::F16Column;
use super::packing::{MIN_PACKED_TO_FORK, Pack, PackedMatrix, TASKS_PER_THREAD};
use crate::dtype::Dtype;
use crate::error::Error;
use crate::isa::{AutoVectorize, Isa};
use crate::matrix::Matrix;
use crate::parallel::{Parallelism, share};
use crate::shared::SharedMut;
use crate::simd::MAX_PANEL;
use crate::simd::half::{narrow_bf16, narrow_f16};
use core::sync::atomic::{AtomicBool, Ordering};

/// Rows of a panel that are packed as f32 at a time: 8 KiB of the widest panel.
const ROWS: usize = 32;

impl PackedMatrix<'_> {
    /// [`PackedMatrix::pack_block_with`] into a matrix with dtype `storage`. `buffer` has [`PackedMatrix::len_as`]
    /// words, and [`PackedMatrix::from_packed_as`] makes a matrix of it.
    ///
    /// Values are rounded as described at [`Dtype`]; values that the dtype can represent do not change. Infinities stay
    /// infinities. A NaN stays a NaN with the same sign and the upper bits of its payload, and becomes quiet.
    ///
    /// # Errors
    /// As [`PackedMatrix::pack_block`], and [`Error::ValueTooLarge`] for a finite value that would round to
    /// infinity (for f16, a magnitude of 65,520 or more). Nothing is written then.
    ///
    /// ```
    /// use simdformer_kernels::{
    ///     Epilogue, Error, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, Dtype, gemm,
    /// };
    ///
    /// let (isa, serial) = (Isa::best(), Parallelism::Serial);
    /// let mut buffer = vec![0.0; PackedMatrix::len_as(isa, Dtype::F16, 2, 3)?];
    /// let weight = Matrix::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3)?;
    /// PackedMatrix::pack_block_as(isa, Dtype::F16, weight, (2, 3), 0, &mut buffer, serial)?;
    /// let packed = PackedMatrix::from_packed_as(isa, Dtype::F16, 2, 3, &buffer)?;
    ///
    /// let mut y = [0.0; 3];
    /// let x = Matrix::new(&[1.0, 10.0], 1, 2)?;
    /// gemm(x, &packed, &Epilogue::default(), MatrixMut::new(&mut y, 1, 3)?, serial)?;
    /// assert_eq!(y, [41.0, 52.0, 63.0]);
    ///
    /// // A value that f16 cannot represent is an error.
    /// let weight = Matrix::new(&[1e5], 1, 1)?;
    /// let large =
    ///     PackedMatrix::pack_block_as(isa, Dtype::F16, weight, (2, 3), 0, &mut buffer, serial);
    /// assert!(large.is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pack_block_as(
        isa: Isa,
        storage: Dtype,
        block: Matrix<'_>,
        shape: (usize, usize),
        first: usize,
        buffer: &mut [f32],
        parallelism: Parallelism<'_>,
    ) -> Result<(), Error> {
        if storage == Dtype::F32 {
            return Self::pack_block_with(isa, block, shape, first, buffer, parallelism);
        }
        // `len_as` also checks this. The check here removes the code below from builds without the feature.
        if !cfg!(feature = "f16") {
            return Err(Error::MissingFeature { feature: "f16" });
        }
        let (depth, columns) = shape;
        let expected = Self::len_as(isa, storage, depth, columns)?;
        let end = Self::check_block(&block, shape, first, (expected, buffer.len()))?;
        let panels = first / isa.panel()..end.div_ceil(isa.panel());
        let buffer = SharedMut::new(&mut buffer[..expected]);
        let part = |panel: usize| Part { isa, storage, block, columns, first, panel };
        let workers = parallelism.workers();
        let threads = workers.threads();
        let tasks = if threads == 1 || depth * block.columns() < MIN_PACKED_TO_FORK {
            1
        } else {
            panels.len().min(threads * TASKS_PER_THREAD)
        };
        let all = |work: &(dyn Fn(Part<'_>) + Sync)| {
            let some = |task: usize| {
                let own = share(panels.len(), tasks, task);
                own.for_each(|index| work(part(panels.start + index)));
            };
            match tasks {
                1 => some(0),
                _ => workers.for_each(tasks, &some),
            }
        };
        let too_large = AtomicBool::new(false);
        all(&|part| {
            if part.is_too_large() {
                too_large.store(true, Ordering::Relaxed);
            }
        });
        if too_large.into_inner()
            && let Some(error) = first_too_large(storage, &block, first)
        {
            return Err(error);
        }
        all(&|part| {
            // SAFETY: `check_block` checked the length for the whole shape, and each panel belongs to one task.
            unsafe { part.pack(buffer) }
        });
        Ok(())
    }
}

/// The error for the first value, in row order, that is too large.
fn first_too_large(storage: Dtype, block: &Matrix<'_>, first: usize) -> Option<Error> {
    for row in 0..block.rows() {
        for column in 0..block.columns() {
            let bits = block.at(row, column).to_bits();
            if is_too_large(storage, bits) {
                let (at, found) = ([row, first + column], f32::from_bits(bits));
                return Some(Error::ValueTooLarge { dtype: storage, at, found });
            }
        }
    }
    None
}

#[inline(always)]
fn is_too_large(storage: Dtype, bits: u32) -> bool {
    let magnitude = bits & 0x7fff_ffff;
    magnitude >= storage.too_large() && magnitude < f32::INFINITY.to_bits()
}

/// The part of a block that is in one panel.
#[derive(Clone, Copy)]
struct Part<'a> {
    isa: Isa,
    storage: Dtype,
    block: Matrix<'a>,
    /// Columns of the whole matrix.
    columns: usize,
    /// Column of the matrix where the block starts.
    first: usize,
    panel: usize,
}

impl<'a> Part<'a> {
    /// The first column of the part within the panel, and the part as a view of the block.
    fn columns(&self) -> (usize, Matrix<'a>) {
        let origin = self.panel * self.isa.panel();
        let start = self.first.max(origin);
        let end = (self.first + self.block.columns()).min(origin + self.isa.panel());
        // SAFETY: `start..end` is inside the columns of the block.
        let columns = unsafe { self.block.columns_unchecked(start - self.first, end - start) };
        (start - origin, columns)
    }

    fn is_too_large(&self) -> bool {
        let (_, block) = self.columns();
        self.isa.run(Search { block, storage: self.storage })
    }

    /// # Safety
    /// `buffer` has the panel, and no other thread uses it.
    unsafe fn pack(&self, buffer: SharedMut<'_>) {
        let Self { isa, storage, columns, panel, .. } = *self;
        let (width, depth) = (isa.panel(), self.block.rows());
        let (first, block) = self.columns();
        // The columns after the last column of the matrix are zeros.
        let last = panel * width + first + block.columns() == columns;
        let count = if last { width - first } else { block.columns() };
        let words = storage.words(depth);
        // SAFETY: `# Safety` of this function.
        let to = unsafe { buffer.part(panel * width * words, width * words) };
        for start in (0..depth).step_by(ROWS) {
            let rows = (depth - start).min(ROWS);
            // An odd last row is followed by a row of zeros.
            let mut rows_f32 = [0.0; (ROWS + 1) * MAX_PANEL];
            // SAFETY: `start + rows <= depth`, the rows of the block.
            let block = unsafe { block.block_unchecked(start, rows) };
            let buffer = &mut rows_f32[..rows * width];
            let columns = first + block.columns();
            isa.dispatch(Pack { block, columns, first, buffer, nontemporal: false });
            let to = to[storage.words(start) * width..].as_mut_ptr().cast();
            let rows_f32 = &rows_f32[..rows.next_multiple_of(2) * width];
            isa.run(Round { rows_f32, storage, isa, columns: (first, count), to });
        }
    }
}

/// Searches a block for a value that is too large.
struct Search<'a> {
    block: Matrix<'a>,
    storage: Dtype,
}

impl AutoVectorize for Search<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { block, storage } = self;
        // Transposed if necessary, so that the inner loop reads contiguous memory.
        let block = if block.column_stride() == 1 { block } else { block.transposed() };
        let (row, column) = (block.row_stride(), block.column_stride());
        let mut found = false;
        for i in 0..block.rows() {
            let line = block.as_ptr().wrapping_add(i * row);
            if column == 1 {
                // SAFETY: `i` is below the rows of the block, and its columns are contiguous (`column == 1`).
                let line = unsafe { core::slice::from_raw_parts(line, block.columns()) };
                let any = line
                    .iter()
                    .fold(0, |any, x| any | u32::from(is_too_large(storage, x.to_bits())));
                found |= any != 0;
                continue;
            }
            for j in 0..block.columns() {
                // SAFETY: `i` and `j` are below the rows and the columns of the block.
                let x = unsafe { *line.add(j * column) };
                found |= is_too_large(storage, x.to_bits());
            }
        }
        found
    }
}

/// Rounds rows of a panel into the packed matrix.
struct Round<'a> {
    /// `[even number of rows][panel]`.
    rows_f32: &'a [f32],
    storage: Dtype,
    isa: Isa,
    /// The first column and the number of columns.
    columns: (usize, usize),
    /// Destination: row 0 of these rows in the panel.
    to: *mut u16,
}

impl AutoVectorize for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { rows_f32, storage, isa, columns: (first, count), to } = self;
        let (width, lanes) = (isa.panel(), isa.lanes());
        for (pair, rows) in rows_f32.chunks_exact(2 * width).enumerate() {
            let (even, odd) = rows.split_at(width);
            let to = to.wrapping_add(2 * pair * width);
            if count < width {
                for column in first..first + count {
                    let positions = F16Column::of_column(isa, storage, 0, column);
                    for (k, row) in [even, odd].into_iter().enumerate() {
                        // SAFETY: `column < width`, and the caller reserved both rows of this pair.
                        unsafe {
                            *to.add(positions.row(k)) = match storage {
                                Dtype::F16 => narrow_f16(row[column]),
                                Dtype::F32 | Dtype::Bf16 => narrow_bf16(row[column]),
                            };
                        }
                    }
                }
                continue;
            }
            // SAFETY: all `width` columns of the panel, and the caller reserved both rows of this pair.
            let to = unsafe { core::slice::from_raw_parts_mut(to, 2 * width) };
            if storage == Dtype::F16 {
                // Vectors of the two rows alternate.
                let rows = even.chunks_exact(lanes).zip(odd.chunks_exact(lanes));
                for (to, (even, odd)) in to.chunks_exact_mut(2 * lanes).zip(rows) {
                    let (to_even, to_odd) = to.split_at_mut(lanes);
                    to_even.iter_mut().zip(even).for_each(|(to, &x)| *to = narrow_f16(x));
                    to_odd.iter_mut().zip(odd).for_each(|(to, &x)| *to = narrow_f16(x));
                }
            } else {
                for (to, (&even, &odd)) in to.chunks_exact_mut(2).zip(even.iter().zip(odd)) {
                    to[0] = narrow_bf16(even);
                    to[1] = narrow_bf16(odd);
                }
            }
        }
    }
}
