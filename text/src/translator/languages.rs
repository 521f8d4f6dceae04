//! The language of each text, if it is detected.

use super::model_and_tokenizer::Translator;
use super::options::TranslateOptions;
use crate::Tokenizer;
use simdformer_documents::sentences::{detect_language, language_code, model_language};

/// Below this confidence the language of the options is assumed.
const CONFIDENCE: f64 = 0.5;

impl Translator {
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
    let codes = tokenizer.languages().unwrap_or_default();
    let codes: Vec<&str> = codes.iter().map(|language| language.code()).collect();
    let known = model_language(code, codes.iter().copied());
    let target = options.target.as_deref();
    let copied = target.is_some_and(|target| is_target(code, known, target, &codes));
    (known.map(str::to_owned), copied)
}

/// Whether a text whose language is `code`, and `known` for the model, is in the language `target` already. `codes` are
/// the languages of the model.
///
/// The model's codes are compared, because they name the script: Chinese in traditional characters (`zh-Hant`) is
/// `zho_Hant` and not `zho_Hans`. For a model without languages, the ISO 639 codes are compared.
fn is_target(code: &str, known: Option<&str>, target: &str, codes: &[&str]) -> bool {
    match known {
        Some(_) => model_language(target, codes.iter().copied()) == known,
        None => language_code(target) == code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_in_the_target_language_if_its_script_is_the_same() {
        let nllb = ["eng_Latn", "fra_Latn", "zho_Hans", "zho_Hant"];
        for (code, target, codes, expected) in [
            ("zh-Hant", "zho_Hant", &nllb[..], true),
            ("zh-Hant", "zho_Hans", &nllb, false),
            ("zh", "zho_Hant", &nllb, false),
            ("zh", "zho_Hans", &nllb, true),
            ("fr", "fra_Latn", &nllb, true),
            ("fr", "eng_Latn", &nllb, false),
            // A model with one code for both scripts.
            ("zh-Hant", "zh", &["en", "zh"], true),
            ("fr", "fra", &["en", "fr"], true),
            // A language that the model does not have.
            ("cy", "fra_Latn", &nllb, false),
            // A model without languages.
            ("fr", "fra", &[], true),
            ("fr", "en", &[], false),
        ] {
            let known = model_language(code, codes.iter().copied());
            let found = is_target(code, known, target, codes);
            assert_eq!(found, expected, "{code} to {target} of {codes:?}");
        }
    }
}
