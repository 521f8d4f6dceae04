//! The network, written down once.

mod role;

pub use role::{Affine, Attention, FeedForward, LayerPart, Projection, Role};
