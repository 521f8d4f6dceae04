//! The demo model translates held-out sentences exactly, and the example `translate` prints clear errors.

#[allow(dead_code, reason = "tests call what `main` calls")]
#[path = "../examples/translate.rs"]
mod example;

use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::search::Hooks;
use simdformer::{Event, Limits, Model, Session, Source};
use std::io::Read;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/fr-en")
}

struct HeldOut {
    target: String,
    source_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
}

/// The first `count` sentences that were held out of the training.
fn held_out(count: usize) -> Vec<HeldOut> {
    let text = std::fs::read_to_string(folder().join("held_out.jsonl")).expect("held_out.jsonl");
    let line = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let id = |id: &serde_json::Value| id.as_u64().expect("an id") as u32;
        let ids = |key: &str| value[key].as_array().expect(key).iter().map(id).collect();
        HeldOut {
            target: value["target"].as_str().expect("target").to_owned(),
            source_ids: ids("source_ids"),
            greedy_ids: ids("greedy_ids"),
        }
    };
    let sentences: Vec<HeldOut> = text.lines().take(count).map(line).collect();
    assert_eq!(sentences.len(), count);
    sentences
}

/// The English word of each id.
fn words() -> Vec<String> {
    let text = std::fs::read_to_string(folder().join("vocab.json")).expect("vocab.json");
    let map: std::collections::BTreeMap<String, usize> =
        serde_json::from_str(&text).expect("a map");
    let mut words = vec![String::new(); map.len()];
    for (word, id) in map {
        words[id] = word.replace('▁', "");
    }
    words
}

#[test]
fn held_out_sentences_are_translated_exactly_on_every_instruction_set() {
    let sentences = held_out(100);
    let words = words();
    let checkpoint = Checkpoint::open(folder()).expect("a checkpoint");
    for isa in Isa::available() {
        let model = Model::load(&checkpoint, isa).expect("a model");
        let longest = sentences.iter().map(|s| s.source_ids.len()).max().expect("sentences");
        // Fewer slots than sentences: most sentences wait for a free slot.
        let mut session = Session::new(&model, Limits::new(16, longest, 40)).expect("a session");
        let sources: Vec<Source> = sentences.iter().map(|s| Source::new(&s.source_ids)).collect();
        let mut found = vec![Vec::new(); sentences.len()];
        let options = model.config().search_options();
        session
            .generate(&sources, &options, &mut Hooks::default(), &mut |event| {
                if let Event::Done(done) = event {
                    found[done.source] = done.hypotheses().next().expect("one").tokens.to_vec();
                }
            })
            .expect("generated");
        let mut exact = 0;
        for (sentence, found) in sentences.iter().zip(&found) {
            assert_eq!(*found, sentence.greedy_ids, "{isa}: {}", sentence.target);
            let (end, translated) = found.split_last().expect("an end token");
            assert_eq!(words[*end as usize], "</s>");
            let translated: Vec<&str> =
                translated.iter().map(|&id| words[id as usize].as_str()).collect();
            exact += usize::from(translated.join(" ") == sentence.target);
        }
        assert!(exact >= 97, "{isa}: {exact} of 100 exact");
    }
}

fn run(arguments: &[&str], piped: Option<&[u8]>) -> (u8, String) {
    let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
    let mut out = Vec::new();
    let mut piped = piped;
    let piped = piped.as_mut().map(|bytes| bytes as &mut dyn Read);
    let code = example::run(&arguments, piped, &mut out).expect("a run");
    (code, String::from_utf8(out).expect("text"))
}

fn translation<'o>(output: &'o str, source: &str) -> &'o str {
    let line = output.lines().find(|line| line.split("  ").next() == Some(source));
    let line = line.unwrap_or_else(|| panic!("{source} in\n{output}"));
    line.split("  ->  ").nth(1).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn samples_are_translated_without_arguments() {
    // A program that another program starts may have an empty pipe as input.
    for piped in [None, Some(&b""[..])] {
        let (code, output) = run(&[], piped);
        assert_eq!(code, 0, "{output}");
        assert_eq!(translation(&output, "je suis étudiant"), "i am a student");
        assert_eq!(translation(&output, "quel mois"), "what month");
        assert_eq!(output.matches("  ->  ").count(), 14);
        for part in ["tokens per second", "bytes planned", "heap allocations per token"] {
            assert!(output.contains(part), "{part} in\n{output}");
        }
    }
}

#[test]
fn arguments_and_lines_are_translated() {
    let (code, output) = run(&["Je suis étudiant", " ", "quel mois"], Some(b"not read"));
    assert_eq!(code, 0, "{output}");
    assert_eq!(translation(&output, "Je suis étudiant"), "i am a student");
    assert_eq!(translation(&output, "quel mois"), "what month");
    let (code, output) = run(&[], Some("\nquel mois\r\n\n  je suis étudiant".as_bytes()));
    assert_eq!(code, 0, "{output}");
    assert_eq!(output.matches("  ->  ").count(), 2);
    assert_eq!(translation(&output, "je suis étudiant"), "i am a student");
    let many = "quel mois\n".repeat(100);
    let (code, output) = run(&[], Some(many.as_bytes()));
    assert_eq!((code, output.matches("  ->  what month").count()), (0, 100));
}

#[test]
fn sentences_that_cannot_be_translated_are_named() {
    let (code, output) = run(&["la voitture est rouge", "quel mois"], None);
    assert_eq!(code, 1);
    assert!(output.contains("the model does not know the word \"voitture\"; near it: voiture"));
    assert_eq!(translation(&output, "quel mois"), "what month");
    assert!(output.contains("1 of 2 sentences not translated"));
    let (code, output) = run(&[], Some(b"ma\xffison\n?\n"));
    assert_eq!(code, 1);
    assert!(output.contains("there are no words in it"), "{output}");
    assert!(output.contains("the model does not know the word \"ma\u{fffd}ison\""), "{output}");
    let long = "je ".repeat(200);
    let (code, output) = run(&[&long], None);
    assert_eq!(code, 1);
    assert!(output.contains("200 words and marks, the model takes at most 127"), "{output}");
    // An empty line is not an error.
    let (code, output) = run(&[], Some(b" \n\n"));
    assert_eq!(code, 0);
    assert!(output.contains("0 tokens in"), "{output}");
}

#[test]
fn unknown_options_are_errors() {
    let error = example::run(&["--beams".to_owned()], None, &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "unknown option `--beams`; see --help");
    assert!(run(&["--help"], None).1.contains("Translates French to English"));
}
