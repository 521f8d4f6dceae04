//! A file of settings: `config.json`, `tokenizer_config.json` and those beside them.

use super::read_file::{parse, read_file};
use crate::error::{Error, path_text};
use crate::limits::{self, FileLimit};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A file of settings: a JSON object.
///
/// ```
/// use simdformer_tokenize::{FileLimit, Settings};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/doc"));
/// let config = Settings::from_file(directory, "config.json", FileLimit::CONFIG)?.expect("a config");
/// assert_eq!(config.text("model_type")?, Some("marian"));
/// assert!(config.number("model_type", 7).is_err());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Settings {
    path: PathBuf,
    keys: Map<String, Value>,
}

impl Settings {
    /// No settings, of the file `name` of `folder`, which does not exist.
    pub(super) fn empty(folder: &Path, name: &str) -> Self {
        Self { path: folder.join(name), keys: Map::new() }
    }

    /// Reads the file `name` of `folder`, if it exists.
    ///
    /// # Errors
    /// The file cannot be read, is no JSON object, or is larger than `most`.
    pub fn from_file(folder: &Path, name: &str, most: FileLimit) -> Result<Option<Self>, Error> {
        let path = folder.join(name);
        let Some(bytes) = read_file(&path, most.bytes)? else { return Ok(None) };
        Self::parse(path, &bytes, most).map(Some)
    }

    /// The settings in the text of the file `path`.
    pub(super) fn parse(path: PathBuf, bytes: &[u8], most: FileLimit) -> Result<Self, Error> {
        match parse(bytes, most) {
            Ok(Value::Object(keys)) => Ok(Self { path, keys }),
            Ok(found) => Err(Error::corrupt(path_text(&path), "a JSON object", short(&found))),
            Err(error) => Err(error.inside(path.display())),
        }
    }

    /// The settings in the object at `key`.
    ///
    /// # Errors
    /// There is no object at `key`.
    pub fn inside(&self, key: &str) -> Result<Self, Error> {
        match self.get(key) {
            Some(Value::Object(keys)) => Ok(Self { path: self.path.clone(), keys: keys.clone() }),
            found => Err(self.wrong(key, "an object of settings", found.unwrap_or(&Value::Null))),
        }
    }

    /// The value at `key`, unless it is null.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// The text at `key`.
    ///
    /// # Errors
    /// Another value is there.
    pub fn text(&self, key: &str) -> Result<Option<&str>, Error> {
        let wrong = |value| self.wrong(key, "a text", value);
        self.get(key).map(|value| value.as_str().ok_or_else(|| wrong(value))).transpose()
    }

    /// A token: a string, or an object that contains it.
    pub(crate) fn token(&self, key: &str, default: &str) -> Result<String, Error> {
        match self.get(key) {
            None => Ok(default.to_owned()),
            Some(value) => match value.as_str().or_else(|| value.get("content")?.as_str()) {
                Some(text) => {
                    token(text).map_err(|error| error.inside(self.place(key)))?;
                    Ok(text.to_owned())
                }
                None => Err(self.wrong(key, "a token's text", value)),
            },
        }
    }

    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool, Error> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(self.wrong(key, "true or false", value)),
        }
    }

    /// The whole number at `key`, from 0 to `most`.
    ///
    /// # Errors
    /// Another value is there.
    pub fn number(&self, key: &str, most: u32) -> Result<Option<u32>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().filter(|&number| number <= u64::from(most)) {
            Some(number) => Ok(Some(number as u32)),
            None => Err(self.wrong(key, &format!("a number from 0 to {most}"), value)),
        }
    }

    /// `added_tokens_decoder`: ids, the texts of their tokens, and whether each token includes the spaces before it.
    pub(crate) fn added(&self) -> Result<Vec<(u32, String, bool)>, Error> {
        const KEY: &str = "added_tokens_decoder";
        let Some(value) = self.get(KEY) else { return Ok(Vec::new()) };
        let expected = "an object of ids to tokens";
        let Some(tokens) = value.as_object() else { return Err(self.wrong(KEY, expected, value)) };
        let (most, found) = (limits::ADDED_TOKENS, tokens.len());
        if found > most {
            return Err(Error::corrupt(self.place(KEY), format!("at most {most} tokens"), found));
        }
        tokens
            .iter()
            .map(|(id, entry)| {
                let id = id.parse().ok().filter(|&id: &u32| id < limits::ADDED_ID);
                let text = entry.get("content").and_then(Value::as_str).filter(|t| !t.is_empty());
                let (Some(id), Some(text)) = (id, text) else {
                    return Err(self.wrong(KEY, expected, entry));
                };
                let left = match entry.get("lstrip") {
                    None | Some(Value::Null) => false,
                    Some(Value::Bool(left)) => *left,
                    Some(found) => {
                        let expected = format!("true or false for lstrip of {text:?}");
                        return Err(self.wrong(KEY, &expected, found));
                    }
                };
                token(text).map_err(|error| error.inside(self.place(KEY)))?;
                Ok((id, text.to_owned(), left))
            })
            .collect()
    }

    /// The error that `found` is at `key`, where `expected` is needed: the operand is the file and the key.
    #[must_use]
    pub fn wrong(&self, key: &str, expected: &str, found: &Value) -> Error {
        Error::corrupt(self.place(key), expected, short(found))
    }

    /// The file and the key.
    fn place(&self, key: &str) -> String {
        format!("{}: {key}", self.path.display())
    }
}

/// Rejects a token that is longer than the limit.
pub(crate) fn token(text: &str) -> Result<(), Error> {
    if text.len() <= limits::TOKEN_BYTES {
        return Ok(());
    }
    let begin: String = text.chars().take(20).collect();
    let expected = format!("tokens of at most {} bytes", limits::TOKEN_BYTES);
    let found = format_args!("one of {}, which begins with {begin:?}", text.len());
    Err(Error::corrupt("", expected, found))
}

/// The first characters of a value, for an error.
pub(crate) fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
