//! The tokenizer of a model, built from its checkpoint directory as it is published.
//!
//! This crate reads the tokenizer files of a directory without conversion, places the special tokens as the family
//! requires, knows the languages of the model, and decodes ids to text, also as a stream. It runs no model.
//!
//! ```
//! use simdformer_tokenize::{Direction, Tokenizer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/doc");
//! let tokenizer = Tokenizer::from_dir(directory)?;
//! let encoded = tokenizer.encode("attention is all you need", &Direction::default())?;
//! // Source ids with the end token, and the first tokens of the decoder.
//! assert_eq!(encoded.ids.last(), Some(&0));
//! assert_eq!(encoded.prefix.len(), 1);
//! assert!(!encoded.truncated);
//! assert_eq!(tokenizer.decode(&encoded.ids), "attention is all you need");
//! # Ok(()) }
//! ```
//!
//! # Which file is used
//!
//! If the directory has a `.spm` file, it is used, with the same results as Google's library. A `tokenizer.json` is
//! read by its reference implementation, the crate `tokenizers`, and only if there is no other file: files that were
//! converted from `.spm` to `tokenizer.json` give different ids for decomposed letters and for ties.
//!
//! # One input is one sentence
//!
//! Translation models are trained on sentences. A [`Tokenizer`] neither splits a text nor cuts it in silence: an input
//! that is longer than the model's limit is reported ([`Encoded::truncated`]).
//!
//! # Files are not trusted
//!
//! Each file has a limit of bytes and of values, and each limit is checked before the memory that it bounds is allocated.
//! A wrong file is an [`Error`] with what was expected and what was found.

mod directory;
mod encoded;
mod error;
mod incremental_decoder;
#[cfg(feature = "json")]
mod json;
mod languages;
mod limits;
mod moses;
mod nearest_words;
mod special_tokens;
mod spm;
mod tokenizer;
mod trie;
mod vocabulary;

pub use directory::family::Family;
pub use directory::{Settings, tokenizer_folder};
pub use encoded::Encoded;
pub use error::Error;
pub use languages::{Direction, Language, lists as language_lists};
pub use limits::FileLimit;
pub use nearest_words::nearest;
pub use spm::SentencePiece;
pub use tokenizer::Tokenizer;
pub use tokenizer::stream::DecodeStream;

/// The program of the README, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
