//! The files of a checkpoint directory.

pub(crate) mod family;

use crate::error::{Error, path_text};
use crate::limits::{self, FileLimit};
use core::fmt;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

/// A directory and its settings.
pub(crate) struct Directory {
    path: PathBuf,
    /// `config.json`; empty if there is none.
    pub(crate) config: Settings,
    /// `tokenizer_config.json`; empty if there is none.
    pub(crate) tokenizer: Settings,
}

/// A file of settings: a JSON object.
///
/// ```
/// use simdformer_tokenize::{FileLimit, Settings};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/doc"));
/// let config = Settings::read(directory, "config.json", FileLimit::CONFIG)?.expect("a config");
/// assert_eq!(config.text("model_type")?, Some("marian"));
/// assert!(config.number("model_type", 7).is_err());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Settings {
    path: PathBuf,
    keys: Map<String, Value>,
}

impl Directory {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let mut directory = Self {
            path: path.to_owned(),
            config: Settings { path: path.join("config.json"), keys: Map::new() },
            tokenizer: Settings { path: path.join("tokenizer_config.json"), keys: Map::new() },
        };
        directory.config = directory.settings("config.json", FileLimit::CONFIG)?;
        directory.tokenizer = directory.settings("tokenizer_config.json", limits::SETTINGS)?;
        Ok(directory)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).is_file()
    }

    /// The error if none of the files of a family exists.
    pub(crate) fn missing(&self, expected: &[&str]) -> Error {
        Error::not_found(&self.path, expected.join(" or "), "none")
    }

    /// Reads a whole file of at most `most` bytes.
    pub(crate) fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, Error> {
        let path = self.path(name);
        read(&path, most)?.ok_or_else(|| Error::not_found(&path, "a file", "none"))
    }

    /// Reads a JSON file.
    pub(crate) fn json(&self, name: &str, most: FileLimit) -> Result<Value, Error> {
        let bytes = self.read(name, most.bytes)?;
        parse(&bytes, most).map_err(|error| error.inside(self.path(name).display()))
    }

    fn settings(&self, name: &str, most: FileLimit) -> Result<Settings, Error> {
        let path = self.path(name);
        Ok(Settings::read(&self.path, name, most)?.unwrap_or(Settings { path, keys: Map::new() }))
    }

    /// Reads a vocabulary: an object from texts to ids, whose ids are dense or almost dense.
    pub(crate) fn vocabulary(&self, name: &str) -> Result<HashMap<String, u32>, Error> {
        let entries = match self.json(name, limits::VOCABULARY)? {
            Value::Object(entries) => entries,
            found => return Err(self.wrong(name, "an object of texts to ids", short(&found))),
        };
        // The limit of ids, because tables are indexed by them.
        let limit = 2 * entries.len() as u64 + 1024;
        entries
            .into_iter()
            .map(|(text, id)| {
                token(&text).map_err(|error| error.inside(self.path(name).display()))?;
                match id.as_u64().filter(|&id| id < limit) {
                    Some(id) => Ok((text, id as u32)),
                    None => Err(self.wrong(
                        name,
                        format!("ids from 0 to {}", limit - 1),
                        format_args!("{id} for {text:?}"),
                    )),
                }
            })
            .collect()
    }

    pub(crate) fn wrong(
        &self,
        name: &str,
        expected: impl Into<Box<str>>,
        found: impl fmt::Display,
    ) -> Error {
        Error::corrupt(path_text(&self.path(name)), expected, found)
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

/// Parses JSON with at most `most` values.
fn parse(bytes: &[u8], most: FileLimit) -> Result<Value, Error> {
    let found = limits::values(bytes);
    if found > most.values {
        return Err(Error::corrupt("", format!("at most {} values", most.values), found));
    }
    let no_json = |error| Error::corrupt("", "JSON", format_args!("an error: {error}"));
    serde_json::from_slice(bytes).map_err(no_json)
}

/// The kind of a path that is not a regular file.
fn kind(about: &fs::Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = about.file_type();
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if about.is_dir() { "a directory" } else { "none" }
}

/// Reads a whole file of at most `most` bytes, if it exists.
///
/// A pipe is not opened, because opening it waits for a writer. A process that replaces the file by a pipe between
/// the two checks can still make the call wait. It cannot make the call read a pipe or a device.
fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, Error> {
    let io = |error| Error::unreadable(path, error);
    let wrong = |expected: &str, found: &str| Err(Error::corrupt(path_text(path), expected, found));
    let not_regular = |about: &fs::Metadata| wrong("a regular file", kind(about));
    match fs::metadata(path) {
        Ok(about) if about.is_file() => (),
        Ok(about) => return not_regular(&about),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    }
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let about = file.metadata().map_err(io)?;
    if !about.is_file() {
        return not_regular(&about);
    }
    // The length is usually known. If the file system reports a wrong length, reading ends at the limit.
    if about.len() > most {
        return wrong(&format!("at most {most} bytes"), &about.len().to_string());
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > most {
        return wrong(&format!("at most {most} bytes"), "more");
    }
    // A failed download may leave such a file.
    if bytes.starts_with(b"version https://git-lfs") {
        return wrong("the file itself", "a Git-LFS pointer: `git lfs pull` fetches it");
    }
    let begin = bytes[..bytes.len().min(15)].to_ascii_lowercase();
    if begin.starts_with(b"<!doctype html") || begin.starts_with(b"<html") {
        return wrong("the file itself", "a web page: the download was refused");
    }
    Ok(Some(bytes))
}

/// The folder of the tokenizer in a model's directory: that of the transformer, which sentence-transformers may store in a
/// subfolder that `modules.json` names; otherwise the directory itself.
///
/// # Errors
/// `modules.json` cannot be read.
pub fn tokenizer_folder(directory: &Path) -> Result<PathBuf, Error> {
    let whole = || Ok(directory.to_owned());
    if directory.join("config.json").exists() {
        return whole();
    }
    let Some(text) = read(&directory.join("modules.json"), limits::MODULES.bytes)? else {
        return whole();
    };
    let modules = parse(&text, limits::MODULES)
        .map_err(|error| error.inside(directory.join("modules.json").display()))?;
    let is = |module: &&Value| {
        module["type"].as_str().is_some_and(|kind| kind.ends_with(".Transformer"))
    };
    let found = modules.as_array().and_then(|modules| modules.iter().find(is));
    let Some(path) = found.and_then(|module| module["path"].as_str()) else { return whole() };
    let mut parts = Path::new(path).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => Ok(directory.join(path)),
        _ => whole(),
    }
}

impl Settings {
    /// Reads the file `name` of `folder`, if it exists.
    ///
    /// # Errors
    /// The file cannot be read, is no JSON object, or is larger than `most`.
    pub fn read(folder: &Path, name: &str, most: FileLimit) -> Result<Option<Self>, Error> {
        let path = folder.join(name);
        let Some(bytes) = read(&path, most.bytes)? else { return Ok(None) };
        match parse(&bytes, most) {
            Ok(Value::Object(keys)) => Ok(Some(Self { path, keys })),
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
