//! Dropout without a stored mask, and the random numbers of training.
//!
//! Every random number is a function of a seed and of its use, computed by Philox4x32-10 (Salmon, Moraes, Dror and
//! Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11). There is no state. So an interrupted run has no random
//! state to restore, the number of threads and the split of a batch have no effect, and the backward pass computes the
//! mask of the forward pass with the same call.
//!
//! Each use has its own key, made from the seed: the first two words of the block with the counter `[use, a, b, c]`.
//! With this key:
//!
//! | use | `a, b, c` | counter | result |
//! |---|---|---|---|
//! | 1: dropout | site, step (low, high) | element / 8 (low, high), sentence, 0 | 8 decisions of 16 bits |
//! | 2: elements of a tensor | tensor, 0, 0 | element / 4 (low, high), 0, 0 | 4 numbers |
//! | 3: a permutation | epoch (low, high), 0 | draw / 2 (low, high), 0, 0 | 2 draws of 64 bits |
//! | 4: attention weights | site, step (low, high) | key / 8, query, sentence, head | 8 decisions of 16 bits |
//!
//! Words and their halves are used from the lowest bits up. The element number of a dropout is `position * columns +
//! column` in its sentence, and a sentence is identified by its number in the corpus; the batch and the place in the
//! batch do not matter. An attention weight is identified by its query and its key, each counted from the first one of
//! the sentence, and by the query's head; key `j` has decision `j % 8` of its block.

mod attention_weights;
mod init_and_shuffle;
mod mask;
mod philox;

pub use attention_weights::WeightDropout;
pub(crate) use attention_weights::{DropMask, HeadDrops, apply_drops, decide_drops, drop_weights};
pub use init_and_shuffle::{normal, permutation, uniform};
pub use mask::{Dropout, dropout};
pub use philox::Philox;
