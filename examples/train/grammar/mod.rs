//! Aligned French-English sentences from a small grammar: what the demo model is trained on, made and not kept.
//!
//! The difference in word order is the point: adjectives, object pronouns, adverbs, negation, inversion and the possessor
//! all stand elsewhere in English, so that a model must attend and not copy. A source has one translation.
//!
//! The rules are those of `models/fr-en/grammar.py`, which draws from Python's generator. Here a sentence is a function
//! of the seed and its number, so that the corpus is the same on every machine; `tests/golden/generate_grammar.py` feeds
//! the Python these draws, and `tests/grammar.rs` compares word for word. From large to small: `sentences.rs` and
//! `questions.rs`, `clauses.rs`, `phrases.rs`, `lexicon.rs`; `spelling.rs` at the end.

mod clauses;
mod draws;
mod lexicon;
mod phrases;
mod questions;
mod sentences;
mod spelling;

use std::collections::{BTreeMap, HashSet};

/// More words than this make no sentence of the corpus.
const LONGEST: usize = 22;
/// How often a sentence of [`fixed`] comes in an epoch.
const FIXED_REPEATS: usize = 12;

/// A French sentence and its English, words between spaces, without the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Example {
    /// French.
    pub(crate) source: String,
    /// English.
    pub(crate) target: String,
}

/// What is trained on and what is looked at while training. No sentence is in both, with a full stop or without.
pub(crate) struct Corpus {
    /// One epoch, in the order in which it was made; the fixed sentences come last, several times.
    pub(crate) training: Vec<Example>,
    /// The first sentences that were made and are not fixed.
    pub(crate) development: Vec<Example>,
}

/// Sentence number `number` of the grammar under `seed`. It may be longer than the corpus likes.
pub(crate) fn sentence(seed: u64, number: u64) -> Example {
    let said = phrases::Speaker::new(seed, number).sentence();
    Example { source: spelling::french(&said.french), target: spelling::english(&said.english) }
}

/// Short answers, names, greetings: every model of this language must know them.
pub(crate) fn fixed() -> Vec<Example> {
    let words = &lexicon::WORDS;
    let mut found: Vec<(String, String)> = Vec::new();
    let mut add = |french: String, english: String| {
        if found.iter().all(|pair| pair.0 != french) {
            found.push((french, english));
        }
    };
    for (french, english) in &words.fixed {
        add((*french).to_string(), (*english).to_string());
    }
    for (french, whose) in [("je m'", "my"), ("il s'", "his"), ("elle s'", "her")] {
        for (name, _) in &words.names {
            add(format!("{french} appelle {name}"), format!("{whose} name is {name}"));
        }
    }
    for noun in words.nouns_of(&["time"]) {
        let which = phrases::of(noun.gender, "quel", "quelle");
        add(format!("{which} {}", noun.french), format!("what {}", noun.english));
    }
    let statements: Vec<_> = found.iter().filter(|pair| !pair.0.ends_with('?')).cloned().collect();
    found.extend(
        statements
            .into_iter()
            .map(|(french, english)| (format!("{french} ."), format!("{english} ."))),
    );
    found.into_iter().map(|(source, target)| Example { source, target }).collect()
}

/// `count` pairs of different sources, [`fixed`] first, then the grammar's in the order of their numbers.
pub(crate) fn pairs(count: usize, seed: u64) -> Vec<Example> {
    let mut found = fixed();
    found.truncate(count);
    let mut seen: HashSet<String> = found.iter().map(|pair| pair.source.clone()).collect();
    let mut number = 0;
    while found.len() < count {
        let pair = sentence(seed, number);
        number += 1;
        let words = pair.source.split(' ').count();
        if words <= LONGEST && seen.insert(pair.source.clone()) {
            found.push(pair);
        }
    }
    found
}

/// A sentence with and without its full stop is one sentence.
pub(crate) fn bare(source: &str) -> &str {
    source.strip_suffix(" .").unwrap_or(source)
}

/// `count` [`pairs`] without those of `held_out` (sources), `development` of them put aside.
pub(crate) fn corpus<'a>(
    count: usize,
    seed: u64,
    development: usize,
    held_out: impl IntoIterator<Item = &'a str>,
) -> Corpus {
    let held_out: HashSet<&str> = held_out.into_iter().map(bare).collect();
    let fixed: HashSet<String> =
        fixed().iter().map(|pair| bare(&pair.source).to_string()).collect();
    let mut aside: HashSet<String> = HashSet::new();
    let (mut training, mut put_aside, mut always) = (Vec::new(), Vec::new(), Vec::new());
    for pair in pairs(count, seed) {
        let key = bare(&pair.source);
        if fixed.contains(key) {
            always.push(pair);
            continue;
        }
        if held_out.contains(key) || aside.contains(key) {
            continue;
        }
        if put_aside.len() < development {
            aside.insert(key.to_string());
            put_aside.push(pair);
        } else {
            training.push(pair);
        }
    }
    for _ in 0..FIXED_REPEATS {
        training.extend_from_slice(&always);
    }
    Corpus { training, development: put_aside }
}

/// The words of both sides with their ids, in Marian's layout: `</s>` 0, `<unk>` 1, words in the order of their code
/// points, `<pad>` last.
pub(crate) fn vocabulary<'a>(
    pairs: impl IntoIterator<Item = &'a Example>,
) -> BTreeMap<String, u32> {
    let mut words: BTreeMap<String, u32> = BTreeMap::new();
    for pair in pairs {
        for word in pair.source.split(' ').chain(pair.target.split(' ')) {
            if !words.contains_key(word) {
                words.insert(word.to_string(), 0);
            }
        }
    }
    for (word, id) in words.iter_mut().zip(2..) {
        *word.1 = id;
    }
    let pad = words.len() as u32 + 2;
    words.extend([("</s>".to_string(), 0), ("<unk>".to_string(), 1), ("<pad>".to_string(), pad)]);
    words
}
