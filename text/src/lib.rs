//! Text for [`simdformer`]: from a checkpoint's directory to a tokenizer that knows its family.
//!
//! The core takes ids and gives ids. This crate reads the tokenizer files of a published checkpoint as they
//! are, writes the special tokens where the family wants them, knows the languages, and turns ids into text
//! again, also while they come. For speech, [`audio`] makes a WAV file what the encoder takes.
//!
//! ```
//! use simdformer_text::{Direction, Tokenizer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/doc");
//! # let directory = root.as_path();
//! let tokenizer = Tokenizer::from_dir(directory)?;
//! let encoded = tokenizer.encode("attention is all you need", &Direction::default())?;
//! // Ids with the end token; what the decoder begins with.
//! assert_eq!(encoded.ids.last(), Some(&0));
//! assert_eq!(encoded.prefix.len(), 1);
//! assert!(!encoded.truncated);
//! assert_eq!(tokenizer.decode(&encoded.ids), "attention is all you need");
//! # Ok(()) }
//! ```
//!
//! # Where the truth is
//!
//! A `.spm` file is read as it is where there is one, exactly as Google's library reads it; a
//! `tokenizer.json` is read by its own reference, the crate `tokenizers`, and only where it is all there is:
//! conversions of the first into the second differ from it on decomposed letters and on ties.
//!
//! # One input is one sentence
//!
//! Translation models are trained on sentences. Nothing here splits text into sentences; an input longer
//! than the model takes is reported ([`Encoded::truncated`]), never cut in silence.

#[cfg(feature = "audio")]
pub mod audio;
#[cfg(feature = "json")]
mod checks;
mod decoding;
mod directory;
mod encoded;
mod engine;
mod error;
mod families;
mod family;
#[cfg(feature = "json")]
mod json;
mod languages;
mod limits;
mod pairs;
#[cfg(feature = "json")]
mod regex_limits;
mod sentencepiece_ids;
mod special_tokens;
mod spm;
#[cfg(feature = "json")]
mod stages;
mod stream;
mod suggest;
mod tokenizer;
mod trie;

pub use encoded::Encoded;
pub use error::TextError;
pub use family::Family;
pub use languages::{Direction, Language};
pub use spm::{SentencePiece, SpmError};
pub use stream::DecodeStream;
pub use tokenizer::Tokenizer;

/// The program of the package's page, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
