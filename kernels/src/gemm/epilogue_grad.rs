//! The derivative of an activation in the epilogue, for the backward pass of a feed-forward block:
//! `dPre = (dY W2) * activation'(pre)`.

use crate::activation::Activation;
use crate::activation::derivative::times_derivative_row;
use crate::matrix::Matrix;
use crate::prefetch::prefetch_rows;
use crate::simd::{MAX_PANEL, SimdF32, SimdOp};
use core::mem::MaybeUninit;

/// A [`Residual::ActivationBackward`](super::Residual::ActivationBackward) with a pointer instead of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Derivative {
    of: Activation,
    pre: *const f32,
    row_stride: usize,
    column_stride: usize,
}

impl Derivative {
    pub(super) fn new(of: Activation, pre: &Matrix<'_>) -> Self {
        let (row_stride, column_stride) = (pre.row_stride(), pre.column_stride());
        Self { of, pre: pre.as_ptr(), row_stride, column_stride }
    }

    /// Prefetches the elements of `pre` for `rows` rows of a panel.
    #[inline(always)]
    pub(super) fn prefetch<S: SimdF32>(&self, s: S, rows: usize, row: usize, column: usize) {
        if self.column_stride != 1 {
            return;
        }
        let at = self.pre.wrapping_add(row * self.row_stride + column);
        prefetch_rows::<S, true>(s, at, self.row_stride, rows, S::PANEL);
    }
}

/// Multiplies a tile, on the stack or in the output, by the derivative.
pub(super) struct Derivatives {
    pub(super) derivative: Derivative,
    /// First element of the tile. Columns are contiguous.
    pub(super) tile: *mut f32,
    pub(super) rows: usize,
    /// Row stride of the tile.
    pub(super) width: usize,
    /// Row and column of the first element in the output.
    pub(super) row: usize,
    pub(super) column: usize,
    /// Columns of the tile that are in the output.
    pub(super) valid: usize,
}

impl SimdOp for Derivatives {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let Self { derivative, tile, rows, width, row, column, valid } = self;
        let Derivative { of, pre, row_stride, column_stride } = derivative;
        let mut buffer = MaybeUninit::<[f32; MAX_PANEL]>::uninit();
        for i in 0..rows {
            let mut from = pre.wrapping_add((row + i) * row_stride + column * column_stride);
            if column_stride != 1 {
                let gathered = buffer.as_mut_ptr().cast::<f32>();
                for j in 0..valid {
                    // SAFETY: `gemm` checked that `pre` has the shape of the output, and `# Safety` of `Store::finish`
                    // requires a tile inside it: rows below `row + rows`, columns below `column + valid`.
                    // `valid <= MAX_PANEL`, the length of `buffer`.
                    unsafe { gathered.add(j).write(from.add(j * column_stride).read()) };
                }
                from = gathered;
            }
            // SAFETY: a row of the tile has `valid` floats, and `from` has as many: a row of `pre`, or its copy in
            // `buffer`.
            unsafe { times_derivative_row(s, of, from, tile.add(i * width), valid) };
        }
    }
}
