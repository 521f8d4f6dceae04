//! Checked, strided views of matrices in the caller's slices.
//!
//! Every kernel takes these instead of pointers. A view that exists is a view whose every element
//! lies inside its slice, so kernels check shapes once and then walk without bounds checks.
//!
//! A stride that no two elements are apart, along an axis of length 1 or in a view without elements,
//! may be anything; the view forgets it and has the stride of a dense one instead. So an index of
//! the view times a stride of the view never overflows.

use crate::shared::SharedMut;
use core::fmt;

/// Why a view could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewError {
    /// The last element of the view would lie outside the slice.
    TooShort {
        /// Elements that the shape and strides reach.
        expected: usize,
        /// Elements in the slice.
        found: usize,
    },
    /// Shape times strides overflows `usize`.
    Overflow,
    /// Two elements of a writable view would be the same memory.
    Overlap {
        /// Elements from one row to the next.
        row_stride: usize,
        /// Elements from one column to the next.
        column_stride: usize,
    },
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { expected, found } => {
                write!(f, "the view needs a slice of {expected} elements, found {found}")
            }
            Self::Overflow => f.write_str("shape times strides overflows usize"),
            Self::Overlap { row_stride, column_stride } => write!(
                f,
                "row stride {row_stride} and column stride {column_stride} make elements of a writable view overlap"
            ),
        }
    }
}

impl core::error::Error for ViewError {}

/// Elements a view reaches from its first one, or `None` on overflow. Zero when it has no element.
fn extent(rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> Option<usize> {
    if rows == 0 || columns == 0 {
        return Some(0);
    }
    let last_row = (rows - 1).checked_mul(row_stride)?;
    let last_column = (columns - 1).checked_mul(column_stride)?;
    let reach = last_row.checked_add(last_column)?.checked_add(1)?;
    // Pointer offsets are counted in signed bytes.
    (reach <= isize::MAX as usize / 4).then_some(reach)
}

/// The strides of a view that [`extent`] has checked, with those that are never stepped replaced: by 1
/// from column to column, and by what a row reaches from row to row.
fn stepped(rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> (usize, usize) {
    if rows == 0 || columns == 0 {
        return (0, 1);
    }
    let column_stride = if columns == 1 { 1 } else { column_stride };
    let row_stride = if rows == 1 { (columns - 1) * column_stride + 1 } else { row_stride };
    (row_stride, column_stride)
}

/// A read-only matrix `[rows, columns]`; element `(i, j)` is `data[i * row_stride + j * column_stride]`.
///
/// Strides may be zero, which repeats a row or a column.
///
/// ```
/// use simdformer_kernels::Matrix;
///
/// let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let a = Matrix::new(&data, 2, 3)?;
/// assert_eq!(a.transposed().at(2, 1), a.at(1, 2));
/// # Ok::<(), simdformer_kernels::ViewError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Rows laid end to end.
    ///
    /// # Errors
    /// The slice is shorter than `rows * columns`.
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> Result<Self, ViewError> {
        Self::strided(data, rows, columns, columns, 1)
    }

    /// Any strides, in elements. Those that are never stepped do not matter.
    ///
    /// # Errors
    /// The last element would lie outside `data`.
    pub fn strided(
        data: &'a [f32],
        rows: usize,
        columns: usize,
        row_stride: usize,
        column_stride: usize,
    ) -> Result<Self, ViewError> {
        let expected =
            extent(rows, columns, row_stride, column_stride).ok_or(ViewError::Overflow)?;
        if expected > data.len() {
            return Err(ViewError::TooShort { expected, found: data.len() });
        }
        let (row_stride, column_stride) = stepped(rows, columns, row_stride, column_stride);
        Ok(Self { data, rows, columns, row_stride, column_stride })
    }

    /// The same memory read the other way around.
    pub const fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// Rows `first..first + count`, at most those that there are.
    ///
    /// # Errors
    /// There are fewer than `first + count` rows.
    pub fn block(self, first: usize, count: usize) -> Result<Self, ViewError> {
        let expected = first.saturating_add(count);
        if expected > self.rows {
            return Err(ViewError::TooShort { expected, found: self.rows });
        }
        // With no element to come, the offset may lie past the slice.
        let start = (first * self.row_stride).min(self.data.len());
        Ok(Self { data: &self.data[start..], rows: count, ..self })
    }

    /// Number of rows.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Elements from one row to the next; with one row, what it reaches.
    pub const fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Elements from one column to the next; with one column, 1.
    pub const fn column_stride(&self) -> usize {
        self.column_stride
    }

    /// Element `(row, column)`.
    ///
    /// # Panics
    /// The element is outside the matrix.
    pub fn at(&self, row: usize, column: usize) -> f32 {
        assert!(
            row < self.rows && column < self.columns,
            "element ({row}, {column}) of a {} x {} matrix",
            self.rows,
            self.columns
        );
        self.data[row * self.row_stride + column * self.column_stride]
    }

    /// The first element's address; dangling when there is none.
    pub(crate) const fn as_ptr(&self) -> *const f32 {
        self.data.as_ptr()
    }
}

/// A writable matrix `[rows, columns]`; no two elements share memory.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// Rows laid end to end.
    ///
    /// # Errors
    /// The slice is shorter than `rows * columns`.
    pub fn new(data: &'a mut [f32], rows: usize, columns: usize) -> Result<Self, ViewError> {
        Self::strided(data, rows, columns, columns, 1)
    }

    /// Any strides, in elements, under which no two elements coincide: one stride must step over
    /// the whole extent of the other direction.
    ///
    /// # Errors
    /// The last element would lie outside `data`, or elements would overlap.
    pub fn strided(
        data: &'a mut [f32],
        rows: usize,
        columns: usize,
        row_stride: usize,
        column_stride: usize,
    ) -> Result<Self, ViewError> {
        let expected =
            extent(rows, columns, row_stride, column_stride).ok_or(ViewError::Overflow)?;
        if expected > data.len() {
            return Err(ViewError::TooShort { expected, found: data.len() });
        }
        if expected > 0 {
            let row_extent = (columns - 1) * column_stride + 1;
            let column_extent = (rows - 1) * row_stride + 1;
            let rows_apart = rows == 1 || row_stride >= row_extent;
            let columns_apart = columns == 1 || column_stride >= column_extent;
            let within_row = columns == 1 || column_stride > 0;
            let within_column = rows == 1 || row_stride > 0;
            if !((rows_apart && within_row) || (columns_apart && within_column)) {
                return Err(ViewError::Overlap { row_stride, column_stride });
            }
        }
        let (row_stride, column_stride) = stepped(rows, columns, row_stride, column_stride);
        Ok(Self { data, rows, columns, row_stride, column_stride })
    }

    /// Number of rows.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Elements from one row to the next; with one row, what it reaches.
    pub const fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Elements from one column to the next; with one column, 1.
    pub const fn column_stride(&self) -> usize {
        self.column_stride
    }

    /// A shorter-lived view of the same elements.
    pub const fn reborrow(&mut self) -> MatrixMut<'_> {
        MatrixMut {
            data: &mut *self.data,
            rows: self.rows,
            columns: self.columns,
            row_stride: self.row_stride,
            column_stride: self.column_stride,
        }
    }

    /// The elements as a value that threads can share, each writing its own part.
    pub(crate) fn shared(&mut self) -> SharedMut<'_> {
        SharedMut::new(self.data)
    }
}
