//! The language of each text, if it is detected.

use super::model_and_tokenizer::Translator;
use super::options::TranslateOptions;
use crate::Tokenizer;
use crate::sentences::{detect_language, language_code, model_language};

/// Below this confidence the language of the options is assumed.
const CONFIDENCE: f64 = 0.5;

impl Translator<'_> {
    /// The model's code for the language of `text`, and whether that is the target language, so that the text is copied.
    /// `None` for the language of the options.
    ///
    /// A text whose language is not certain, such as a heading of one word, has the language of the options.
    pub(super) fn language_of(&self, text: &str) -> (Option<String>, bool) {
        language_of(&self.options, &self.tokenizer, text)
    }
}

/// [`Translator::language_of`] under these options.
pub(super) fn language_of(
    options: &TranslateOptions,
    tokenizer: &Tokenizer,
    text: &str,
) -> (Option<String>, bool) {
    if !options.detect {
        return (None, false);
    }
    let found = detect_language(text).filter(|&(_, confidence)| confidence >= CONFIDENCE);
    let Some((code, _)) = found else { return (None, false) };
    let target = options.target.as_deref().map(language_code);
    let codes = tokenizer.languages().unwrap_or_default();
    let known = model_language(code, codes.iter().map(|language| language.code()));
    (known.map(str::to_owned), target == Some(code))
}
