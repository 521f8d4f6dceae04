//! What training needs beside the forward kernels: gradients of each of them, the loss, optimizers and
//! dropout, on the caller's buffers.
//!
//! Each gradient lives beside the kernel that it belongs to; this is the door to all of them. They share
//! three rules:
//!
//! * **A gradient is stored by whoever writes it first and added to by those who come later**
//!   ([`WriteMode`]). Nothing has to be cleared before.
//! * **A sum over rows is taken in leaves** ([`ReductionChunks`]): rows are added one after the other within a
//!   leaf, and leaves one after the other to the result. Where leaves end is the caller's choice, so a
//!   batch and the micro-batches that it is cut into give the same bits as long as they cut it between
//!   leaves, and threads change nothing.
//! * **A sum along a row is taken in virtual lanes** whose number is that of no instruction set: element
//!   `i` belongs to lane `i % 64`, each lane adds its elements in order, and lanes are added in halves
//!   (lane `i` and lane `i + 32`, then 16, 8, 4, 2, 1). So the bits do not depend on the width of a vector.

mod reduction_chunks;
mod write_mode;

pub use crate::activation::backward::{activation_backward, activation_recompute};
pub use crate::activation::gate::{gate, gate_backward};
pub use crate::attention::{
    QkvMut, attention_backward, attention_backward_scratch, attention_backward_scratch_bound,
    attention_forward_save,
};
pub use crate::dropout::{
    Dropout, DropoutError, Philox, WeightDropout, dropout, dropout_add, normal, permutation,
    uniform,
};
pub use crate::embedding::gradient::{embedding_gradient, embedding_gradient_scratch};
pub use crate::gemm::{weight_gradient, weight_gradient_scratch};
pub use crate::loss::{
    IGNORED, LossError, RowLoss, Smoothing, SmoothingOver, cross_entropy, cross_entropy_loss,
};
pub use crate::norm::train::layer::{
    layer_norm_backward, layer_norm_backward_in_place, layer_norm_forward_save,
    layer_norm_forward_save_in_place, layer_norm_parameters_backward, layer_norm_recompute,
};
pub use crate::norm::train::rms::{
    rms_norm_backward, rms_norm_backward_in_place, rms_norm_forward_save,
    rms_norm_forward_save_in_place, rms_norm_parameters_backward, rms_norm_recompute,
};
pub use crate::optimizer::{
    Adam, OptimizerError, Schedule, adam, average, clip_factor, sum_of_squares,
    sum_of_squares_scratch,
};
pub use reduction_chunks::{ReductionChunks, ReductionChunksError};
pub use write_mode::WriteMode;
