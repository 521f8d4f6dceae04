//! The derivative of an activation in the epilogue, for the backward pass of a feed-forward block:
//! `dPre = (dY W2) * activation'(pre)`.

use super::epilogue::{ElementPtrs, OutputRange};
use crate::activation::Activation;
use crate::activation::derivative::times_derivative_row;
use crate::simd::{MAX_PANEL, simd_op};
use core::mem::MaybeUninit;

/// A [`PostOp::ActivationBackward`](super::PostOp::ActivationBackward) with a pointer instead of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Derivative {
    pub(super) of: Activation,
    pub(super) pre: ElementPtrs,
}

simd_op!(
    /// Multiplies the results of `block`, on the stack or in the output, by the derivative. `to` is their address and
    /// row stride.
    ///
    /// # Safety
    /// `pre` has the block, and `to` is valid for reads and writes of it.
    pub(super) unsafe fn times_derivative<S: SimdF32>(
        s: S,
        derivative: Derivative,
        to: (*mut f32, usize),
        block: OutputRange,
    ) {
        let Derivative { of, pre } = derivative;
        let OutputRange { row, rows, column, columns } = block;
        let mut buffer = MaybeUninit::<[f32; MAX_PANEL]>::uninit();
        for first in (0..columns).step_by(MAX_PANEL) {
            let count = (columns - first).min(MAX_PANEL);
            for i in 0..rows {
                // SAFETY: the contract of this function; `count <= MAX_PANEL`, the length of `buffer`.
                unsafe {
                    let from = pre.row(row + i, column + first, count, buffer.as_mut_ptr().cast());
                    times_derivative_row(s, of, from, to.0.add(i * to.1 + first), count);
                }
            }
        }
    }
);
