//! Aligned French-English sentences from a small grammar, on which the demo model is trained. They are generated, not
//! stored.
//!
//! The languages differ in word order: adjectives, object pronouns, adverbs, negation, inversion and the possessor
//! have other positions in English, so the model needs attention and cannot copy. Each source has one translation.
//!
//! A sentence is a function of the seed and its number, so the corpus is the same on every machine; `train --sentences 100`
//! prints a hundred. Modules from large to small: `sentences.rs` and `questions.rs`, `clauses.rs`, `phrases.rs`, `lexicon.rs`; `spelling.rs` is applied last.

mod clauses;
mod draws;
mod lexicon;
mod phrases;
mod questions;
mod sentences;
mod spelling;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};

/// Longer sentences, in words, are not in the corpus.
const LONGEST: usize = 22;
/// How often a sentence of [`fixed`] occurs in an epoch.
const FIXED_REPEATS: usize = 12;

/// A French sentence and its English translation, words separated by spaces, without the end token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Example {
    /// French.
    pub(crate) source: String,
    /// English.
    pub(crate) target: String,
}

/// Training and validation sentences. No sentence is in both, also when its final full stop is ignored.
pub(crate) struct Corpus {
    /// One epoch, in the order of generation; the fixed sentences come last, several times.
    pub(crate) training: Vec<Example>,
    /// The first generated sentences that are not fixed.
    pub(crate) development: Vec<Example>,
}

/// Sentence number `number` of the grammar under `seed`. It may be longer than the corpus allows.
pub(crate) fn sentence(seed: u64, number: u64) -> Example {
    let said = phrases::Speaker::new(seed, number).sentence();
    Example { source: spelling::french(&said.french), target: spelling::english(&said.english) }
}

/// Short answers, names and greetings, which every model of this language should translate.
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

/// `count` pairs with different sources: [`fixed`] first, then those of the grammar by number.
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

/// The sentence without its full stop.
pub(crate) fn bare(source: &str) -> &str {
    source.strip_suffix(" .").unwrap_or(source)
}

/// `count` [`pairs`] without those of `held_out` (sources); `development` of them are the validation set.
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
