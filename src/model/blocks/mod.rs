//! The blocks of encoder and decoder. Each is a few kernel calls on weights and a workspace. The output of a
//! block stays in the workspace until the next block.

mod cached_attention;
mod convolution;
mod cross_attention;
mod embedding;
mod exec_context;
mod feed_forward;
mod output;
mod self_attention;

pub(crate) use cached_attention::cached_attention;
#[cfg(feature = "train")]
pub(crate) use convolution::{STEM_ROWS, WIDTH, first_rows, reach, second_windows};
pub(crate) use convolution::{convolve, stem_floats, stem_rows};
pub(crate) use cross_attention::{cross_attention, keep_memory, project_memory};
pub(crate) use embedding::embed;
#[cfg(feature = "train")]
pub(crate) use exec_context::Parameters;
pub(crate) use exec_context::{ExecContext, add_and_norm, sum_and_norm};
pub(crate) use feed_forward::{FEED_FORWARD_ROWS, feed_forward};
pub(crate) use output::{Best, best, logits};
pub(crate) use self_attention::self_attention;
