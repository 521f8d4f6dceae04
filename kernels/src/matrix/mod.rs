//! Checked, strided views of matrices in the caller's memory.
//!
//! Every kernel takes these views instead of pointers. Every element of a view lies inside its slice, so kernels check
//! shapes once and then read without bounds checks.
//!
//! A view is a pointer with strides, and covers only its elements. The memory between them does not belong to it, and
//! another thread may write there. The safe constructors make a view from a slice, which borrows the gaps as well.
//! [`Matrix::from_raw_parts`] and [`MatrixMut::from_raw_parts`] make one from a pointer, for matrices of which no
//! slice may be made. `view_shape.rs` has the checks that all views share.
//!
//! A stride that is never used, along an axis of length 1 or in a view without elements, may have any value; the view
//! replaces it by the stride of a dense view. So an index of the view times a stride of the view never overflows.

use crate::error::{Error, Expected, ViewShape};
use crate::sync_ptr::SharedMut;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

mod raw_parts;

/// The shape and the strides of both views; `$view` is a [`Matrix`].
macro_rules! sizes {
    ($self:ident => $view:expr) => {
        /// Number of rows.
        pub const fn rows(&$self) -> usize {
            $view.shape[0]
        }

        /// Number of columns.
        pub const fn columns(&$self) -> usize {
            $view.shape[1]
        }

        /// Elements from one row to the next; with one row, its extent.
        pub const fn row_stride(&$self) -> usize {
            $view.strides[0]
        }

        /// Elements from one column to the next; with one column, 1.
        pub const fn column_stride(&$self) -> usize {
            $view.strides[1]
        }
    };
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
    /// Rows and columns.
    shape: [usize; 2],
    strides: [usize; 2],
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
        let (shape, strides) = ([rows, columns], [row_stride, column_stride]);
        // SAFETY: the slice is borrowed for `'a`.
        unsafe { Self::place(data.as_ptr(), data.len(), shape, strides) }
    }

    /// The matrix at `data`, which has `len` elements.
    ///
    /// # Safety
    /// As [`Matrix::from_raw_parts`], if the last element is among the `len` elements.
    unsafe fn place(
        data: *const f32,
        len: usize,
        shape: [usize; 2],
        strides: [usize; 2],
    ) -> Result<Self, Error> {
        let (first, strides) = ViewShape::Matrix { shape, strides }.place(data, len)?;
        Ok(Self { first, shape, strides, lender: PhantomData })
    }

    /// The transpose `[columns, rows]`, a view of the same memory.
    pub const fn transposed(self) -> Self {
        let ([rows, columns], [row_stride, column_stride]) = (self.shape, self.strides);
        Self { shape: [columns, rows], strides: [column_stride, row_stride], ..self }
    }

    /// Rows `first..first + count`. For columns: `transposed().block(first, count)?.transposed()`.
    ///
    /// # Errors
    /// There are fewer than `first + count` rows.
    pub fn block(self, first: usize, count: usize) -> Result<Self, Error> {
        Error::check_end("end", "a block of rows", None, (first, count), self.rows())?;
        // SAFETY: the check above.
        Ok(unsafe { self.block_unchecked(first, count) })
    }

    /// [`Matrix::block`] without the check.
    ///
    /// # Safety
    /// `first + count <= rows`.
    pub(crate) const unsafe fn block_unchecked(self, first: usize, count: usize) -> Self {
        let first = if count == 0 || self.columns() == 0 {
            self.first
        } else {
            // SAFETY: `first < rows` and there is a column, so row `first` has an element.
            unsafe { self.first.add(first * self.row_stride()) }
        };
        Self { first, shape: [count, self.columns()], ..self }
    }

    /// As [`Matrix::block_unchecked`], of columns.
    ///
    /// # Safety
    /// `first + count <= columns`.
    pub(crate) const unsafe fn columns_unchecked(self, first: usize, count: usize) -> Self {
        // SAFETY: the caller's contract.
        unsafe { self.transposed().block_unchecked(first, count).transposed() }
    }

    sizes!(self => self);

    /// Element `(row, column)`.
    ///
    /// # Panics
    /// The element is outside the matrix.
    pub fn at(&self, row: usize, column: usize) -> f32 {
        // SAFETY: it is an element of the view.
        unsafe { self.element(row, column).read() }
    }

    /// The address of an element, which is checked to be inside.
    fn element(&self, row: usize, column: usize) -> NonNull<f32> {
        let ([rows, columns], [row_stride, column_stride]) = (self.shape, self.strides);
        let inside = row < rows && column < columns;
        assert!(inside, "element ({row}, {column}) of a {rows} x {columns} matrix");
        // SAFETY: the assertion above: it is an element of the view.
        unsafe { self.first.add(row * row_stride + column * column_stride) }
    }

    /// Rows and columns.
    pub(crate) const fn shape(&self) -> [usize; 2] {
        self.shape
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
        let stride = if self.columns() > 1 { self.column_stride() } else { 1 };
        Error::check_size("column stride", operand, Expected::Exactly(1), stride)
    }

    /// The first element's address; dangling when there is none.
    pub(crate) const fn as_ptr(&self) -> *const f32 {
        self.first.as_ptr().cast_const()
    }
}

impl fmt::Debug for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape: [rows, columns], strides: [row_stride, column_stride], .. } = self;
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
/// assert_eq!(c.as_view().at(1, 2), 0.0);
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
pub struct MatrixMut<'a> {
    /// The elements. Only methods that take `self` or `&mut self` return a pointer for writing, and only those that take
    /// `self` return a view for all of `'a`.
    view: Matrix<'a>,
    lender: PhantomData<&'a mut [f32]>,
}

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
        let (shape, strides) = ([rows, columns], [row_stride, column_stride]);
        // SAFETY: the slice is borrowed exclusively for `'a`.
        unsafe { Self::exclusive(Matrix::place(data.as_mut_ptr(), data.len(), shape, strides)?) }
    }

    /// The writable matrix with the elements of `view`.
    ///
    /// # Safety
    /// As [`MatrixMut::from_raw_parts`] for the pointer that `view` was made from.
    unsafe fn exclusive(view: Matrix<'a>) -> Result<Self, Error> {
        ViewShape::Matrix { shape: view.shape, strides: view.strides }.check_disjoint()?;
        Ok(Self { view, lender: PhantomData })
    }

    sizes!(self => self.view);

    /// A read-only view of the same elements.
    pub const fn as_view(&self) -> Matrix<'_> {
        self.view
    }

    /// A view of the same elements with a shorter lifetime.
    pub const fn reborrow(&mut self) -> MatrixMut<'_> {
        MatrixMut { view: self.view, lender: PhantomData }
    }

    /// The transpose `[columns, rows]`, a view of the same memory.
    pub const fn transposed(self) -> Self {
        Self { view: self.view.transposed(), ..self }
    }

    /// Rows `first..first + count`. For columns: `transposed().block(first, count)?.transposed()`.
    ///
    /// # Errors
    /// There are fewer than `first + count` rows.
    pub fn block(self, first: usize, count: usize) -> Result<Self, Error> {
        Ok(Self { view: self.view.block(first, count)?, ..self })
    }

    /// Columns `first..first + count`, without a check.
    ///
    /// # Safety
    /// `first + count <= columns`.
    pub(crate) const unsafe fn columns_unchecked(self, first: usize, count: usize) -> Self {
        // SAFETY: the caller's contract.
        Self { view: unsafe { self.view.columns_unchecked(first, count) }, ..self }
    }

    /// An element, as [`Matrix::at`].
    pub(crate) fn at_mut(&mut self, row: usize, column: usize) -> &mut f32 {
        // SAFETY: it is an element of the view, which is borrowed exclusively.
        unsafe { self.view.element(row, column).as_mut() }
    }

    /// A pointer to the elements that threads can share; each thread writes its own elements.
    pub(crate) const fn shared(&mut self) -> SharedMut<'_> {
        SharedMut::from_first(self.view.first)
    }
}

impl fmt::Debug for MatrixMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Matrix { shape: [rows, columns], strides: [row_stride, column_stride], .. } = self.view;
        write!(f, "MatrixMut({rows} x {columns}, strides {row_stride} and {column_stride})")
    }
}
