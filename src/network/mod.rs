//! The definition of the network: its tensors, their roles and shapes, and the block that each belongs to.
//!
//! `tensor_id.rs` defines the roles and shapes, `visitor.rs` the parts and the traversal. This module does not
//! depend on files, kernels or memory; checkpoints and weights both use it.

mod tensor_id;
pub(crate) mod visitor;

pub use tensor_id::{Attention, FeedForward, LayerPart, ParamKind, Projection, TensorId};
