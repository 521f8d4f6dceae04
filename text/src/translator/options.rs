//! The settings of a translator.

use super::glossary::Glossary;
use crate::Direction;
use regex::Regex;
use simdformer::config::Config;
use simdformer::search::{SearchOptions, Strategy};
use simdformer_documents::sentences::language_code;
use std::sync::Arc;

/// The settings of a [`Translator`](super::Translator). [`TranslateOptions::new`] makes them from a checkpoint; change
/// the fields of the result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TranslateOptions {
    /// The language of the sentences, a code of [`Tokenizer::languages`](crate::Tokenizer::languages); `None` for the
    /// checkpoint's default.
    pub source: Option<String>,
    /// The language of the translations.
    pub target: Option<String>,
    /// What the model reads before every sentence, see [`Tokenizer::with_prefix`](crate::Tokenizer::with_prefix); `None`
    /// for the prefix of the tokenizer.
    pub prefix: Option<String>,
    /// How tokens are chosen. The translator replaces [`start`](SearchOptions::start) if the tokenizer defines it, and
    /// drops a maximum length that the model's positions do not allow.
    pub search: SearchOptions,
    /// Whether a sentence that has more tokens than the model accepts is cut (no). If not, it is not translated:
    /// [`Failure::TooLong`](super::Failure::TooLong).
    pub truncate: bool,
    /// Whether the log-probability of each token is computed, also with beams: then by a second pass of the decoder.
    pub token_scores: bool,
    /// Whether the words are aligned, by a second pass of the decoder.
    pub alignment: bool,
    /// Whether the language of each text is detected. A text in the target language is copied. Not for models of one
    /// direction.
    pub detect: bool,
    /// What is kept in texts beside placeholders, addresses and numbers in code.
    pub keep: Vec<Regex>,
    /// Whether attributes of HTML that people read, and titles and alternative texts of Markdown, are translated (true).
    pub attributes: bool,
    /// Whether a translation that repeats itself is made again, under a penalty; only of texts and documents.
    pub guard: bool,
    /// Whether a sentence in capitals is read in small letters if the model knows these better, and its translation is put
    /// into capitals (yes).
    pub capitals: bool,
    /// Whether symbols that the vocabulary does not have, and pictures, are copied to their places (yes). A summary has no
    /// place for them.
    pub symbols: bool,
    /// Terms whose translation is required; only of texts and documents.
    pub glossary: Option<Arc<Glossary>>,
}

impl TranslateOptions {
    /// The search of the checkpoint, its default languages.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            source: None,
            target: None,
            prefix: None,
            search: config.search_options(),
            truncate: false,
            token_scores: false,
            alignment: false,
            detect: false,
            keep: Vec::new(),
            attributes: true,
            guard: true,
            capitals: true,
            symbols: true,
            glossary: None,
        }
    }

    /// The languages.
    #[must_use]
    pub fn direction(&self) -> Direction<'_> {
        Direction { source: self.source.as_deref(), target: self.target.as_deref() }
    }

    /// The languages of a text whose language was detected.
    pub(super) fn direction_from<'d>(&'d self, source: Option<&'d str>) -> Direction<'d> {
        let direction = self.direction();
        Direction { source: source.or(direction.source), ..direction }
    }

    /// Whether the search draws random tokens: then equal sentences have different translations.
    #[must_use]
    pub fn samples(&self) -> bool {
        match &self.search.strategy {
            Strategy::Greedy => false,
            Strategy::Beam(beam) => beam.sample.is_some(),
            Strategy::Sample(_) => true,
        }
    }
}

/// Whether two codes, of ISO 639 or of models, are of one language: `eng` and `en`. What the languages of a T5 model's tasks
/// are compared with: [`Tokenizer::with_same_language`](crate::Tokenizer::with_same_language).
#[must_use]
pub fn is_same_language(code: &str, other: &str) -> bool {
    language_code(code) == language_code(other)
}
