//! The weights of a model: every tensor of the network in the layout that the kernels read.
//!
//! `layout.rs` assigns a range of memory to each tensor and writes the table of [`Parameter`]s. `load.rs` fills
//! the ranges of the table from a checkpoint or a function. `finite.rs` checks weights that were packed
//! elsewhere. `canonical.rs` visits all weights in an order that does not depend on the instruction set.
//! `model_weights.rs` owns the memory; the blocks get their weights from it. Only `packed_weight.rs` depends on the storage
//! of a matrix.

mod canonical;
mod finite;
mod layout;
mod load;
mod model_weights;
mod packed_weight;

pub use layout::{Parameter, Storage};

pub(crate) use canonical::Part;
pub(crate) use finite::{FiniteCheck, NotFinite};
pub(crate) use layout::{Linear, Norm, Placement, ResolvedDtypes, Table};
#[cfg(feature = "train")]
pub(crate) use load::refresh_floats;
pub(crate) use load::staged_floats;
pub(crate) use model_weights::{
    Bottom, CrossAttention, Decoder, Embedding, Encoder, FeedForward, Network, SelfAttention,
    Weights,
};
#[cfg(feature = "train")]
pub(crate) use packed_weight::Backward;
pub(crate) use packed_weight::{Input, Weight};
