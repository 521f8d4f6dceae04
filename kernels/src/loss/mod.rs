//! Cross-entropy of rows of logits with label smoothing, and its gradient in their place.
//!
//! With `p` the softmax of a row `z`, `y` its target and `q` the distribution that the row should have
//! (1 at the target, or a little less with the rest spread over the others: [`Smoothing`]):
//!
//! * `loss = -sum_j q_j ln p_j`, with smoothing;
//! * `nll = -ln p_y`, without, whose exponential is the perplexity;
//! * `dloss/dz_j = p_j - q_j`, times the caller's scale, which is 1 over the targets of the whole update.
//!
//! A row is read once for its sums, block by block: the largest logit of a block and then, while the block
//! is in the first-level cache, the sum of `e^(z - max)` and of `max - z`. When a later block has a larger
//! maximum, the sums so far are rescaled. A second pass writes the gradient. So logits are read twice and
//! written once, and nothing of their size is kept beside them.
//!
//! Why losses are as exact as they are. The exponential of the maximum is exactly 1, and those of
//! the other logits are added without it, so a row that is all but certain has a loss of the relative
//! accuracy of any other. And `loss = ln(sum of e^(z - max)) + sum_j q_j (max - z_j)` has no negative
//! term: nothing cancels.
//!
//! Sums of a block of 1,024 columns are taken in 64 virtual lanes and halved, blocks are added in order in
//! f64. So the bits do not depend on the width of a vector.

mod call;
mod error;
mod passes;
mod smoothing;
mod sums;

pub use call::{cross_entropy, cross_entropy_loss};
pub use error::LossError;
pub use smoothing::{IGNORED, RowLoss, Smoothing, SmoothingOver};
