//! The network, written down once: which tensors there are, what each is for, how large it is, and
//! which part of which block it belongs to.
//!
//! `role.rs` has the names and shapes, `tree.rs` the parts and the one walk over them. Nothing here
//! knows files, kernels or memory: checkpoints and weights both read it.

mod role;
pub(crate) mod tree;

pub use role::{Affine, Attention, FeedForward, LayerPart, Projection, Role};
