//! Converts words to ids, for corpora that are already split into tokens.

use crate::error::{Error, corrupt, unreadable};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The word-to-id maps of both sides.
///
/// This is not a tokenizer: a text is split at spaces, and each piece must be in the vocabulary.
#[derive(Clone, Debug)]
pub struct Words {
    source: BTreeMap<String, u32>,
    target: BTreeMap<String, u32>,
}

impl Words {
    /// Reads the words of a model directory: `vocab.json`, a map from words to ids, for the target;
    /// `source_vocab.json` for the source, or `vocab.json` if it does not exist. If every entry begins with SentencePiece's
    /// mark of a space, `▁`, the entries are words, and the marks are removed.
    ///
    /// # Errors
    /// There is no `vocab.json`, or one of the two is not a map from words to ids.
    pub fn from_directory(directory: &Path) -> Result<Self, Error> {
        let target = map(&directory.join("vocab.json"))?;
        let of_source = directory.join("source_vocab.json");
        let source = if of_source.exists() { map(&of_source)? } else { target.clone() };
        Ok(Self { source, target })
    }

    /// Uses the caller's maps.
    pub const fn new(source: BTreeMap<String, u32>, target: BTreeMap<String, u32>) -> Self {
        Self { source, target }
    }

    /// The word of each target id; empty for an id without a word.
    pub fn target_words(&self) -> Vec<&str> {
        let len = self.target.values().max().map_or(0, |&id| id as usize + 1);
        let mut words = vec![""; len.min(self.target.len() * 64)];
        for (word, &id) in &self.target {
            if let Some(place) = words.get_mut(id as usize) {
                *place = word;
            }
        }
        words
    }

    /// Appends the ids of a source's words; the error is the first unknown word.
    pub(crate) fn source<'t>(&self, text: &'t str, ids: &mut Vec<u32>) -> Result<(), &'t str> {
        append(&self.source, text, ids)
    }

    /// As [`Words::source`], for a target.
    pub(crate) fn target<'t>(&self, text: &'t str, ids: &mut Vec<u32>) -> Result<(), &'t str> {
        append(&self.target, text, ids)
    }
}

fn append<'t>(
    words: &BTreeMap<String, u32>,
    text: &'t str,
    ids: &mut Vec<u32>,
) -> Result<(), &'t str> {
    for word in text.split_whitespace() {
        ids.push(*words.get(word).ok_or(word)?);
    }
    Ok(())
}

fn map(file: &Path) -> Result<BTreeMap<String, u32>, Error> {
    let text = fs::read_to_string(file).map_err(unreadable(file))?;
    let ids: BTreeMap<String, u32> = serde_json::from_str(&text).map_err(|error| {
        let found = format!("something else: {error}");
        corrupt(file.display().to_string(), "a map from words to ids", found)
    })?;
    let special = |entry: &str| entry.starts_with('<') && entry.ends_with('>');
    if ids.keys().all(|entry| entry.starts_with('▁') || special(entry)) {
        return Ok(ids.into_iter().map(|(entry, id)| (entry.replace('▁', ""), id)).collect());
    }
    Ok(ids)
}
