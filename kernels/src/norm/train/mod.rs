//! What training needs of norms: forms that keep what the gradient is made of, and the gradients.
//!
//! Kept are the standard scores `z = (x - mean) r` and `r`, one over the standard deviation, and neither
//! the input nor the output: the gradient needs no more, and the output is made from `z` again with one
//! operation an element. With `g = weight * dy`,
//!
//! ```text
//! dx = r (g - mean(g) - z mean(g z))      dweight = sum over rows of dy z      dbias = sum over rows of dy
//! ```
//!
//! and without `mean(g)` for a root-mean-square normalization, of which `z = x r`. Written in `z`, nothing
//! cancels that is not small in the result, however far the mean of `x` is from 0.

mod forward_save;
mod input_grad;
pub(crate) mod layer;
mod param_grad;
mod recompute;
pub(crate) mod rms;
mod row_ptrs;
