//! Malicious directories by name: indexes, shards, headers, JSON of every family, modules, files of other
//! programs. Each must be an error that names what is wrong.

use crate::random_model::{Dims, families};
use serde_json::{Value, json};
use simdformer::Model;
use simdformer::config::Family;
use simdformer::task_heads::SentenceHead;
use std::fs;
use std::path::{Path, PathBuf};

mod converted;
mod json;
mod weights;

use self::converted::converted;
use self::json::{configurations, families_json, generation, modules};
use self::weights::{headers, indexes, others};

/// The function that reads the directory.
#[derive(Clone, Copy, Debug)]
pub enum Reader {
    /// Opened and loaded as a model.
    Model,
    /// The pooling or classifier of hidden states is read.
    SentenceHead,
}

/// A directory, and texts that its error must contain.
#[derive(Debug)]
pub struct MaliciousDirectory {
    pub name: String,
    /// Names that end in a slash are folders.
    files: Vec<(String, Vec<u8>)>,
    /// A sparse file of this length.
    sparse: Option<(&'static str, u64)>,
    reader: Reader,
    words: Vec<String>,
}

impl MaliciousDirectory {
    fn new(name: impl Into<String>, files: Vec<(&str, Vec<u8>)>, words: &[&str]) -> Self {
        let files = files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
        let words = words.iter().map(|&words| words.to_owned()).collect();
        Self { name: name.into(), files, sparse: None, reader: Reader::Model, words }
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> usize {
        let whole: usize = self.files.iter().map(|(_, bytes)| bytes.len()).sum();
        whole + self.sparse.map_or(0, |(_, len)| len as usize)
    }

    /// Writes the directory.
    pub fn prepare(&self, root: &Path) -> PathBuf {
        let folder = root.join(self.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, bytes) in &self.files {
            let path = folder.join(name);
            if name.ends_with('/') {
                fs::create_dir_all(path).expect("a folder");
            } else {
                fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
                fs::write(path, bytes).expect("a file");
            }
        }
        if let Some((name, len)) = self.sparse {
            let file = fs::OpenOptions::new().create(true).append(true).open(folder.join(name));
            file.expect("a file").set_len(len).expect("a length");
        }
        folder
    }

    /// The error; `None` if the directory is accepted.
    pub fn find_error(&self, folder: &Path) -> Option<String> {
        match self.reader {
            Reader::Model => Model::open(folder).err().map(|error| error.to_string()),
            Reader::SentenceHead => {
                SentenceHead::open(folder, 3).err().map(|error| error.to_string())
            }
        }
    }

    /// Why the error is not good enough.
    pub fn wrong(&self, said: Option<&str>) -> Option<String> {
        let name = &self.name;
        let Some(said) = said else { return Some(format!("{name}: it got through")) };
        let missing = self.words.iter().find(|words| !said.contains(words.as_str()));
        if let Some(words) = missing {
            return Some(format!("{name}: expected {words:?} in: {said}"));
        }
        let hidden = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        if said.len() > 1500 || said.contains(hidden) {
            return Some(format!("{name}: not for a person to read: {said:?}"));
        }
        None
    }
}

fn text(text: impl Into<String>) -> Vec<u8> {
    text.into().into_bytes()
}

fn marian() -> Dims {
    Dims::small(Family::Marian)
}

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A good `config.json` of Marian.
fn config() -> (&'static str, Vec<u8>) {
    (CONFIG, text(marian().json()))
}

/// The bytes of a safetensors file.
fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

/// All directories. Their names differ.
pub fn all() -> Vec<MaliciousDirectory> {
    let mut directories = Vec::new();
    families_json(&mut directories);
    configurations(&mut directories);
    generation(&mut directories);
    headers(&mut directories);
    indexes(&mut directories);
    others(&mut directories);
    converted(&mut directories);
    modules(&mut directories);
    directories
}
