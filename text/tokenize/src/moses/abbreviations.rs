//! The abbreviations of a language, whose periods are part of them.

use crate::directory::Directory;
use crate::error::Error;
use crate::limits;
use std::collections::HashMap;

/// A word in each line, as Moses writes its lists.
const FILE: &str = "nonbreaking_prefixes.txt";
/// Follows a word that is an abbreviation only before a number.
const NUMERIC: &str = " #NUMERIC_ONLY#";

/// Abbreviations without their last period, and whether each is one only before a number.
#[derive(Debug, Default)]
pub(super) struct Abbreviations(HashMap<String, bool>);

impl Abbreviations {
    /// Those of a directory; none if it has no list.
    pub(super) fn from_directory(directory: &Directory) -> Result<Self, Error> {
        if !directory.has(FILE) {
            return Ok(Self::default());
        }
        let text = directory.read_text(FILE, limits::ABBREVIATIONS)?;
        let mut all = HashMap::new();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let (word, numeric) = match line.strip_suffix(NUMERIC) {
                Some(word) => (word.trim_end(), true),
                None => (line, false),
            };
            *all.entry(word.to_owned()).or_default() |= numeric;
        }
        Ok(Self(all))
    }

    /// Whether a word is an abbreviation only before a number; `None` if it is none.
    pub(super) fn find(&self, word: impl Iterator<Item = char>) -> Option<bool> {
        self.0.get(&word.collect::<String>()).copied()
    }
}
