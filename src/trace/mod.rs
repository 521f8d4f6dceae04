//! Access to every intermediate tensor of a pass.
//!
//! [`Session::traced`](crate::Session::traced) gives a session with a [`Probe`]. After each block, the probe receives
//! a [`View`] of each tensor that the block computed. Views are not copied or stored, and nothing is allocated.
//! [`Stage`] lists the tensors in the order of computation.
//!
//! Results with a probe are bitwise equal to those without. A session without a probe has no cost: the stacks are
//! compiled twice, and in the version without a probe the calls after each block are empty. The blocks do not depend on
//! probes.
//!
//! Some tensors are computed only for the probe, in its scratch. Flash attention never stores the matrix of scores, so
//! [`Stage::Scores`] and [`Stage::Weights`] are recomputed from the same queries and keys that the kernel reads (within
//! the kernel's error bound of its own values; with `attention=int8` the kernel reads quantized ones, and these are exact). The product with the output matrix of attention adds the residual as it
//! stores, so [`Stage::Projection`] is the same product without the residual: the residual stream before the block plus
//! this tensor is [`Stage::Residual`] bit for bit. [`Stage::Probabilities`] has its own computation, because a search
//! does not need it.

mod context;
mod probe;

pub(crate) use context::TraceObserver;
pub use probe::{Block, Place, Probe, Stage, View};
