//! The derivative of an activation in the epilogue: what a gradient meets on its way back through a
//! feed-forward block, `dPre = (dY W2) * activation'(pre)`.

use crate::activation::Activation;
use crate::activation::derivative::slope_row;
use crate::matrix::Matrix;
use crate::simd::{CACHE_LINE_F32, MAX_PANEL, SimdF32, SimdOp};
use core::mem::MaybeUninit;

/// A [`Residual::Derivative`](super::Residual::Derivative) as a pointer.
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

    /// Asks early for what `rows` rows of a panel will be multiplied with.
    #[inline(always)]
    pub(super) fn prefetch<S: SimdF32>(&self, s: S, rows: usize, row: usize, column: usize) {
        if self.column_stride != 1 {
            return;
        }
        for i in 0..rows {
            let at = self.pre.wrapping_add((row + i) * self.row_stride + column);
            for line in (0..S::PANEL).step_by(CACHE_LINE_F32) {
                s.prefetch(at.wrapping_add(line));
            }
        }
    }
}

/// Multiplies a tile, on the stack or stored, by the derivative.
pub(super) struct Derivatives {
    pub(super) derivative: Derivative,
    /// Its first element; columns are contiguous.
    pub(super) tile: *mut f32,
    pub(super) rows: usize,
    /// Floats from one of its rows to the next.
    pub(super) width: usize,
    /// The first element's row and column.
    pub(super) row: usize,
    pub(super) column: usize,
    /// Columns that exist.
    pub(super) valid: usize,
}

impl SimdOp for Derivatives {
    type Output = ();

    #[inline(always)]
    fn run<S: SimdF32>(self, s: S) {
        let Self { derivative, tile, rows, width, row, column, valid } = self;
        let Derivative { of, pre, row_stride, column_stride } = derivative;
        let mut room = MaybeUninit::<[f32; MAX_PANEL]>::uninit();
        for i in 0..rows {
            let mut from = pre.wrapping_add((row + i) * row_stride + column * column_stride);
            if column_stride != 1 {
                let gathered = room.as_mut_ptr().cast::<f32>();
                for j in 0..valid {
                    // SAFETY: `gemm` checked that `pre` has the shape of the output, and `# Safety`
                    // of `Store::finish` asks for a tile inside it: rows below `row + rows`,
                    // columns below `column + valid`. `valid <= MAX_PANEL`, the length of `room`.
                    unsafe { gathered.add(j).write(from.add(j * column_stride).read()) };
                }
                from = gathered;
            }
            // SAFETY: `valid` floats of a row of the tile, and as many of `pre` or copied from it.
            unsafe { slope_row(s, of, from, tile.add(i * width), valid) };
        }
    }
}
