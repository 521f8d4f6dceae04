//! Task heads: one vector for a text (a sentence embedding), or scores for a pair of texts, from hidden states.
//!
//! An encoder computes a vector for each token ([`Session::encoder_output`](crate::Session::encoder_output)). The
//! model's configuration does not state how they become one vector. For a sentence-transformers directory,
//! [`SentenceHead`] reads this from `modules.json`; for a classifier, [`Classifier`] reads its tensors. A wrong pooling
//! gives plausible vectors with a wrong ranking, so the head always follows the directory, never a model name.
//!
//! Each text is computed alone and in a fixed order: a vector does not depend on a batch.

mod classifier;
mod dense;
mod modules;
mod pooling;
mod sentence;

pub use classifier::Classifier;
pub use modules::SETTINGS_FILES;
pub use pooling::Pooling;
pub use sentence::SentenceHead;
