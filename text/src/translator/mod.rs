//! Translates sentences, texts and documents: a model, its tokenizer and a planned session behind one type.
//!
//! ```no_run
//! use simdformer_text::documents::Format;
//! use simdformer_text::translator::Translator;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let translator = Translator::open("opus-mt-en-fr")?;
//! println!("{}", translator.translate("How are you? Where does she live?")?);
//! for translation in translator.translate_sentences(&["How are you?", "Where does she live?"])? {
//!     println!("{}", translation.result()?);
//! }
//! let page = "# Home\n\nThe *white* car is old. Where does {name} live?\n";
//! println!("{}", translator.translate_document(page, Format::Markdown)?);
//! println!("{:?}", translator.report());
//! # Ok(()) }
//! ```
//!
//! # From a document to the model and back
//!
//! 1. [`Document`](crate::documents::Document) divides a document into segments, which are paragraphs with marks, and later puts the
//!    translated segments in their places. Segments of subtitles are read as one text while a sentence runs over them; its
//!    translation is divided again by the alignment, and so that each cue can be read in its time (17 characters in a second).
//! 2. [`sentences`](crate::documents::sentences) divides a segment into sentences, and a sentence of more tokens than the model takes
//!    into parts: [`Report::cut`].
//! 3. [`marked_text`](crate::documents::marked_text) finds placeholders and addresses, which are kept, and places them and the inline
//!    tags by the cross-attention. A sentence that loses a kept piece is translated again without the pieces, then in parts
//!    between them: [`Report::kept_again`], [`Report::split`].
//! 4. A translation that repeats itself is made again under rules against repetition: [`Report::repetitions`]. One that lacks
//!    a term of the [`Glossary`] is made again with a bias towards the term, then with the term forced at the place of its
//!    source words: [`Report::terms_again`].
//!
//! # What the result depends on
//!
//! The bits of a translation depend on its sentence, the model and the options: not on the other sentences, their
//! order, the slots, the threads, or what was translated before. Sampling is the exception:
//! sentence `i` of a [`Translator`] draws from random stream `i`, see [`Translator::seek`].
//!
//! # Requests that arrive at any time
//!
//! A [`Batcher`] decodes sentences from any threads in one batch, for a service: they join it before the next step.
//! [`Translator::set_batched`] does so with texts and documents.
//!
//! # Memory
//!
//! A session is planned when the first sentences arrive, and again when a sentence is longer than all before it. The
//! streaming forms read a window of sentences, translate it, hand out the results in order, and only then read on.

mod batched;
mod batcher;
mod cues;
mod documents;
mod first_search;
mod glossary;
mod inspection;
mod languages;
mod marked_sentences;
mod model_and_tokenizer;
mod options;
mod reading;
mod requests;
mod retries;
mod segments;
mod sentences;
mod spellings;
mod texts;
mod translation;
mod unknown_words;
mod window;

pub use batcher::{BatchRequest, Batcher, Pending};
pub use glossary::{Glossary, Term};
pub use model_and_tokenizer::Translator;
pub use options::{TranslateOptions, is_same_language};
pub use requests::BatchEvent;
pub use segments::TextEvent;
pub use translation::{
    AlignedWords, Alternative, Failure, Note, Report, TextTranslation, TranslatedSentence,
    Translation, UnknownWord,
};
