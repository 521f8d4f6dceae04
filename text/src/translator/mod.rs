//! Translates sentences: a model, its tokenizer and a planned session behind one type.
//!
//! ```no_run
//! use simdformer::Model;
//! use simdformer_text::Tokenizer;
//! use simdformer_text::translator::{TranslateOptions, Translator};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (model, tokenizer) = (Model::open("opus-mt-en-fr")?, Tokenizer::from_dir("opus-mt-en-fr")?);
//! let options = TranslateOptions::new(model.config());
//! let mut translator = Translator::new(&model, &tokenizer, options)?;
//! for translation in translator.translate_sentences(&["How are you?", "Where does she live?"])? {
//!     println!("{}", translation.text);
//! }
//! # Ok(()) }
//! ```
//!
//! # What the result depends on
//!
//! The bits of a translation depend on its sentence, the model and the options: not on the other sentences, their
//! order, [`slots`](TranslateOptions::slots), the threads, or what was translated before. Sampling is the exception:
//! sentence `i` of a [`Translator`] draws from random stream `i`, see [`Translator::seek`].
//!
//! # Memory
//!
//! A session is planned when the first sentences arrive, and again when a sentence is longer than all before it. The
//! streaming forms read a window of sentences, translate it, hand out the results in order, and only then read on.

mod error;
mod model_and_tokenizer;
mod options;
mod sentences;
mod translation;
mod window;

pub use error::TranslateError;
pub use model_and_tokenizer::{TokenizerRef, Translator};
pub use options::TranslateOptions;
pub use translation::{Alternative, Failure, Report, Translation};
