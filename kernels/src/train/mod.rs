//! Training in addition to the forward kernels: their gradients, the loss, optimizers and dropout, on the caller's
//! buffers.
//!
//! This module re-exports all of them. They follow three rules:
//!
//! * **The first write of a gradient stores it, later writes add to it** ([`WriteMode`]). The caller need not clear
//!   gradients.
//! * **A sum over rows uses reduction chunks** ([`ReductionChunks`]): the rows of a chunk are added in order, then the
//!   chunks are added to the result in order. The caller chooses the chunks. So a batch and its micro-batches give the
//!   same bits if the batch is split between chunks, and the number of threads has no effect.
//! * **A sum along a row uses virtual lanes**, whose number does not depend on the instruction set: element `i`
//!   belongs to lane `i % 64`, each lane adds its elements in order, and lanes are added by halving (lane `i` and lane
//!   `i + 32`, then 16, 8, 4, 2, 1). So the bits do not depend on the vector width.

mod accumulate;

pub use crate::activation::backward::activation_backward;
pub use crate::activation::gate::{gate, gate_backward};
pub use crate::attention::{
    AttentionGradients, AttentionInputs, SavedAttention, attention_backward,
    attention_backward_scratch, attention_backward_scratch_bound, attention_forward_save,
};
pub use crate::dropout::{Dropout, Philox, WeightDropout, dropout, normal, permutation, uniform};
pub use crate::embedding::gradient::{Lookup, embedding_gradient, embedding_gradient_scratch};
pub use crate::gemm::{weight_gradient, weight_gradient_scratch};
pub use crate::loss::{
    IGNORED, RowLoss, Smoothing, SmoothingOver, cross_entropy, cross_entropy_loss,
};
pub use crate::norm::train::{
    NormGradients, SavedNorm, norm_backward, norm_forward_save, norm_parameters_backward,
    norm_recompute,
};
pub use crate::optimizer::{
    Adam, Moments, Schedule, adam, average, clip_factor, sum_of_squares, sum_of_squares_scratch,
};
pub use accumulate::{ReductionChunks, WriteMode};
