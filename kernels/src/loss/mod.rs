//! Cross-entropy of rows of logits with label smoothing. The gradient overwrites the logits.
//!
//! Let `p` be the softmax of a row `z`, `y` its target, and `q` the target distribution (1 at the target, or a little
//! less with the rest spread over the other columns: [`Smoothing`]):
//!
//! * `loss = -sum_j q_j ln p_j`, with smoothing;
//! * `nll = -ln p_y`, without smoothing, whose exponential is the perplexity;
//! * `dloss/dz_j = p_j - q_j`, times the caller's scale, which is 1 over the number of targets of the whole update.
//!
//! A row is read once for its sums, block by block: first the largest logit of a block, then, while the block is in
//! the L1 cache, the sums of `e^(z - max)` and of `max - z`. When a later block has a larger maximum, the sums so far
//! are rescaled. A second pass writes the gradient. So logits are read twice and written once, and no second buffer of
//! their size is needed.
//!
//! Accuracy. The exponential of the maximum is exactly 1, and those of the other logits are added without it, so the
//! loss of a row with a probability near 1 has the same relative accuracy as any other. And `loss = ln(sum of e^(z -
//! max)) + sum_j q_j (max - z_j)` has no negative term, so there is no cancellation.
//!
//! Sums of a block of 1,024 columns use 64 virtual lanes, which are added by halving; blocks are added in order in
//! f64. So the bits do not depend on the vector width.

mod call;
mod passes;
mod smoothing;
mod sums;

pub use call::{cross_entropy, cross_entropy_loss};
pub use smoothing::{IGNORED, RowLoss, Smoothing, SmoothingOver};
