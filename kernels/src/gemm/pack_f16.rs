//! The layout of 16-bit weights, and packing from and to 16-bit dtypes.
//!
//! Both 16-bit dtypes widen to f32 exactly, so a product with 16-bit weights has the bits of the product with the same
//! values in f32. Only packing can lose bits, once, when it rounds f32 values to 16 bits.
//!
//! A panel stores two rows of the matrix interleaved, `[ceil(depth / 2)][2 panel]` values, with a row of zeros after an
//! odd last row. One vector of memory is then two vectors of f32. The order within two rows is the one that widens in
//! one instruction:
//!
//! * bf16: the two values of each column are adjacent. A mask of a 32-bit word gives the upper row and a shift gives
//!   the lower row. The instructions that multiply bf16 need the same order.
//! * f16: vectors of the two rows alternate, because the conversion instructions read contiguous values.
//!
//! To pack, a few rows of a panel at a time are packed as f32 on the stack, and then rounded into the panel. Strides,
//! transposition and prefetch are those of f32 packing.

use super::packing::{MIN_PACKED_TO_FORK, TASKS_PER_THREAD};
use super::weight_source::PackSource;
use crate::dtype::Dtype;
use crate::error::Error;
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::parallel::{Workers, share};
use crate::simd::half::{narrow_bf16, narrow_f16};
use crate::simd::{MAX_PANEL, simd_op};
use crate::sync_ptr::SharedMut;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

/// The positions of the values of a column, in units of 16-bit values.
#[derive(Clone, Copy)]
pub(crate) struct F16Column {
    /// Position of row 0.
    pub(super) start: usize,
    /// Distance from an even row to the next row.
    pub(super) odd: usize,
    /// Distance from two rows to the next two.
    pub(super) step: usize,
}

impl F16Column {
    /// The positions of column `column` of a matrix with `depth` rows.
    #[inline(always)]
    pub(super) const fn of_column(isa: Isa, dtype: Dtype, depth: usize, column: usize) -> Self {
        let (panel, lanes) = (isa.panel(), isa.lanes());
        let within = column % panel;
        let (offset, odd) = match dtype {
            Dtype::F16 => (within / lanes * 2 * lanes + within % lanes, lanes),
            Dtype::F32 | Dtype::Bf16 => (2 * within, 1),
        };
        Self { start: (column - within) * 2 * depth.div_ceil(2) + offset, odd, step: 2 * panel }
    }

    /// The position of row `k`.
    #[inline(always)]
    pub(super) const fn row(self, k: usize) -> usize {
        self.start + k / 2 * self.step + k % 2 * self.odd
    }
}

/// Rows of a panel that are packed as f32 at a time: 8 KiB of the widest panel.
const ROWS: usize = 32;

/// Packs `block` as columns `first..` of a matrix of `dtype` with `columns` columns, from or to 16-bit values. `buffer`
/// has the length of the whole matrix. If a value is too large, nothing is written.
pub(super) fn pack(
    isa: Isa,
    dtype: Dtype,
    block: &PackSource<'_>,
    columns: usize,
    first: usize,
    buffer: &mut [f32],
    workers: Workers<'_>,
) -> Result<(), Error> {
    // The check removes the code below from builds without the feature.
    if !cfg!(feature = "f16") {
        return Err(Error::NO_F16);
    }
    let [depth, count] = block.shape();
    let panels = first / isa.panel()..(first + count).div_ceil(isa.panel());
    let buffer = SharedMut::new(buffer);
    let part = |panel: usize| PanelPart { isa, dtype, block, columns, first, panel };
    let threads = workers.threads();
    let tasks = if threads == 1 || depth * count < MIN_PACKED_TO_FORK {
        1
    } else {
        panels.len().min(threads * TASKS_PER_THREAD)
    };
    let all = |work: &(dyn Fn(PanelPart<'_>) + Sync)| {
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
    if dtype != Dtype::F32 && dtype != block.dtype() {
        all(&|part| {
            if part.is_too_large() {
                too_large.store(true, Ordering::Relaxed);
            }
        });
    }
    if too_large.into_inner()
        && let Some(error) = first_too_large(dtype, block, first)
    {
        return Err(error);
    }
    all(&|part| {
        // SAFETY: the buffer has the length of the whole shape, and each panel belongs to one task.
        unsafe { part.pack(buffer) }
    });
    Ok(())
}

/// The error for the first value, in row order, that is too large.
fn first_too_large(dtype: Dtype, block: &PackSource<'_>, first: usize) -> Option<Error> {
    let [rows, columns] = block.shape();
    let mut places = (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column]));
    places.find_map(|[row, column]| {
        let found = block.at(row, column);
        let error = Error::ValueTooLarge { dtype, at: [row, first + column], found };
        is_too_large(dtype, found.to_bits()).then_some(error)
    })
}

#[inline(always)]
fn is_too_large(dtype: Dtype, bits: u32) -> bool {
    let magnitude = bits & 0x7fff_ffff;
    magnitude >= dtype.too_large() && magnitude < f32::INFINITY.to_bits()
}

/// The part of a block that is in one panel.
#[derive(Clone, Copy)]
struct PanelPart<'a> {
    isa: Isa,
    dtype: Dtype,
    block: &'a PackSource<'a>,
    /// Columns of the whole matrix.
    columns: usize,
    /// Column of the matrix where the block starts.
    first: usize,
    panel: usize,
}

impl PanelPart<'_> {
    /// The first column of the part within the panel, and its columns in the block.
    fn columns(&self) -> (usize, Range<usize>) {
        let origin = self.panel * self.isa.panel();
        let start = self.first.max(origin);
        let end = (self.first + self.block.shape()[1]).min(origin + self.isa.panel());
        (start - origin, start - self.first..end - self.first)
    }

    fn is_too_large(&self) -> bool {
        let (dtype, (_, columns)) = (self.dtype, self.columns());
        if let Some(matrix) = self.block.as_f32() {
            // SAFETY: `columns` returns columns of the block.
            let block = unsafe { matrix.columns_unchecked(columns.start, columns.len()) };
            return self.isa.dispatch(has_too_large(block, dtype));
        }
        let rows = 0..self.block.shape()[0];
        let of_row = |row| columns.clone().map(move |column| self.block.at(row, column));
        rows.flat_map(of_row).any(|x| is_too_large(dtype, x.to_bits()))
    }

    /// # Safety
    /// `buffer` has the panel, and no other thread uses it.
    unsafe fn pack(&self, buffer: SharedMut<'_>) {
        let Self { isa, dtype, block, columns, panel, .. } = *self;
        let (width, [depth, _]) = (isa.panel(), block.shape());
        let (first, part) = self.columns();
        // The columns after the last column of the matrix are zeros.
        let last = panel * width + first + part.len() == columns;
        let count = if last { width - first } else { part.len() };
        let words = dtype.words(depth);
        // SAFETY: `# Safety` of this function.
        let to = unsafe { buffer.part(panel * width * words, width * words) };
        for start in (0..depth).step_by(ROWS) {
            let rows = start..depth.min(start + ROWS);
            let to = &mut to[dtype.words(start) * width..];
            if dtype == Dtype::F32 {
                // SAFETY: `rows` and `part` are of the block, and the panel has as many rows.
                unsafe { block.pack_rows(isa, rows, part.clone(), (first, last), to) };
                continue;
            }
            // An odd last row is followed by a row of zeros.
            let mut rows_f32 = [0.0; (ROWS + 1) * MAX_PANEL];
            let padded = rows.len().next_multiple_of(2) * width;
            // SAFETY: `rows` and `part` are of the block, and `rows_f32` has `ROWS` rows.
            unsafe { block.pack_rows(isa, rows, part.clone(), (first, true), &mut rows_f32) };
            let (rows_f32, to) = (&rows_f32[..padded], to.as_mut_ptr().cast());
            // SAFETY: the panel has these rows, of which `to` has all that remain.
            isa.dispatch(unsafe { round_pairs(rows_f32, dtype, isa, (first, count), to) });
        }
    }
}

simd_op!(
    /// Whether a block has a value that is too large.
    fn has_too_large<S: SimdF32>(_s: S, block: Matrix<'_>, dtype: Dtype) -> bool {
        // Transposed if necessary, so that the inner loop reads contiguous memory.
        let block = if block.column_stride() == 1 { block } else { block.transposed() };
        let (row, column) = (block.row_stride(), block.column_stride());
        let mut found = false;
        for i in 0..block.rows() {
            let line = block.as_ptr().wrapping_add(i * row);
            if column == 1 {
                // SAFETY: `i` is below the rows of the block, and its columns are contiguous (`column == 1`).
                let line = unsafe { core::slice::from_raw_parts(line, block.columns()) };
                let any =
                    line.iter().fold(0, |any, x| any | u32::from(is_too_large(dtype, x.to_bits())));
                found |= any != 0;
                continue;
            }
            for j in 0..block.columns() {
                // SAFETY: `i` and `j` are below the rows and the columns of the block.
                let x = unsafe { *line.add(j * column) };
                found |= is_too_large(dtype, x.to_bits());
            }
        }
        found
    }
);

simd_op!(
    /// Rounds `rows_f32`, `[even number of rows][panel]`, into the packed matrix: the columns `columns`, given as the first
    /// and their number. `to` is row 0 of these rows in the panel.
    ///
    /// # Safety
    /// `to` is valid for writes of the columns of these rows, and no other thread uses them.
    unsafe fn round_pairs<S: SimdF32>(
        _s: S,
        rows_f32: &[f32],
        dtype: Dtype,
        isa: Isa,
        columns: (usize, usize),
        to: *mut u16,
    ) {
        let (width, lanes, (first, count)) = (isa.panel(), isa.lanes(), columns);
        for (pair, rows) in rows_f32.chunks_exact(2 * width).enumerate() {
            let (even, odd) = rows.split_at(width);
            let to = to.wrapping_add(2 * pair * width);
            if count < width {
                for column in first..first + count {
                    let positions = F16Column::of_column(isa, dtype, 0, column);
                    for (k, row) in [even, odd].into_iter().enumerate() {
                        // SAFETY: the contract of this function; `column` is one of the columns.
                        unsafe {
                            *to.add(positions.row(k)) = match dtype {
                                Dtype::F16 => narrow_f16(row[column]),
                                Dtype::F32 | Dtype::Bf16 => narrow_bf16(row[column]),
                            };
                        }
                    }
                }
                continue;
            }
            // SAFETY: the contract of this function, for all columns of the panel.
            let to = unsafe { core::slice::from_raw_parts_mut(to, 2 * width) };
            if dtype == Dtype::F16 {
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
);
