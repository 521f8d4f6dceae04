//! What is made of hidden states: one vector for a text, or scores for a pair of texts.
//!
//! An encoder gives a vector for each token ([`Session::encoder_output`](crate::Session::encoder_output)). How they become one is not in
//! its configuration but beside it: in the `modules.json` of a sentence-transformers directory, which a
//! [`SentenceHead`] reads, or in the tensors of a classifier ([`Classifier`]). To take the wrong pooling is the mistake of
//! this field: results look right and rank wrong. So the directory decides, never a name.
//!
//! Everything is computed for one text at a time, in a fixed order: a vector does not depend on a batch.

mod classifier;
mod dense;
mod error;
mod modules;
mod pooling;
mod sentence;

pub use classifier::Classifier;
pub use error::HeadError;
pub use pooling::Pooling;
pub use sentence::SentenceHead;
