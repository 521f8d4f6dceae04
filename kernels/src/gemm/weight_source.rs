//! The values of a weight before it is packed.

use super::packing::pack_block;
use crate::dtype::Dtype;
use crate::error::{Error, ViewShape};
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::simd::half::{widen_bf16, widen_f16};
use crate::simd::simd_op;
use core::fmt;
use core::ops::Range;

/// A weight `[depth, columns]` to pack: an f32 [`Matrix`] with any strides, or a bf16 or f16 matrix as a checkpoint
/// stores it. 16-bit values are widened to f32, which is exact, and then packed: into the same dtype without loss, into
/// another dtype with the rounding of [`Dtype`]. They need the feature `f16`.
///
/// ```
/// use simdformer_kernels::{Dtype, Isa, PackOptions, PackSource, PackedMatrix};
///
/// // A bf16 weight stored `[out, in]`: three columns of two. 1.0 is 0x3f80.
/// let weight = [0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0];
/// let weight = PackSource::bf16(&weight, 3, 2)?.transposed();
/// let (isa, options) = (Isa::best(), PackOptions::new(Dtype::Bf16));
/// let mut buffer = vec![0.0; options.buffer_len(isa, 2, 3)?];
/// let packed: PackedMatrix<'_> = options.pack(isa, weight, &mut buffer)?;
/// assert_eq!((packed.depth(), packed.columns(), packed.dtype()), (2, 3, Dtype::Bf16));
/// # Ok::<(), simdformer_kernels::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct PackSource<'a>(Values<'a>);

#[derive(Clone, Copy)]
enum Values<'a> {
    F32(Matrix<'a>),
    /// Row-major; `shape` is that of `data`. If `transposed`, the weight is its transpose.
    U16 {
        dtype: Dtype,
        data: &'a [u16],
        shape: [usize; 2],
        strides: [usize; 2],
    },
}

impl<'a> From<Matrix<'a>> for PackSource<'a> {
    fn from(matrix: Matrix<'a>) -> Self {
        Self(Values::F32(matrix))
    }
}

impl<'a> PackSource<'a> {
    /// A dense bf16 matrix in row-major order.
    ///
    /// # Errors
    /// The slice is shorter than `rows * columns`.
    pub fn bf16(data: &'a [u16], rows: usize, columns: usize) -> Result<Self, Error> {
        Self::u16(Dtype::Bf16, data, [rows, columns])
    }

    /// A dense f16 matrix in row-major order.
    ///
    /// # Errors
    /// The slice is shorter than `rows * columns`.
    pub fn f16(data: &'a [u16], rows: usize, columns: usize) -> Result<Self, Error> {
        Self::u16(Dtype::F16, data, [rows, columns])
    }

    fn u16(dtype: Dtype, data: &'a [u16], shape: [usize; 2]) -> Result<Self, Error> {
        let view = ViewShape::Matrix { shape, strides: [shape[1], 1] };
        Error::check_view(view, shape[0].checked_mul(shape[1]), data)?;
        Ok(Self(Values::U16 { dtype, data, shape, strides: [shape[1], 1] }))
    }

    /// The transpose, a view of the same memory. A weight stored `[out, in]` is packed as its transpose.
    pub const fn transposed(self) -> Self {
        Self(match self.0 {
            Values::F32(matrix) => Values::F32(matrix.transposed()),
            Values::U16 { dtype, data, shape: [rows, columns], strides: [row, column] } => {
                let (shape, strides) = ([columns, rows], [column, row]);
                Values::U16 { dtype, data, shape, strides }
            }
        })
    }

    /// Rows and columns.
    pub const fn shape(&self) -> [usize; 2] {
        match self.0 {
            Values::F32(matrix) => matrix.shape(),
            Values::U16 { shape, .. } => shape,
        }
    }

    /// The dtype of the values.
    pub const fn dtype(&self) -> Dtype {
        match self.0 {
            Values::F32(_) => Dtype::F32,
            Values::U16 { dtype, .. } => dtype,
        }
    }

    /// The matrix, if it is f32.
    pub(super) const fn as_f32(&self) -> Option<Matrix<'a>> {
        match self.0 {
            Values::F32(matrix) => Some(matrix),
            Values::U16 { .. } => None,
        }
    }

    /// Element `(row, column)` as f32.
    ///
    /// # Panics
    /// The element is outside the matrix.
    pub(super) fn at(&self, row: usize, column: usize) -> f32 {
        match self.0 {
            Values::F32(matrix) => matrix.at(row, column),
            Values::U16 { dtype, data, strides: [row_stride, column_stride], .. } => {
                dtype.widen(data[row * row_stride + column * column_stride])
            }
        }
    }

    /// Writes rows `rows` of columns `columns` to `to`, `[rows][panel]` in f32, from column `first` on. `zeros` columns
    /// of zeros follow.
    ///
    /// # Safety
    /// The source has the rows and the columns, and `to` has the rows.
    pub(super) unsafe fn pack_rows(
        &self,
        isa: Isa,
        rows: Range<usize>,
        columns: Range<usize>,
        (first, zeros): (usize, bool),
        to: &mut [f32],
    ) {
        let (panel, end) = (isa.panel(), first + columns.len());
        match self.0 {
            Values::F32(matrix) => {
                // SAFETY: `# Safety` of this function.
                let block = unsafe {
                    matrix
                        .block_unchecked(rows.start, rows.len())
                        .columns_unchecked(columns.start, columns.len())
                };
                // `pack_block` writes zeros from the last column of the matrix on.
                let columns = if zeros { end } else { panel };
                // SAFETY: `to` has the length of these rows of the panel.
                isa.dispatch(unsafe { pack_block(block, columns, first, to, false) });
            }
            Values::U16 { dtype, data, strides, .. } => {
                if zeros {
                    to.chunks_exact_mut(panel)
                        .take(rows.len())
                        .for_each(|row| row[end..].fill(0.0));
                }
                // One of the strides is 1.
                let (width, lines, part, steps) = match strides {
                    [width, 1] => (width, rows, columns, [panel, 1]),
                    [_, width] => (width, columns, rows, [1, panel]),
                };
                isa.dispatch(widen_lines(
                    dtype,
                    (data, width),
                    lines,
                    part,
                    &mut to[first..],
                    steps,
                ));
            }
        }
    }
}

simd_op!(
    /// Widens `part` of each of `lines` of `values`: the data, and the length of a line. In `to`, `steps` is the distance
    /// from one line to the next, and from one value of a line to the next.
    fn widen_lines<S: SimdF32>(
        _s: S,
        dtype: Dtype,
        values: (&[u16], usize),
        lines: Range<usize>,
        part: Range<usize>,
        to: &mut [f32],
        steps: [usize; 2],
    ) {
        let ((data, width), [line_step, step]) = (values, steps);
        for (i, line) in lines.enumerate() {
            let from = &data[line * width..][part.clone()];
            let values = to[i * line_step..].iter_mut().step_by(step).zip(from);
            // The dtype is tested once per line, so that the loops are vectorized.
            match dtype {
                Dtype::F16 => values.for_each(|(to, &x)| *to = widen_f16(x)),
                Dtype::F32 | Dtype::Bf16 => values.for_each(|(to, &x)| *to = widen_bf16(x)),
            }
        }
    }
);

impl fmt::Debug for PackSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, columns] = self.shape();
        write!(f, "PackSource({rows} x {columns}, {:?})", self.dtype())
    }
}
