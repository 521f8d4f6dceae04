//! The sentences of the demo, and the rules for a corpus.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use simdformer_testing::digest::Digest;

use super::{Example, bare, corpus, fixed, pairs, sentence, vocabulary};

/// The seed of the demo.
const SEED: u64 = 2017;

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn held_out() -> Vec<Example> {
    let pair = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| value[key].as_str().unwrap().to_string();
        Example { source: text("source"), target: text("target") }
    };
    read("models/fr-en/held_out.jsonl").lines().map(pair).collect()
}

fn known() -> BTreeMap<String, u32> {
    let pieces: BTreeMap<String, u32> =
        serde_json::from_str(&read("models/fr-en/vocab.json")).unwrap();
    pieces.into_iter().map(|(piece, id)| (piece.replace('▁', ""), id)).collect()
}

#[test]
fn sentences_are_those_on_which_the_demo_model_was_trained() {
    let mut digest = Digest::default();
    let mut add = |text: &str| {
        for letter in text.chars().chain(['\n']) {
            digest.word(u64::from(letter));
        }
    };
    for Example { source, target } in
        fixed().into_iter().chain((0..2000).map(|number| sentence(SEED, number)))
    {
        add(&source);
        add(&target);
    }
    assert_eq!(digest.0, 17_648_294_184_886_155_064);
}

#[test]
fn a_source_has_one_translation() {
    let mut said: HashMap<String, String> =
        fixed().into_iter().map(|pair| (pair.source, pair.target)).collect();
    assert_eq!(said.len(), fixed().len());
    for number in 0..40_000 {
        let pair = sentence(SEED + 1, number);
        let target = said.entry(pair.source.clone()).or_insert_with(|| pair.target.clone());
        assert_eq!(*target, pair.target, "{}", pair.source);
    }
}

#[test]
fn a_corpus_has_no_held_out_sentence() {
    // Hold some of the generated sentences out as well, with the final full stop added if it is
    // missing.
    let made = pairs(3000, 5);
    let mut held: Vec<String> = held_out().into_iter().map(|pair| pair.source).collect();
    let more = made.iter().skip(1000).step_by(7).map(|pair| &pair.source);
    held.extend(more.map(|source| match bare(source) {
        bare if bare == source => format!("{bare} ."),
        bare => bare.to_string(),
    }));
    let corpus = corpus(3000, 5, 200, held.iter().map(String::as_str));
    let keys = |pairs: &[Example]| -> HashSet<String> {
        pairs.iter().map(|pair| bare(&pair.source).to_string()).collect()
    };
    let (training, development) = (keys(&corpus.training), keys(&corpus.development));
    let held: HashSet<String> = held.iter().map(|source| bare(source).to_string()).collect();
    assert!(held.len() > 1200);
    assert_eq!(corpus.development.len(), 200);
    assert_eq!(development.len(), 200);
    assert!(training.is_disjoint(&held));
    assert!(development.is_disjoint(&held));
    assert!(training.is_disjoint(&development));
    for pair in fixed() {
        let times = corpus.training.iter().filter(|other| **other == pair).count();
        assert_eq!(times, 12, "{}", pair.source);
    }
    // All other generated sentences are in the corpus.
    let whole = keys(&made);
    let gone = whole.iter().filter(|key| held.contains(*key)).count();
    assert_eq!(training.len() + development.len() + gone, whole.len());
}

#[test]
fn a_corpus_is_reproducible_and_a_prefix_of_longer_ones() {
    assert_eq!(pairs(700, 3), pairs(700, 3));
    assert_eq!(pairs(700, 3), pairs(900, 3)[..700]);
    assert_ne!(pairs(700, 3), pairs(700, 4));
    let made = pairs(5000, 3);
    let sources: HashSet<_> = made.iter().map(|pair| &pair.source).collect();
    assert_eq!(sources.len(), 5000);
    assert!(made.iter().all(|pair| pair.source.split(' ').count() <= 22));
}

#[test]
fn every_word_is_in_the_vocabulary() {
    let known = known();
    let made = vocabulary(&pairs(40_000, SEED));
    for (word, id) in &made {
        assert!(known.contains_key(word), "{word} ({id})");
    }
    // The vocabulary has few words that the largest corpus lacks.
    assert!(made.len() * 100 >= known.len() * 97, "{} of {}", made.len(), known.len());
    for pair in held_out() {
        for word in pair.source.split(' ').chain(pair.target.split(' ')) {
            assert!(known.contains_key(word), "{word}");
        }
    }
    assert_eq!([made["</s>"], made["<unk>"], made["<pad>"]], [0, 1, made.len() as u32 - 1]);
}
