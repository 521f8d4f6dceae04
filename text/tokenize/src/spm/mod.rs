//! Reads SentencePiece model files (`.spm`, `spiece.model`, `sentencepiece.bpe.model`), with the same ids and text as
//! Google's own library.
//!
//! Supports unigram and BPE models with every trainer option of published translation models: normalization rules,
//! byte fallback, user-defined symbols, unused pieces, spaces before or after words.
//!
//! Scores are added as in the reference, in f32, and the first of equal sums is chosen. Runs such as `......` have
//! ties, and another rounding would segment them differently.

mod bpe;
mod decode;
mod file;
mod model;
mod normalized;
mod normalizer;
mod unigram;

pub(crate) use decode::{Decoder, Token};
pub use model::SentencePiece;
#[cfg(feature = "json")]
pub(crate) use normalizer::growth;
