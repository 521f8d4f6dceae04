//! From a weight matrix to panels of numbers of sixteen bits.
//!
//! A few rows of a panel at a time are packed as floats, on the stack, and rounded from there to where they
//! belong: strides, turned matrices and what is asked of memory are those of packing floats.

use super::dtype::{Dtype, Halves};
use super::error::GemmError;
use super::packing::{MIN_PACKED_TO_FORK, Pack, PackedMatrix, TASKS_PER_THREAD};
use crate::isa::{AutoVectorize, Isa};
use crate::matrix::Matrix;
use crate::parallel::{Parallelism, share};
use crate::shared::SharedMut;
use crate::simd::MAX_PANEL;
use crate::simd::half::{narrow_bf16, narrow_f16};
use core::sync::atomic::{AtomicBool, Ordering};

/// Rows of a panel that are packed as floats at a time: 8 KiB of the widest.
const ROWS: usize = 32;

impl PackedMatrix<'_> {
    /// [`PackedMatrix::pack_block_with`] into a matrix that is stored as `storage`: `buffer` is of
    /// [`PackedMatrix::len_as`] words, and becomes a matrix by [`PackedMatrix::from_packed_as`].
    ///
    /// Numbers are rounded as [`Dtype`] says, which changes none that the form holds. Infinities and NaN
    /// stay what they are (a NaN keeps its sign and the upper bits of its payload, and becomes quiet).
    ///
    /// # Errors
    /// As [`PackedMatrix::pack_block`], and [`GemmError::TooLargeToStore`] for a finite number that
    /// would be rounded to infinity, that is from 65,520 on as f16; then nothing is written.
    ///
    /// ```
    /// use simdformer_kernels::{
    ///     Epilogue, GemmError, Isa, Matrix, MatrixMut, PackedMatrix, Parallelism, Dtype, gemm,
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
    /// // What would not come back is refused.
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
    ) -> Result<(), GemmError> {
        if storage == Dtype::F32 {
            return Self::pack_block_with(isa, block, shape, first, buffer, parallelism);
        }
        // Also said by `len_as`; here it keeps the code below out of builds without the feature.
        if !cfg!(feature = "f16") {
            return Err(GemmError::MissingFeature { feature: "f16" });
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
            // SAFETY: the length was checked for the whole shape, and each panel is one task's.
            unsafe { part.pack(buffer) }
        });
        Ok(())
    }
}

/// The first number, row by row, that is too large.
fn first_too_large(storage: Dtype, block: &Matrix<'_>, first: usize) -> Option<GemmError> {
    for row in 0..block.rows() {
        for column in 0..block.columns() {
            let bits = block.at(row, column).to_bits();
            if is_too_large(storage, bits) {
                let at = (row, first + column);
                return Some(GemmError::TooLargeToStore { storage, at, bits });
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

/// What of a block lies in one panel.
#[derive(Clone, Copy)]
struct Part<'a> {
    isa: Isa,
    storage: Dtype,
    block: Matrix<'a>,
    /// Of the whole matrix.
    columns: usize,
    /// Column of the matrix that is the block's first.
    first: usize,
    panel: usize,
}

impl<'a> Part<'a> {
    /// Columns of the panel that are the block's, and the columns of the block that they are.
    fn columns(&self) -> (usize, Matrix<'a>) {
        let origin = self.panel * self.isa.panel();
        let start = self.first.max(origin);
        let end = (self.first + self.block.columns()).min(origin + self.isa.panel());
        // SAFETY: columns of the block.
        let columns = unsafe { self.block.columns_unchecked(start - self.first, end - start) };
        (start - origin, columns)
    }

    fn is_too_large(&self) -> bool {
        let (_, block) = self.columns();
        self.isa.run(Search { block, storage: self.storage })
    }

    /// # Safety
    /// `buffer` has the panel, and nobody else uses it.
    unsafe fn pack(&self, buffer: SharedMut<'_>) {
        let Self { isa, storage, columns, panel, .. } = *self;
        let (width, depth) = (isa.panel(), self.block.rows());
        let (first, block) = self.columns();
        // Beyond the last column of the matrix are columns of zeros.
        let last = panel * width + first + block.columns() == columns;
        let count = if last { width - first } else { block.columns() };
        let words = storage.words(depth);
        // SAFETY: the caller's contract.
        let to = unsafe { buffer.part(panel * width * words, width * words) };
        for start in (0..depth).step_by(ROWS) {
            let rows = (depth - start).min(ROWS);
            // A row of zeros after an odd last one.
            let mut room = [0.0; (ROWS + 1) * MAX_PANEL];
            // SAFETY: rows of the block.
            let block = unsafe { block.block_unchecked(start, rows) };
            let buffer = &mut room[..rows * width];
            let columns = first + block.columns();
            isa.dispatch(Pack { block, columns, first, buffer, past: false });
            let to = to[storage.words(start) * width..].as_mut_ptr().cast();
            let room = &room[..rows.next_multiple_of(2) * width];
            isa.run(Round { room, storage, isa, columns: (first, count), to });
        }
    }
}

/// Whether a number is too large.
struct Search<'a> {
    block: Matrix<'a>,
    storage: Dtype,
}

impl AutoVectorize for Search<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Self { block, storage } = self;
        // Lines that lie in memory as they are read.
        let block = if block.column_stride() == 1 { block } else { block.transposed() };
        let (row, column) = (block.row_stride(), block.column_stride());
        let mut found = false;
        for i in 0..block.rows() {
            let line = block.as_ptr().wrapping_add(i * row);
            if column == 1 {
                // SAFETY: a row of the block.
                let line = unsafe { core::slice::from_raw_parts(line, block.columns()) };
                let any = line
                    .iter()
                    .fold(0, |any, x| any | u32::from(is_too_large(storage, x.to_bits())));
                found |= any != 0;
                continue;
            }
            for j in 0..block.columns() {
                // SAFETY: an element of the block.
                let x = unsafe { *line.add(j * column) };
                found |= is_too_large(storage, x.to_bits());
            }
        }
        found
    }
}

/// Rounds rows of a panel to where they belong.
struct Round<'a> {
    /// `[even number of rows][panel]`.
    room: &'a [f32],
    storage: Dtype,
    isa: Isa,
    /// The first one, and how many.
    columns: (usize, usize),
    /// Row 0 of the panel.
    to: *mut u16,
}

impl AutoVectorize for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { room, storage, isa, columns: (first, count), to } = self;
        let (width, lanes) = (isa.panel(), isa.lanes());
        for (pair, rows) in room.chunks_exact(2 * width).enumerate() {
            let (even, odd) = rows.split_at(width);
            let to = to.wrapping_add(2 * pair * width);
            if count < width {
                for column in first..first + count {
                    let halves = Halves::of_column(isa, storage, 0, column);
                    for (k, row) in [even, odd].into_iter().enumerate() {
                        // SAFETY: a column of the panel, and two rows that the caller has room for.
                        unsafe {
                            *to.add(halves.row(k)) = match storage {
                                Dtype::F16 => narrow_f16(row[column]),
                                Dtype::F32 | Dtype::Bf16 => narrow_bf16(row[column]),
                            };
                        }
                    }
                }
                continue;
            }
            // SAFETY: all columns of the panel, and two rows that the caller has room for.
            let to = unsafe { core::slice::from_raw_parts_mut(to, 2 * width) };
            if storage == Dtype::F16 {
                // Vectors of the two rows in turn.
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
