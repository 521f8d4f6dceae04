//! The demo model translates held-out sentences exactly.

use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::search::Hooks;
use simdformer::{Event, Limits, Model, Session, Source};
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
