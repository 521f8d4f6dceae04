//! The demo: sentences of the grammar, and the training settings of its model.

use super::grammar::{self, Example};
use simdformer_train::{Corpus, Reading, Words};
use std::collections::HashSet;
use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const SENTENCES: usize = 300_000;
const DEVELOPMENT: usize = 500;

/// The directory of the files that are copied next to the weights, and of the test sentences.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en")
}

/// The default output directory.
pub(crate) fn directory() -> PathBuf {
    Path::new("target").join("train").join("fr-en")
}

/// Writes `count` different sentences of the grammar, a line of JSON each.
pub(crate) fn print_sentences(count: usize, seed: u64, out: &mut dyn Write) -> io::Result<()> {
    for Example { source, target } in grammar::pairs(count, seed) {
        writeln!(out, "{}", serde_json::json!({ "source": source, "target": target }))?;
    }
    Ok(())
}

/// The training and validation corpora; neither contains a sentence of `held_out.jsonl`.
pub(crate) fn corpora(
    reading: &Reading<'_>,
    seed: u64,
) -> Result<(Corpus, Corpus), Box<dyn Error + Send + Sync>> {
    let read = |name: &str| {
        let path = folder().join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let held_out = read("held_out.jsonl")?;
    let mut sources = Vec::new();
    for line in held_out.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        sources.push(
            line["source"].as_str().ok_or("held_out.jsonl: a line has no source")?.to_owned(),
        );
    }
    let made = grammar::corpus(SENTENCES, seed, DEVELOPMENT, sources.iter().map(String::as_str));
    let words = Words::from_directory(&folder())?;
    let words: HashSet<&str> = words.target_words().into_iter().collect();
    let known = |text: &str| text.split(' ').all(|word| words.contains(word));
    let corpus = |pairs: &[Example], name: &str| -> Result<Corpus, simdformer::Error> {
        let mut lines = String::new();
        for Example { source, target } in pairs {
            // The vocabulary contains only the words that were drawn when it was created.
            if known(source) && known(target) {
                let line = serde_json::json!({ "source": source, "target": target });
                lines += &format!("{line}\n");
            }
        }
        Corpus::from_lines(lines.as_bytes(), name, reading)
    };
    Ok((corpus(&made.training, "the grammar")?, corpus(&made.development, "the grammar")?))
}
