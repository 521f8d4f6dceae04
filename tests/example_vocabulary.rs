//! The vocabulary of the translation example, on the demo model's own sentences.

#[path = "../examples/support/vocabulary.rs"]
mod example;

use std::path::PathBuf;

use example::{Vocabulary, VocabularyError};

/// A sentence that was held out of the training, as `train.py` wrote it.
struct HeldOut {
    source: String,
    target: String,
    source_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/fr-en")
}

fn vocabulary() -> Vocabulary {
    match Vocabulary::read(&folder()) {
        Ok(vocabulary) => vocabulary,
        Err(error @ VocabularyError::Io { .. }) => {
            panic!("the demo model lies in the repository: {error}")
        }
        Err(error) => panic!("{error}"),
    }
}

fn held_out() -> Vec<HeldOut> {
    let text = std::fs::read_to_string(folder().join("held_out.jsonl")).unwrap();
    let line = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| value[key].as_str().unwrap().to_string();
        let ids = |key: &str| {
            value[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
        };
        HeldOut {
            source: text("source"),
            target: text("target"),
            source_ids: ids("source_ids"),
            greedy_ids: ids("greedy_ids"),
        }
    };
    text.lines().map(line).collect()
}

/// `j'ai`, `a-t-il?`, `paul's book`: words as people write them.
fn written(tokens: &str) -> String {
    let mut text = format!(" {tokens}");
    for mark in [" ?", " .", " -", " 's"] {
        text = text.replace(mark, mark.trim());
    }
    text.replace("' ", "'").trim().to_string()
}

#[test]
fn ids_are_those_of_the_training_script() {
    let vocabulary = vocabulary();
    let sentences = held_out();
    assert_eq!(sentences.len(), 1000);
    for sentence in &sentences {
        assert_eq!(
            vocabulary.encode(&sentence.source).unwrap(),
            sentence.source_ids,
            "{}",
            sentence.source
        );
    }
}

#[test]
fn written_sentences_round_trip() {
    let vocabulary = vocabulary();
    for sentence in held_out() {
        let typed = vocabulary.decode(&sentence.source_ids);
        assert_eq!(typed, written(&sentence.source));
        let shouted = typed.to_uppercase().replace('\'', "’").replace('?', "\u{202f}?");
        for text in [&typed, &shouted] {
            assert_eq!(vocabulary.encode(text).unwrap(), sentence.source_ids, "{text}");
        }
    }
}

#[test]
fn recorded_translations_are_the_targets() {
    let vocabulary = vocabulary();
    let sentences = held_out();
    let exact =
        sentences.iter().filter(|s| vocabulary.decode(&s.greedy_ids) == written(&s.target)).count();
    assert!(exact >= 990, "expected at least 990 of 1000 exact, found {exact}");
}

#[test]
fn common_first_sentences_are_known() {
    let vocabulary = vocabulary();
    for text in [
        "Je suis étudiant",
        "Quel mois ?",
        "J'ai vingt ans.",
        "Qu'est-ce que tu manges ?",
        "Où est-ce qu'il habite ?",
        "L'étudiante ne lit jamais le journal.",
        "Comment t'appelles-tu ?",
        "Mon père a-t-il acheté une voiture rouge ?",
    ] {
        assert!(vocabulary.encode(text).is_ok(), "{text}: {:?}", vocabulary.encode(text));
    }
}

#[test]
fn unknown_words_are_named() {
    let vocabulary = vocabulary();
    let error = vocabulary.encode("J'ai vu un elefant").unwrap_err();
    assert_eq!(error.word, "elefant");
    let error = vocabulary.encode("la voitture est rouge").unwrap_err();
    assert_eq!((error.word.as_str(), error.nearest[0].as_str()), ("voitture", "voiture"));
    // English words are in the shared vocabulary but are not source words.
    assert_eq!(vocabulary.encode("the house").unwrap_err().word, "the");
}
