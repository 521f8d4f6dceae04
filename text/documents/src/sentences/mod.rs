//! The sentences of a text, the parts of a sentence that is too long, and the language of a text.
//!
//! Translation models are trained on sentences. Given a paragraph, many of them translate its first sentence only.
//!
//! ```
//! use simdformer_documents::sentences::SentenceSplitter;
//! let splitter = SentenceSplitter::new(Some("en"));
//! let text = "Dr. Smith paid $3.50 at 5 p.m. on Jan. 5. Was it worth it? “Yes!” he said.";
//! let sentences: Vec<&str> = splitter.split(text).into_iter().map(|range| &text[range]).collect();
//! assert_eq!(sentences, [
//!     "Dr. Smith paid $3.50 at 5 p.m. on Jan. 5.",
//!     "Was it worth it?",
//!     "“Yes!” he said.",
//! ]);
//! ```

mod boundaries;
mod characters;
mod codes;
mod cut;
mod detect;
mod lexicon;
mod rules;
mod rules_europe;
mod rules_world;
mod thai;

pub(crate) use codes::codes_agree;
pub use codes::{language_code, model_language};
pub use detect::detect_language;
pub use lexicon::nonbreaking_prefixes;

use lexicon::Lexicon;
use std::ops::Range;

/// Splits a text into sentences by the rules of a language.
///
/// There are rules for more than a hundred languages. A text of another language, or of an unknown one, is split by what
/// the languages have in common.
#[derive(Clone, Debug)]
pub struct SentenceSplitter {
    lexicon: &'static Lexicon,
}

impl SentenceSplitter {
    /// The rules of a language, which is named by an ISO 639-1 code, an ISO 639-3 code or the code of a model: `fr`,
    /// `fra`, `fra_Latn`, `fr_XX`. A code without rules is as `None`.
    #[must_use]
    pub fn new(language: Option<&str>) -> Self {
        Self { lexicon: Lexicon::for_language(language.map(language_code)) }
    }

    /// The sentences of a text, in order: disjoint ranges of bytes, without the white space at their ends. Every other
    /// character belongs to a sentence. No range is empty.
    ///
    /// A line break is a space. A blank line ends a sentence.
    #[must_use]
    pub fn split(&self, text: &str) -> Vec<Range<usize>> {
        boundaries::sentences(text, self.lexicon)
    }

    /// The parts of a sentence of which a model does not take all at once: disjoint ranges of bytes, in order, without
    /// the white space at their ends. Every other character belongs to a part.
    ///
    /// `fits` tells whether a part fits. While one does not, it is cut in two near its middle: at the end of a sentence, at
    /// a semicolon, colon or dash, at a comma, before a conjunction, at a space, or between any two characters, whichever
    /// is the first that there is. So each part fits, unless a single character does not.
    ///
    /// ```
    /// use simdformer_documents::sentences::SentenceSplitter;
    /// let text = "It rained all day, so we stayed at home and read.";
    /// let parts = SentenceSplitter::new(Some("en")).cut(text, &mut |part| part.len() < 32);
    /// let parts: Vec<&str> = parts.into_iter().map(|range| &text[range]).collect();
    /// assert_eq!(parts, ["It rained all day,", "so we stayed at home and read."]);
    /// ```
    pub fn cut(&self, text: &str, fits: &mut dyn FnMut(&str) -> bool) -> Vec<Range<usize>> {
        cut::cut(text, self.lexicon, fits)
    }
}
