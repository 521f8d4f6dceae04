//! Text for `simdformer`: builds the tokenizer of a model from its checkpoint directory.
//!
//! The core reads and writes ids. This crate reads the tokenizer files of a published checkpoint without conversion,
//! places the special tokens as the family requires, knows the languages of the model, and decodes ids to text, also
//! as a stream. For speech, [`audio`] converts a WAV file to the input of the encoder.
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
//! # Which file is used
//!
//! If the directory has a `.spm` file, it is used, with the same results as Google's library. A `tokenizer.json` is
//! read by its reference implementation, the crate `tokenizers`, and only if there is no other file: files that were
//! converted from `.spm` to `tokenizer.json` give different ids for decomposed letters and for ties.
//!
//! # One input is one sentence
//!
//! Translation models are trained on sentences. [`documents::sentences`] splits a text into sentences and cuts those that are too
//! long; a [`Tokenizer`] does neither. An input that is longer than the model's limit is reported
//! ([`Encoded::truncated`]), never cut silently.

#[cfg(feature = "audio")]
pub mod audio;
#[cfg(feature = "models")]
mod builder;
mod checkpoint_directory;
mod detect_family;
#[cfg(feature = "models")]
pub mod embedder;
mod encoding;
mod error;
mod incremental_decoder;
#[cfg(feature = "json")]
mod json;
mod languages;
mod limits;
pub mod model_files;
mod nearest_words;
#[cfg(feature = "models")]
mod on_done;
#[cfg(feature = "models")]
pub mod packed;
#[cfg(feature = "json")]
mod regex_limits;
mod repetition;
mod sentencepiece_ids;
mod special_tokens;
mod spm;
mod suggest_language;
mod task_prefixes;
mod token_spans;
mod token_stream;
mod tokenizer;
mod tokenizer_backend;
#[cfg(feature = "json")]
mod tokenizer_json_checks;
#[cfg(feature = "json")]
mod tokenizer_stages;
#[cfg(feature = "translate")]
pub mod translator;
mod trie;
mod truncate_pair;
mod vocabulary_files;

#[cfg(feature = "models")]
pub use builder::{Builder, Product};
pub use detect_family::Family;
pub use encoding::Encoded;
pub use error::Error;
pub use languages::{Direction, Language};
pub use nearest_words::nearest;
pub use repetition::Repetition;
pub use simdformer_documents as documents;
pub use spm::SentencePiece;
pub use token_stream::DecodeStream;
pub use tokenizer::Tokenizer;

/// The program of the README, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
