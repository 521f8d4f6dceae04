//! The files of a checkpoint directory.

use super::read_file::{parse, read_file};
use super::settings::{Settings, short, token};
use crate::error::{Error, path_text};
use crate::limits::{self, FileLimit};
use core::fmt;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

/// The vocabulary of the source, or of both languages.
const VOCABULARY: &str = "vocab.json";

/// A directory and its settings.
pub(crate) struct Directory {
    path: PathBuf,
    /// Its files by their names; `None` if they are in the file system.
    files: Option<BTreeMap<String, Vec<u8>>>,
    /// `config.json`; empty if there is none.
    pub(crate) config: Settings,
    /// `tokenizer_config.json`; empty if there is none.
    pub(crate) tokenizer: Settings,
}

impl Directory {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        Self::with_files(path, None)
    }

    /// A directory in memory; errors call it `path`.
    pub(crate) fn in_memory(path: &Path, files: BTreeMap<String, Vec<u8>>) -> Result<Self, Error> {
        Self::with_files(path, Some(files))
    }

    fn with_files(path: &Path, files: Option<BTreeMap<String, Vec<u8>>>) -> Result<Self, Error> {
        let empty = |name| Settings::empty(path, name);
        let (config, tokenizer) = (empty("config.json"), empty("tokenizer_config.json"));
        let mut directory = Self { path: path.to_owned(), files, config, tokenizer };
        let read = |name: &str, most: FileLimit| {
            let bytes = directory.find(name, most.bytes)?;
            bytes.map(|bytes| Settings::parse(path.join(name), &bytes, most)).transpose()
        };
        let config = read("config.json", FileLimit::CONFIG)?;
        let tokenizer = read("tokenizer_config.json", limits::SETTINGS)?;
        directory.config = config.unwrap_or(directory.config);
        directory.tokenizer = tokenizer.unwrap_or(directory.tokenizer);
        Ok(directory)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        match &self.files {
            Some(files) => files.contains_key(name),
            None => self.path(name).is_file(),
        }
    }

    /// As [`read_file`](Self::read_file); `None` if there is no such file.
    fn find(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path(name);
        let Some(files) = &self.files else { return read_file(&path, most) };
        match files.get(name) {
            Some(bytes) if bytes.len() as u64 > most => {
                let expected = format!("at most {most} bytes");
                Err(Error::corrupt(path_text(&path), expected, bytes.len()))
            }
            found => Ok(found.cloned()),
        }
    }

    /// The error if none of the files of a family exists.
    pub(crate) fn missing(&self, expected: &[&str]) -> Error {
        Error::not_found(&self.path, expected.join(" or "), "none")
    }

    /// Reads a whole file of at most `most` bytes.
    pub(crate) fn read_file(&self, name: &str, most: u64) -> Result<Vec<u8>, Error> {
        let found = self.find(name, most)?;
        found.ok_or_else(|| Error::not_found(&self.path(name), "a file", "none"))
    }

    /// Reads a whole text file of at most `most` bytes.
    pub(crate) fn read_text(&self, name: &str, most: u64) -> Result<String, Error> {
        let text = String::from_utf8(self.read_file(name, most)?);
        text.map_err(|error| self.wrong(name, "UTF-8", error.utf8_error()))
    }

    /// Reads a JSON file.
    pub(crate) fn json(&self, name: &str, most: FileLimit) -> Result<Value, Error> {
        let bytes = self.read_file(name, most.bytes)?;
        parse(&bytes, most).map_err(|error| error.inside(self.path(name).display()))
    }

    /// Whether there is a vocabulary of the source, `vocab.json` or that of CTranslate2.
    pub(crate) fn has_vocabulary(&self) -> bool {
        self.has(VOCABULARY) || self.has_converted_vocabulary()
    }

    /// Reads a vocabulary: an object from texts to ids, whose ids are dense or almost dense. A directory of CTranslate2
    /// has a list in place of it.
    pub(crate) fn vocabulary(&self, name: &str) -> Result<HashMap<String, u32>, Error> {
        if !self.has(name)
            && let Some(found) = self.converted_vocabulary(name != VOCABULARY)?
        {
            return Ok(found);
        }
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
    let Some(text) = read_file(&directory.join("modules.json"), limits::MODULES.bytes)? else {
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
