//! Reads the values of a packed matrix: rows, and single elements of a column.

use super::pack_f16::F16Column;
use super::packing::PackedMatrix;
use crate::dtype::Dtype;
use crate::error::{Error, Expected};

impl PackedMatrix<'_> {
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
