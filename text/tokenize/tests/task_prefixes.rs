//! The texts that T5 reads before every sentence, and the language of the rules of sentences.

use simdformer_testing::directories::full;
use simdformer_testing::temporary_folder::TemporaryFolder;
use simdformer_tokenize::{Direction, Error, Tokenizer};

const TASKS: &str = r#"{"model_type": "t5", "decoder_start_token_id": 0, "task_specific_params": {
    "summarization": {"prefix": "summarize: ", "num_beams": 4},
    "translation_en_to_de": {"prefix": "translate English to German: "},
    "translation_en_to_fr": {"prefix": "translate English to French: "},
    "translation_de_to_en": {"prefix": "translate German to English: ", "max_length": 300},
    "unnamed": {"max_length": 9}}}"#;

fn t5(config: &str) -> TemporaryFolder {
    let place = full("t5");
    place.write("config.json", config);
    place
}

/// Codes are of one language if they begin with the same two letters, which is true of the ones below.
fn same(code: &str, other: &str) -> bool {
    code.get(..2) == other.get(..2)
}

fn direction<'c>(source: Option<&'c str>, target: Option<&'c str>) -> Direction<'c> {
    Direction { source, target }
}

/// Whatever the text and wherever the prefix comes from, the ids are those of the prefix and the text in one.
#[test]
fn a_prefix_is_read_before_every_text() {
    let plain =
        Tokenizer::from_dir(&t5(r#"{"model_type": "t5", "decoder_start_token_id": 0}"#).0).unwrap();
    let tasks = t5(TASKS);
    let tasks = Tokenizer::from_dir(&tasks.0).unwrap();
    let other_codes = direction(Some("eng"), Some("deu_Latn"));
    assert!(matches!(tasks.encode("", &other_codes), Err(Error::Language { .. })));
    let tasks = tasks.with_same_language(same);
    let texts = [
        "the house",
        "A sentence. And another one.",
        " spaces ",
        "ß é ☃",
        "1",
        "\u{1}",
        "",
        " \n",
        "</s>",
    ];
    let of_task = [
        (direction(Some("en"), Some("de")), "translate English to German: "),
        (direction(Some("eng"), Some("deu_Latn")), "translate English to German: "),
        (direction(Some("en"), Some("fr")), "translate English to French: "),
        (direction(None, Some("fr")), "translate English to French: "),
        (direction(Some("de"), None), "translate German to English: "),
        // Several are possible, or none was asked for.
        (direction(Some("en"), None), ""),
        (direction(None, None), ""),
    ];
    let mut compared = 0;
    let mut check = |tokenizer: &Tokenizer, of: &Direction<'_>, prefix: &str| {
        for text in texts {
            let alone = plain.encode(text, &Direction::default()).unwrap();
            let expected = match alone.blank {
                true => alone,
                false => plain.encode(&format!("{prefix}{text}"), &Direction::default()).unwrap(),
            };
            let found = tokenizer.encode(text, of).unwrap();
            assert_eq!(
                (&found.ids, found.blank),
                (&expected.ids, expected.blank),
                "{prefix:?} {text:?}"
            );
            // A text that has it gets no second one.
            let twice = tokenizer.encode(&format!("{prefix}{text}"), of).unwrap();
            if !found.blank {
                assert_eq!(twice.ids, found.ids, "{prefix:?} {text:?}");
            }
            let (encoded, spans) = tokenizer.encode_with_spans(text, of).unwrap();
            assert_eq!(encoded.ids.len(), spans.len());
            assert_eq!(encoded.ids, found.ids);
            let covered: Vec<&str> = spans.iter().map(|span| &text[span.clone()]).collect();
            let (_, of_text) = plain.encode_with_spans(text, &Direction::default()).unwrap();
            let expected: Vec<&str> = of_text.iter().map(|span| &text[span.clone()]).collect();
            assert_eq!(covered.concat(), expected.concat(), "{prefix:?} {text:?}");
            compared += 1;
        }
    };
    for (of, prefix) in of_task {
        check(&tasks, &of, prefix);
    }
    for prefix in ["translate English to German: ", "summarize: ", "", "x", "é☃ "] {
        let place = t5(TASKS);
        let tokenizer = Tokenizer::from_dir(&place.0).unwrap().with_prefix(Some(prefix.to_owned()));
        for (of, _) in of_task {
            check(&tokenizer, &of, prefix);
        }
    }
    assert!(compared > 370, "{compared}");
    assert_eq!(tasks.task_prefix("summarization"), Some("summarize: "));
    assert_eq!(tasks.task_prefix("unnamed"), None);
}

#[test]
fn languages_without_a_task_are_errors() {
    let place = t5(TASKS);
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    for (source, target, wrong, nearest) in [
        (Some("en"), Some("it"), "it", &["de", "fr"][..]),
        (Some("it"), Some("en"), "it", &["de", "en"]),
        (None, Some("xx"), "xx", &["de", "en", "fr"]),
        (Some("de"), Some("de"), "de", &["en"]),
    ] {
        match tokenizer.encode("text", &direction(source, target)) {
            Err(Error::Language { found: Some(code), nearest: found, .. }) => {
                assert_eq!(
                    (&*code, &found[..]),
                    (wrong, &nearest.iter().map(|&c| c.to_owned()).collect::<Vec<_>>()[..])
                );
            }
            other => panic!("{source:?} {target:?}: {other:?}"),
        }
    }
    // Without tasks there are no languages, as before.
    let place = t5(r#"{"model_type": "t5", "decoder_start_token_id": 0}"#);
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    let found = tokenizer.encode("text", &direction(None, Some("de")));
    assert!(
        matches!(&found, Err(Error::Language { nearest, .. }) if nearest.is_empty()),
        "{found:?}"
    );
}

#[test]
fn broken_tasks_are_errors() {
    let long = "x".repeat(4097);
    let mut errors = 0;
    for tasks in [
        "7",
        "[]",
        "\"text\"",
        "true",
        r#"{"a": 7}"#,
        r#"{"a": []}"#,
        r#"{"a": null}"#,
        r#"{"a": {"prefix": 7}}"#,
        r#"{"a": {"prefix": []}}"#,
        r#"{"a": {"prefix": {}}}"#,
        &format!(r#"{{"a": {{"prefix": "{long}"}}}}"#),
    ] {
        let config = format!(r#"{{"model_type": "t5", "task_specific_params": {tasks}}}"#);
        let place = t5(&config);
        let error = Tokenizer::from_dir(&place.0).unwrap_err().to_string();
        assert!(error.contains("config.json: task_specific_params: expected"), "{error}");
        errors += 1;
    }
    assert_eq!(errors, 11);
    for tasks in [
        "null",
        "{}",
        r#"{"a": {}}"#,
        r#"{"a": {"prefix": null}}"#,
        r#"{"translation_": {"prefix": "p"}}"#,
    ] {
        let config = format!(r#"{{"model_type": "t5", "task_specific_params": {tasks}}}"#);
        let place = t5(&config);
        let ids = Tokenizer::from_dir(&place.0)
            .unwrap()
            .encode("text", &Direction::default())
            .unwrap()
            .ids;
        assert!(!ids.is_empty());
    }
}

/// The rules of sentences follow the language of the call, of the directory, or of the only task.
#[test]
fn the_language_of_texts_is_known() {
    let place = t5(TASKS);
    let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
    for (source, target, expected) in [
        (Some("en"), Some("de"), Some("en")),
        (None, Some("en"), Some("de")),
        (None, None, None),
        (Some("sv"), None, Some("sv")),
    ] {
        assert_eq!(tokenizer.source_language(&direction(source, target)), expected);
    }
    for (key, family) in [
        ("source_lang", "marian"),
        ("src_lang", "nllb"),
        ("src_lang", "mbart50"),
        ("src_lang", "m2m100"),
    ] {
        let place = full(family);
        let file = place.0.join("tokenizer_config.json");
        let text = std::fs::read_to_string(&file).unwrap_or_else(|_| "{}".to_owned());
        let mut settings: serde_json::Value = serde_json::from_str(&text).unwrap();
        for (code, expected) in [("de", Some("de")), ("deu_Latn", Some("deu_Latn"))] {
            settings[key] = code.into();
            place.write("tokenizer_config.json", settings.to_string());
            let tokenizer = Tokenizer::from_dir(&place.0).unwrap();
            assert_eq!(tokenizer.source_language(&Direction::default()), expected, "{family}");
            assert_eq!(tokenizer.source_language(&direction(Some("fr"), None)), Some("fr"));
        }
    }
}
