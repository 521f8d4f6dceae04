//! Norms for training: variants that save the values for the gradient, and the gradients.
//!
//! The saved values are the standard scores `z = (x - mean) r` and `r`, one over the standard deviation. The input and
//! the output are not saved: the gradient does not need them, and the output is recomputed from `z` with one operation
//! per element. With `g = weight * dy`,
//!
//! ```text
//! dx = r (g - mean(g) - z mean(g z))      dweight = sum over rows of dy z      dbias = sum over rows of dy
//! ```
//!
//! For a root-mean-square normalization `z = x r`, and `mean(g)` is absent. Written with `z`, the formula has no
//! harmful cancellation, even if the mean of `x` is far from 0.

use crate::debug_slice::Elements;
use crate::matrix::Matrix;
use core::fmt;

mod forward_save;
mod input_grad;
mod param_grad;

pub use forward_save::{norm_forward_save, norm_recompute};
pub use input_grad::norm_backward;
pub use param_grad::norm_parameters_backward;

/// What a norm saved for its gradient, of rows `[rows, columns]`.
#[derive(Clone, Copy)]
pub struct SavedNorm<'a> {
    /// The standard scores, `[rows, columns]`.
    pub standard: Matrix<'a>,
    /// One over the standard deviation or over the root mean square of each row, `[rows]`.
    pub scale: &'a [f32],
}

impl fmt::Debug for SavedNorm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SavedNorm")
            .field("standard", &self.standard)
            .field("scale", &Elements::of(self.scale))
            .finish()
    }
}

/// The gradients of the parameters of a norm.
pub struct NormGradients<'a> {
    /// The gradient of the weight, `[columns]`.
    pub weight: &'a mut [f32],
    /// The gradient of the bias, `[columns]`; `None` for a norm without a bias.
    pub bias: Option<&'a mut [f32]>,
}

impl fmt::Debug for NormGradients<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NormGradients")
            .field("weight", &Elements::of(self.weight))
            .field("bias", &self.bias.as_deref().map(Elements::of))
            .finish()
    }
}
