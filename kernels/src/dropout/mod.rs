//! Dropout without a stored mask, and the random numbers of training.
//!
//! Everything random is a function of a seed and of what it is for, by Philox4x32-10 (Salmon, Moraes,
//! Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11): there is no state. So a run that
//! was interrupted has nothing to restore, threads and the cut of a batch change nothing, and the backward
//! pass forms the mask of the forward pass again by the same call.
//!
//! Each use has a key of its own, made from the seed: the first two words of the block with the counter
//! `[use, a, b, c]`. Under it
//!
//! | use | `a, b, c` | counter | gives |
//! |---|---|---|---|
//! | 1: dropout | site, step (low, high) | element / 8 (low, high), sentence, 0 | 8 decisions of 16 bits |
//! | 2: numbers of a tensor | tensor, 0, 0 | element / 4 (low, high), 0, 0 | 4 numbers |
//! | 3: an order | epoch (low, high), 0 | draw / 2 (low, high), 0, 0 | 2 draws of 64 bits |
//! | 4: weights of attention | site, step (low, high) | key / 8, query, sentence, head | 8 decisions of 16 bits |
//!
//! Words and halves of them are taken from the lowest bits up. An element of a dropout is `position *
//! columns + column` in its sentence, and the sentence is named by its number in the corpus: neither its
//! place in the batch nor the batch matters. A weight of
//! attention is named by its query and its key, each counted from the first of the sentence's, and by the
//! query's head; key `j` has the decision `j % 8` of its block.

mod distributions;
mod error;
mod mask;
mod philox;
mod weights;

pub use distributions::{normal, permutation, uniform};
pub use error::DropoutError;
pub use mask::{Dropout, dropout, dropout_add};
pub use philox::Philox;
pub use weights::WeightDropout;
pub(crate) use weights::{DropMask, HeadDrops};
