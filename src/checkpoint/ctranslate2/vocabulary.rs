//! The vocabularies of a directory of CTranslate2, as far as a model needs them: the ids of a few tokens.

use super::files::Files;
use crate::error::Error;
use crate::printable_text::sanitized;
use serde_core::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

/// Maximum size of a vocabulary: ten times that of the largest real one.
const MAX_VOCABULARY: u64 = 64 << 20;

/// Maximum number of tokens that are kept; Whisper has two hundred.
const MAX_KEPT: usize = 4096;

/// The ids of some tokens of the first vocabulary of `stems` that there is: a list in JSON, or a text with a token
/// in each line. `keep` selects the tokens. The first of several equal tokens counts.
pub(super) fn token_ids(
    files: &Files<'_>,
    stems: &[&str],
    keep: &dyn Fn(u32, &str) -> bool,
) -> Result<HashMap<String, u32>, Error> {
    for stem in stems {
        let mut found = Found { keep, next: 0, ids: HashMap::new() };
        let file = format!("{stem}.json");
        if let Some(text) = files.json(&file, MAX_VOCABULARY)? {
            let mut parser = serde_json::Deserializer::from_str(&text);
            let parsed = (&mut found).deserialize(&mut parser).and_then(|()| parser.end());
            parsed.map_err(|error| {
                let found = format!("something else: {}", sanitized(&error.to_string(), 400));
                Error::corrupt(files.name(&file), "a list of tokens", found)
            })?;
            return Ok(found.ids);
        }
        if let Some(text) = files.text(&format!("{stem}.txt"), MAX_VOCABULARY)? {
            // A carriage return belongs to a token, unless each line has one.
            let lines = || text.strip_suffix('\n').unwrap_or(&text).split('\n');
            let windows = lines().all(|line| line.ends_with('\r'));
            for line in lines() {
                found.add(if windows { line.strip_suffix('\r').unwrap_or(line) } else { line });
            }
            return Ok(found.ids);
        }
    }
    let file = files.name(&format!("{}.json", stems.first().unwrap_or(&"")));
    let names: Vec<String> = stems.iter().map(|stem| format!("{stem}.txt")).collect();
    let expected = format!("a vocabulary here or in {}", names.join(", "));
    Err(Error::not_found(file, expected, "no such file"))
}

/// Reads a list of tokens and keeps the ids of some.
struct Found<'k> {
    keep: &'k dyn Fn(u32, &str) -> bool,
    next: u32,
    ids: HashMap<String, u32>,
}

impl Found<'_> {
    fn add(&mut self, token: &str) {
        if (self.keep)(self.next, token) && self.ids.len() < MAX_KEPT {
            self.ids.entry(token.to_owned()).or_insert(self.next);
        }
        self.next = self.next.saturating_add(1);
    }
}

impl<'de> DeserializeSeed<'de> for &mut Found<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Found<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tokens")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(token) = list.next_element::<std::borrow::Cow<'_, str>>()? {
            if self.next == u32::MAX {
                return Err(A::Error::custom("too many tokens"));
            }
            self.add(&token);
        }
        Ok(())
    }
}
