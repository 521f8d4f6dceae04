//! The network, written down once: which tensors there are, what each is for, how large it is, and
//! which part of which block it belongs to.
//!
//! `tensor_id.rs` has the names and shapes, `visitor.rs` the parts and the one walk over them. Nothing here
//! knows files, kernels or memory: checkpoints and weights both read it.

mod tensor_id;
pub(crate) mod visitor;

pub use tensor_id::{Attention, FeedForward, LayerPart, ParamKind, Projection, TensorId};
