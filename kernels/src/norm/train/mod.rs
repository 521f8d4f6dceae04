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

mod forward_save;
mod input_grad;
mod param_grad;

pub use forward_save::{norm_forward_save, norm_recompute};
pub use input_grad::{SavedNorm, norm_backward};
pub use param_grad::{NormGradients, norm_parameters_backward};
