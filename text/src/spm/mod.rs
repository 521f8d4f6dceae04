//! SentencePiece model files (`.spm`, `spiece.model`, `sentencepiece.bpe.model`), read as Google's own
//! library reads them: the same ids and the same text.
//!
//! Unigram and BPE models with every option of the trainer that published translation models use: rules of
//! normalization, byte fallback, user-defined symbols, unused pieces, spaces before or after words.
//!
//! Scores are added as the reference adds them, in f32, with the first of equal sums winning: runs such as
//! `......` tie, and another rounding segments them otherwise.

mod bpe;
mod decode;
mod error;
mod file;
mod model;
mod normalizer;
mod unigram;
mod utf8;

pub(crate) use decode::{Decoder, Token};
pub use error::SpmError;
pub use model::SentencePiece;
#[cfg(feature = "json")]
pub(crate) use normalizer::growth;
