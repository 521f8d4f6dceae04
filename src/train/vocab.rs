//! Words to ids, for corpora that are text already cut into tokens.

use super::run_error::RunError;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The ids of words on both sides.
///
/// This is no tokenizer: a text is cut at its spaces, and each piece must be in the vocabulary.
#[derive(Clone, Debug)]
pub struct Words {
    source: BTreeMap<String, u32>,
    target: BTreeMap<String, u32>,
}

impl Words {
    /// The words of a model's directory: `vocab.json`, a map from words to ids, for the target, and for the source
    /// `source_vocab.json`, where there is one, or else the same.
    ///
    /// # Errors
    /// There is no `vocab.json`, or one of the two is not a map from words to ids.
    pub fn read(directory: &Path) -> Result<Self, RunError> {
        let target = map(&directory.join("vocab.json"))?;
        let of_source = directory.join("source_vocab.json");
        let source = if of_source.exists() { map(&of_source)? } else { target.clone() };
        Ok(Self { source, target })
    }

    /// From maps of the caller's.
    pub const fn new(source: BTreeMap<String, u32>, target: BTreeMap<String, u32>) -> Self {
        Self { source, target }
    }

    /// The word of each id of the target; empty where an id has none.
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

    /// Appends the ids of a source's words; the first that has none is an error.
    pub(super) fn source<'t>(&self, text: &'t str, ids: &mut Vec<u32>) -> Result<(), &'t str> {
        append(&self.source, text, ids)
    }

    /// As [`Words::source`], of a target.
    pub(super) fn target<'t>(&self, text: &'t str, ids: &mut Vec<u32>) -> Result<(), &'t str> {
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

fn map(file: &Path) -> Result<BTreeMap<String, u32>, RunError> {
    let problem =
        |problem: String| RunError::Vocabulary { file: file.display().to_string(), problem };
    let text = fs::read_to_string(file).map_err(|error| problem(error.to_string()))?;
    serde_json::from_str(&text)
        .map_err(|error| problem(format!("expected a map from words to ids, found: {error}")))
}
