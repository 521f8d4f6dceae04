//! Views from pointers, for matrices of which no slice may be made: columns of a buffer whose other columns are borrowed
//! elsewhere, halves of a column-major matrix, memory of another language.

use super::{Matrix, MatrixMut};
use crate::error::Error;

impl<'a> Matrix<'a> {
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
        // SAFETY: the caller's contract.
        unsafe { Self::place(data, usize::MAX, [rows, columns], [row_stride, column_stride]) }
    }
}

impl<'a> MatrixMut<'a> {
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
    /// use simdformer_kernels::{Exec, Input, Isa, MatrixMut};
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
    ///         scope.spawn(move || activation::apply(Exec::serial(isa), Activation::Relu, Input::Output, half));
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
        // SAFETY: the caller's contract.
        unsafe {
            let read = Matrix::from_raw_parts(data, rows, columns, row_stride, column_stride)?;
            Self::exclusive(read)
        }
    }
}
