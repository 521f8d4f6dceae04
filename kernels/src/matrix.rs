//! Checked, strided views of matrices in the caller's memory.
//!
//! Every kernel takes these views instead of pointers. Every element of a view lies inside its slice, so kernels check
//! shapes once and then read without bounds checks.
//!
//! A view is a pointer with strides, and covers only its elements. The memory between them does not belong to it, and
//! another thread may write there. The safe constructors make a view from a slice, which borrows the gaps as well.
//! [`Matrix::from_raw_parts`] and [`MatrixMut::from_raw_parts`] make one from a pointer, for matrices of which no
//! slice may be made: columns of a buffer whose other columns are borrowed elsewhere, halves of a column-major matrix,
//! memory of another language.
//!
//! A stride that is never used, along an axis of length 1 or in a view without elements, may have any value; the view
//! replaces it by the stride of a dense view. So an index of the view times a stride of the view never overflows.

use crate::error::{Error, Expected, ViewShape};
use crate::sync_ptr::SharedMut;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// A view in an error.
const fn view(shape: [usize; 2], strides: [usize; 2]) -> ViewShape {
    ViewShape::Matrix { shape, strides }
}

/// Number of elements from the first to the last element of a view, both included, or `None` on overflow. Zero when it
/// has no element.
fn extent(rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> Option<usize> {
    if rows == 0 || columns == 0 {
        return Some(0);
    }
    let last_row = (rows - 1).checked_mul(row_stride)?;
    let last_column = (columns - 1).checked_mul(column_stride)?;
    let reach = last_row.checked_add(last_column)?.checked_add(1)?;
    // Pointer offsets are signed byte counts.
    (reach <= isize::MAX as usize / 4).then_some(reach)
}

/// The strides of a view that [`extent`] has checked. Strides that are never used are replaced: the column stride by
/// 1, the row stride by the extent of a row.
fn stepped(rows: usize, columns: usize, row_stride: usize, column_stride: usize) -> (usize, usize) {
    if rows == 0 || columns == 0 {
        return (0, 1);
    }
    let column_stride = if columns == 1 { 1 } else { column_stride };
    let row_stride = if rows == 1 { (columns - 1) * column_stride + 1 } else { row_stride };
    (row_stride, column_stride)
}

/// The address of the first of `reach` elements; a dangling address when there is none.
pub(crate) fn first_of(data: *const f32, reach: usize) -> Result<NonNull<f32>, Error> {
    if reach == 0 {
        return Ok(NonNull::dangling());
    }
    NonNull::new(data.cast_mut()).ok_or(Error::Setting {
        name: "pointer of a view with elements",
        expected: "not null",
        found: 0.0,
    })
}

/// A read-only matrix `[rows, columns]`; element `(i, j)` is `data[i * row_stride + j * column_stride]`.
///
/// Strides are in elements and may be zero, which repeats a row or a column.
///
/// ```
/// use simdformer_kernels::Matrix;
///
/// let data = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let a = Matrix::new(&data, 2, 3)?;
/// assert_eq!(a.transposed().at(2, 1), a.at(1, 2));
/// // The last column of both rows.
/// let last = Matrix::strided(&data[2..], 2, 1, 3, 1)?;
/// assert_eq!((last.at(0, 0), last.at(1, 0)), (3.0, 6.0));
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    first: NonNull<f32>,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
    lender: PhantomData<&'a [f32]>,
}

// SAFETY: the view is a shared borrow of floats, and `&[f32]` is `Send`.
unsafe impl Send for Matrix<'_> {}
// SAFETY: `&Matrix` only reads the floats, and `f32` is `Sync`.
unsafe impl Sync for Matrix<'_> {}

impl<'a> Matrix<'a> {
    /// A dense matrix in row-major order.
    ///
    /// # Errors
    /// The slice is shorter than `rows * columns`.
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> Result<Self, Error> {
        Self::strided(data, rows, columns, columns, 1)
    }

    /// Any strides, in elements. Strides that are never used may have any value.
    ///
    /// # Errors
    /// The last element would lie outside `data`.
    pub fn strided(
        data: &'a [f32],
        rows: usize,
        columns: usize,
        row_stride: usize,
        column_stride: usize,
    ) -> Result<Self, Error> {
        let expected = extent(rows, columns, row_stride, column_stride);
        Error::check_view(view([rows, columns], [row_stride, column_stride]), expected, data)?;
        // SAFETY: the slice is borrowed for `'a` and reaches to the last element.
        unsafe { Self::from_raw_parts(data.as_ptr(), rows, columns, row_stride, column_stride) }
    }

    /// The matrix whose element `(i, j)` is `*data.add(i * row_stride + j * column_stride)`, strides in elements, for
    /// memory of which no slice can be borrowed. Memory between the elements is never read.
    ///
    /// A negative stride, cast to `usize`, is rejected if the view uses it: copy such a matrix, or start at its other
    /// end.
    ///
    /// # Errors
    /// Shape times strides overflows, or the pointer is null and the matrix has elements.
    ///
    /// # Safety
    /// For as long as `'a`, for every element of the matrix:
    ///
    /// * its address, and that of each element before it, lies in the allocation of `data`;
    /// * it is aligned as `f32` is, initialized, and may be read;
    /// * it is not written.
    ///
    /// The contract does not cover `data` when there is no element, and never covers the gaps between elements.
    ///
    /// ```
    /// use simdformer_kernels::Matrix;
    ///
    /// // Column-major, each column of 2 padded to 4.
    /// let columns = [1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0];
    /// // SAFETY: the last element is `columns[5]`; the array is borrowed for as long as the view.
    /// let a = unsafe { Matrix::from_raw_parts(columns.as_ptr(), 2, 2, 1, 4)? };
    /// assert_eq!((a.at(0, 1), a.at(1, 0)), (3.0, 2.0));
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    pub unsafe fn from_raw_parts(
        data: *const f32,
        rows: usize,
        columns: usize,
        row_stride: usize,
        column_stride: usize,
    ) -> Result<Self, Error> {
        let reach = extent(rows, columns, row_stride, column_stride)
            .ok_or(Error::LargeView { view: view([rows, columns], [row_stride, column_stride]) })?;
        let first = first_of(data, reach)?;
        let (row_stride, column_stride) = stepped(rows, columns, row_stride, column_stride);
        Ok(Self { first, rows, columns, row_stride, column_stride, lender: PhantomData })
    }

    /// The transpose `[columns, rows]`, a view of the same memory.
    pub const fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Rows `first..first + count`. For columns: `transposed().block(first, count)?.transposed()`.
    ///
    /// # Errors
    /// There are fewer than `first + count` rows.
    pub fn block(self, first: usize, count: usize) -> Result<Self, Error> {
        Error::check_end("end", "a block of rows", None, (first, count), self.rows)?;
        // SAFETY: the check above.
        Ok(unsafe { self.block_unchecked(first, count) })
    }

    /// [`Matrix::block`] without the check.
    ///
    /// # Safety
    /// `first + count <= rows`.
    pub(crate) const unsafe fn block_unchecked(self, first: usize, count: usize) -> Self {
        let first = if count == 0 || self.columns == 0 {
            self.first
        } else {
            // SAFETY: `first < rows` and there is a column, so row `first` has an element.
            unsafe { self.first.add(first * self.row_stride) }
        };
        Self { first, rows: count, ..self }
    }

    /// As [`Matrix::block_unchecked`], of columns.
    ///
    /// # Safety
    /// `first + count <= columns`.
    pub(crate) const unsafe fn columns_unchecked(self, first: usize, count: usize) -> Self {
        // SAFETY: the caller's contract.
        unsafe { self.transposed().block_unchecked(first, count).transposed() }
    }

    /// Number of rows.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Elements from one row to the next; with one row, its extent.
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
        // SAFETY: the assertion above: it is an element of the view.
        unsafe { self.first.add(row * self.row_stride + column * self.column_stride).read() }
    }

    /// Rows and columns.
    pub(crate) const fn shape(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// `Err` unless the matrix, `operand` of a call, has the shape `expected`.
    pub(crate) fn check_shape(
        &self,
        operand: &'static str,
        expected: [usize; 2],
    ) -> Result<(), Error> {
        let found = self.shape();
        if found == expected { Ok(()) } else { Err(Error::Shape { operand, expected, found }) }
    }

    /// `Err` unless the elements of each row are contiguous, so that vectors can be loaded from it.
    pub(crate) fn check_contiguous_rows(&self, operand: &'static str) -> Result<(), Error> {
        let stride = if self.columns > 1 { self.column_stride } else { 1 };
        Error::check_size("column stride", operand, Expected::Exactly(1), stride)
    }

    /// The first element's address; dangling when there is none.
    pub(crate) const fn as_ptr(&self) -> *const f32 {
        self.first.as_ptr().cast_const()
    }
}

impl fmt::Debug for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, columns, row_stride, column_stride, .. } = self;
        write!(f, "Matrix({rows} x {columns}, strides {row_stride} and {column_stride})")
    }
}

/// A writable matrix `[rows, columns]`; no two elements share memory.
///
/// ```
/// use simdformer_kernels::MatrixMut;
///
/// let mut data = [0.0; 6];
/// let mut c = MatrixMut::new(&mut data, 2, 3)?;
/// // A function that takes a `MatrixMut` also takes a block of it or its transpose.
/// let second_row = c.reborrow().block(1, 1)?;
/// assert_eq!((second_row.rows(), second_row.columns()), (1, 3));
/// assert_eq!(c.reborrow().transposed().rows(), 3);
/// assert_eq!(c.read().at(1, 2), 0.0);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
pub struct MatrixMut<'a> {
    first: NonNull<f32>,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
    lender: PhantomData<&'a mut [f32]>,
}

// SAFETY: the view is an exclusive borrow of floats, and `&mut [f32]` is `Send`.
unsafe impl Send for MatrixMut<'_> {}
// SAFETY: through `&MatrixMut` the floats are only read: every method that returns a pointer for writing takes `&mut
// self`.
unsafe impl Sync for MatrixMut<'_> {}

impl<'a> MatrixMut<'a> {
    /// A dense matrix in row-major order.
    ///
    /// # Errors
    /// The slice is shorter than `rows * columns`.
    pub fn new(data: &'a mut [f32], rows: usize, columns: usize) -> Result<Self, Error> {
        Self::strided(data, rows, columns, columns, 1)
    }

    /// Any strides, in elements, with which no two elements share memory: one stride must be at least the extent of
    /// the other axis.
    ///
    /// # Errors
    /// The last element would lie outside `data`, or elements would overlap.
    pub fn strided(
        data: &'a mut [f32],
        rows: usize,
        columns: usize,
        row_stride: usize,
        column_stride: usize,
    ) -> Result<Self, Error> {
        let expected = extent(rows, columns, row_stride, column_stride);
        Error::check_view(view([rows, columns], [row_stride, column_stride]), expected, data)?;
        // SAFETY: the slice is borrowed for `'a` and reaches to the last element.
        unsafe { Self::from_raw_parts(data.as_mut_ptr(), rows, columns, row_stride, column_stride) }
    }

    /// The writable matrix whose element `(i, j)` is `*data.add(i * row_stride + j * column_stride)`, strides in
    /// elements. Memory between the elements is neither read nor written, so the elements of several views may
    /// interleave, and each view may be used by another thread.
    ///
    /// # Errors
    /// Shape times strides overflows; elements overlap, as in [`MatrixMut::strided`]; or the pointer is null and the
    /// matrix has elements.
    ///
    /// # Safety
    /// For as long as `'a`, for every element of the matrix:
    ///
    /// * its address, and that of each element before it, lies in the allocation of `data`;
    /// * it is aligned as `f32` is, initialized, and may be read and written through `data`;
    /// * it is read and written through this view only.
    ///
    /// The contract does not cover `data` when there is no element, and never covers the gaps between elements.
    ///
    /// ```
    /// use simdformer_kernels::activation::{self, Activation};
    /// use simdformer_kernels::{Isa, MatrixMut, Parallelism};
    ///
    /// let isa = Isa::best();
    /// // Two halves of every row, each written by its own thread.
    /// let mut data = [-1.0f32; 4 * 8];
    /// let start = data.as_mut_ptr();
    /// // SAFETY: the halves have no element in common, and `data` is not used while they exist.
    /// let halves = unsafe {
    ///     [
    ///         MatrixMut::from_raw_parts(start, 4, 4, 8, 1)?,
    ///         MatrixMut::from_raw_parts(start.add(4), 4, 4, 8, 1)?,
    ///     ]
    /// };
    /// std::thread::scope(|scope| {
    ///     for half in halves {
    ///         scope.spawn(move || activation::apply(isa, Activation::Relu, half, Parallelism::Serial));
    ///     }
    /// });
    /// assert_eq!(data, [0.0; 32]);
    /// # Ok::<(), simdformer_kernels::Error>(())
    /// ```
    pub unsafe fn from_raw_parts(
        data: *mut f32,
        rows: usize,
        columns: usize,
        row_stride: usize,
        column_stride: usize,
    ) -> Result<Self, Error> {
        let reach = extent(rows, columns, row_stride, column_stride)
            .ok_or(Error::LargeView { view: view([rows, columns], [row_stride, column_stride]) })?;
        if reach > 0 {
            let row_extent = (columns - 1) * column_stride + 1;
            let column_extent = (rows - 1) * row_stride + 1;
            let rows_apart = rows == 1 || row_stride >= row_extent;
            let columns_apart = columns == 1 || column_stride >= column_extent;
            let within_row = columns == 1 || column_stride > 0;
            let within_column = rows == 1 || row_stride > 0;
            if !((rows_apart && within_row) || (columns_apart && within_column)) {
                return Err(Error::Overlap {
                    axes: "row and column",
                    strides: [row_stride, column_stride],
                });
            }
        }
        let first = first_of(data, reach)?;
        let (row_stride, column_stride) = stepped(rows, columns, row_stride, column_stride);
        Ok(Self { first, rows, columns, row_stride, column_stride, lender: PhantomData })
    }

    /// Number of rows.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Elements from one row to the next; with one row, its extent.
    pub const fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Elements from one column to the next; with one column, 1.
    pub const fn column_stride(&self) -> usize {
        self.column_stride
    }

    /// A read-only view of the same elements.
    pub const fn read(&self) -> Matrix<'_> {
        Matrix {
            first: self.first,
            rows: self.rows,
            columns: self.columns,
            row_stride: self.row_stride,
            column_stride: self.column_stride,
            lender: PhantomData,
        }
    }

    /// A view of the same elements with a shorter lifetime.
    pub const fn reborrow(&mut self) -> MatrixMut<'_> {
        MatrixMut {
            first: self.first,
            rows: self.rows,
            columns: self.columns,
            row_stride: self.row_stride,
            column_stride: self.column_stride,
            lender: PhantomData,
        }
    }

    /// The transpose `[columns, rows]`, a view of the same memory.
    pub const fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }

    /// Rows `first..first + count`. For columns: `transposed().block(first, count)?.transposed()`.
    ///
    /// # Errors
    /// There are fewer than `first + count` rows.
    pub fn block(self, first: usize, count: usize) -> Result<Self, Error> {
        let Matrix { first, rows, .. } = self.read().block(first, count)?;
        Ok(Self { first, rows, ..self })
    }

    /// Columns `first..first + count`, without a check.
    ///
    /// # Safety
    /// `first + count <= columns`.
    pub(crate) const unsafe fn columns_unchecked(self, first: usize, count: usize) -> Self {
        // SAFETY: the caller's contract.
        let Matrix { first, columns, .. } = unsafe { self.read().columns_unchecked(first, count) };
        Self { first, columns, ..self }
    }

    /// A pointer to the elements that threads can share; each thread writes its own elements.
    pub(crate) const fn shared(&mut self) -> SharedMut<'_> {
        SharedMut::from_first(self.first)
    }
}

impl fmt::Debug for MatrixMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, columns, row_stride, column_stride, .. } = self;
        write!(f, "MatrixMut({rows} x {columns}, strides {row_stride} and {column_stride})")
    }
}
