//! `translate` with the language of the rules of sentences, and with a prefix before every sentence.

use crate::command::{err, out, run_command};
use simdformer_testing::published::french;

/// German sentences with ordinal numbers and abbreviations, which other languages end there.
const ORDINALS: &str = "Er spielt in der 1. Bundesliga. Sie spielt seit dem 29. Juli 2026 in der 2. Mannschaft. \
                            Obst und Gemüse usw. kaufen wir z. B. am Markt. Am 3. Okt. ist frei. Das steht in Abs. 2 Nr. \
                            4 der Ordnung.";

#[test]
fn sentences_follow_the_rules_of_the_models_language() {
    let place = french();
    let model = place.0.to_str().unwrap();
    let sentences = |more: &[&str]| {
        let output =
            run_command(&[&["translate", "--json", "--model", model], more].concat(), ORDINALS);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output).lines().count()
    };
    assert!(sentences(&[]) > 5, "French rules");
    let settings =
        r#"{"tokenizer_class": "MarianTokenizer", "source_lang": "de", "target_lang": "en"}"#;
    place.write("tokenizer_config.json", settings);
    assert_eq!([sentences(&[]), sentences(&["--from", "de"])], [5, 5]);
}

/// Every sentence has the translation of the prefix and the sentence, by every way to translate.
#[test]
fn every_sentence_of_a_text_has_the_prefix() {
    let place = french();
    let model = place.0.to_str().unwrap();
    let prefix = "je suis ";
    let parts = ["étudiant", "heureux", "la vieille maison"];
    let whole: String = parts.iter().map(|part| format!("{prefix}{part}\n")).collect();
    let expected = run_command(&["translate", "--lines", "--model", model], &whole);
    let texts: Vec<&str> = out(&expected).lines().collect();
    assert_eq!(texts.len(), parts.len(), "{}", err(&expected));
    for more in [&["--lines"][..], &["--stream", "--beams", "1"], &["--explain=1", "--json"], &[]] {
        let given = [&["translate", "--model", model, "--prefix", prefix], more].concat();
        let output = run_command(&given, &parts.join(if more.is_empty() { "\n\n" } else { "\n" }));
        for text in &texts {
            assert!(out(&output).contains(text), "{more:?}: {} {}", out(&output), err(&output));
        }
    }
}
