//! The demo model's own sentences, as people write them.

use super::{MODEL, SAMPLES, encode, translate};
use simdformer_tokenize::Tokenizer;

fn translated(text: &str) -> (bool, String) {
    let mut out = Vec::new();
    let all = translate(text, &mut out).expect("a model");
    (all, String::from_utf8(out).expect("UTF-8"))
}

/// `j'ai`, `a-t-il?`, `paul's book`: words as people write them.
fn written(tokens: &str) -> String {
    let mut text = format!(" {tokens}");
    for mark in [" ?", " .", " -", " 's"] {
        text = text.replace(mark, mark.trim());
    }
    text.replace("' ", "'").trim().to_string()
}

/// The ids are those of the training script, for words that are separate, joined, and in capitals with typographic marks.
#[test]
fn written_sentences_have_the_ids_of_the_training_script() {
    let tokenizer = Tokenizer::from_dir(MODEL).expect("a tokenizer");
    let lines = std::fs::read_to_string(format!("{MODEL}/held_out.jsonl")).expect("sentences");
    let mut sentences = 0;
    for line in lines.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let source = value["source"].as_str().expect("a source");
        let ids: Vec<u32> = serde_json::from_value(value["source_ids"].clone()).expect("ids");
        let typed = written(source);
        let shouted = typed.to_uppercase().replace('\'', "’").replace('?', "\u{202f}?");
        for text in [source, &typed, &shouted] {
            assert_eq!(encode(&tokenizer, text).expect(text), ids, "{text}");
        }
        sentences += 1;
    }
    assert_eq!(sentences, 1000);
}

#[test]
fn samples_are_translated() {
    let (all, output) = translated(SAMPLES);
    assert!(all, "{output}");
    for line in ["je suis étudiant", "quel mois"] {
        assert!(output.lines().any(|found| found.starts_with(line)), "{output}");
    }
    assert!(output.contains("->  i am a student\n") && output.contains("->  what month\n"));
    assert_eq!(output.matches("  ->  ").count(), 14);
    assert!(output.contains("tokens per second") && output.contains("bytes planned"), "{output}");
}

#[test]
fn sentences_that_cannot_be_translated_are_named() {
    let (all, output) = translated("la voitture est rouge\n\n quel mois \r\n");
    assert!(!all && output.contains("->  what month\n"), "{output}");
    assert!(output.contains("does not know the word \"voitture\"; near it: voiture"), "{output}");
    for word in ["éléfant", "mange\u{301}e", "日本", "x\0y", "a\u{fffd}b"] {
        let (all, output) = translated(&format!("« j’{word} » la maison"));
        assert!(!all && output.contains("does not know the word"), "{output}");
    }
    let (all, output) = translated(&"je ".repeat(200));
    assert!(!all && output.contains("not translated: it has 201 tokens"), "{output}");
    let (all, output) = translated(" \n\n");
    assert!(all && output.contains("0 tokens in"), "{output}");
}
