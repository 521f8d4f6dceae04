//! The prefix of a T5 model before every sentence of a text, and sentences by the rules of the model's language.

use crate::directories::full;
use crate::translator::Demo;
use simdformer_testing::published::french;
use simdformer_text::translator::{Batcher, TranslateOptions, Translator};
use simdformer_text::{Error, Tokenizer};

/// German sentences with ordinal numbers and abbreviations, which other languages end there.
const ORDINALS: &str = "Er spielt in der 1. Bundesliga. Sie spielt seit dem 29. Juli 2026 in der 2. Mannschaft. \
                        Obst und Gemüse usw. kaufen wir z. B. am Markt. Am 3. Okt. ist frei. Das steht in Abs. 2 Nr. \
                        4 der Ordnung.";

#[test]
fn sentences_follow_the_rules_of_the_models_language() {
    let place = french();
    let settings =
        r#"{"tokenizer_class": "MarianTokenizer", "source_lang": "de", "target_lang": "en"}"#;
    place.write("tokenizer_config.json", settings);
    let demo = Demo::new();
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    let translator = Translator::new(&demo.model, tokenizer, demo.options()).unwrap();
    assert_eq!(translator.translate_texts(&[ORDINALS]).unwrap()[0].sentences.len(), 5);
}

/// Every sentence of a text has the translation of the prefix and the sentence, by every way to translate.
#[test]
fn every_sentence_of_a_text_has_the_prefix() {
    let demo = Demo::new();
    let prefix = "je suis ";
    let parts = ["étudiant", "heureux", "la vieille maison"];
    let whole: Vec<String> = parts.iter().map(|part| format!("{prefix}{part}")).collect();
    let whole: Vec<&str> = whole.iter().map(|text| &**text).collect();
    let expected = demo.translator(demo.options()).translate_sentences(&whole).unwrap();
    let mut options: TranslateOptions = demo.options();
    options.prefix = Some(prefix.to_owned());
    let found = demo.translator(options.clone()).translate_sentences(&parts).unwrap();
    let texts: Vec<&str> = expected.iter().map(|one| &*one.text).collect();
    assert_eq!(found.iter().map(|one| &*one.text).collect::<Vec<_>>(), texts);
    let paragraphs = parts.join("\n\n");
    let text = demo.translator(options.clone()).translate_texts(&[&paragraphs]).unwrap();
    let sentences: Vec<&str> = text[0].sentences.iter().map(|one| &*one.translation.text).collect();
    assert_eq!(sentences, texts);
    let batcher = Batcher::new(&demo.translator(options)).unwrap();
    for (part, text) in parts.iter().zip(&texts) {
        assert_eq!(batcher.submit(part).unwrap().wait().unwrap().text, *text);
    }
}

/// The languages of a T5 model's tasks have other codes, too.
#[test]
fn a_task_is_found_by_every_code_of_its_languages() {
    let place = full("t5");
    place.write(
        "config.json",
        r#"{"model_type": "t5", "decoder_start_token_id": 0, "task_specific_params": {
            "translation_en_to_de": {"prefix": "translate English to German: "}}}"#,
    );
    let demo = Demo::new();
    for (source, target, found) in [
        ("en", "de", true),
        ("eng", "deu", true),
        ("eng_Latn", "de_DE", true),
        ("en", "ita", false),
        ("fra", "de", false),
    ] {
        let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
        let mut options = demo.options();
        (options.source, options.target) = (Some(source.to_owned()), Some(target.to_owned()));
        match Translator::new(&demo.model, tokenizer, options) {
            Ok(_) => assert!(found, "{source} {target}"),
            Err(Error::Language { nearest, .. }) => {
                assert!(!found && nearest.len() == 1, "{source} {target}: {nearest:?}");
            }
            Err(error) => panic!("{source} {target}: {error}"),
        }
    }
}
