//! Text for `simdformer`: the models of published directories, with text in and text or vectors out.
//!
//! The core reads and writes ids. The tokenizer between them and the text is that of the crate [`tokenize`].
//!
//! ```
//! use simdformer_text::{Direction, Tokenizer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/doc");
//! # let directory = root.as_path();
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
//! # One input is one sentence
//!
//! Translation models are trained on sentences. [`documents::sentences`] splits a text into sentences and cuts those that are too
//! long; a [`Tokenizer`] does neither. An input that is longer than the model's limit is reported
//! ([`Encoded::truncated`]), never cut silently.

pub mod argos;
pub mod embedder;
mod error;
pub mod model_files;
pub mod packed;
mod repetition;
pub mod translator;

pub use error::Error;
pub use repetition::Repetition;
pub use simdformer::{Product, ProductBuilder};
pub use simdformer_documents as documents;
pub use simdformer_tokenize as tokenize;
pub use simdformer_tokenize::{DecodeStream, Direction, Encoded, Family, Language, Tokenizer};

/// The program of the README, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
