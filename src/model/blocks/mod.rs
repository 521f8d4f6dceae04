//! The blocks of encoder and decoder. Each is a few kernel calls on weights and a workspace. The output of a
//! block stays in the workspace until the next block. `train/blocks` contains the backward pass of each block, in a
//! file of the same name.

mod attention;
mod conv;
mod embedding;
mod exec_context;
mod feed_forward;
mod norm;
mod output;

pub(crate) use attention::{
    attend_cached, attend_sentences, attend_source, cross_attention, self_attention, store_source,
};
#[cfg(feature = "train")]
pub(crate) use conv::{CONV_ROWS, WIDTH, first_rows, reach, second_windows};
pub(crate) use conv::{conv_floats, conv_rows, convolve};
pub(crate) use embedding::embed;
#[cfg(feature = "train")]
pub(crate) use embedding::positions_after_norm;
pub(crate) use exec_context::ExecContext;
pub(crate) use feed_forward::{FEED_FORWARD_ROWS, chunk_rows, feed_forward, hidden};
pub(crate) use norm::{add_and_norm, final_norm, sum_and_norm};
pub(crate) use output::Best;
