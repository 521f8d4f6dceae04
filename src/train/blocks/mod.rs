//! The backward pass of each block, in a file with the name of its forward pass in `model/blocks`.

mod attention;
mod conv;
mod embedding;
mod feed_forward;
mod norm;

pub(super) use attention::AttentionBlock;
