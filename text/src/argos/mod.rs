//! Packages of Argos Translate: `FILE.argosmodel`, a zip archive, or the folder that it is extracted to.
//!
//! | file | content |
//! |---|---|
//! | `metadata.json` | the languages, `from_code` and `to_code`, and `target_prefix`, a token that begins every translation |
//! | `sentencepiece.model`, or `bpe.model` | the pieces of both languages, or the codes that divide words of Moses into pieces |
//! | `model/` | a directory of CTranslate2 |
//!
//! Everything else (`stanza/`, `minisbd/`, `README.md`) is left where it is: sentences are divided by
//! [`documents::sentences`](crate::documents::sentences). The search is that of Argos: four beams, a length penalty of 0.2,
//! from 1 to 256 tokens. [`Translator::open`](crate::translator::Translator::open) opens a package like a directory.
//!
//! An archive is read in place: the weights are decompressed while they are packed, without a copy of the file in memory or on
//! disk. It is untrusted: names that leave the archive, entries that share bytes, sizes and checksums that differ from the
//! directory, and files that are larger than real ones are errors.
//!
//! ```no_run
//! use simdformer_text::translator::Translator;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // From French to Spanish through English, as Argos does it.
//! let (first, second) = (Translator::open("fr_en.argosmodel")?, Translator::open("en_es.argosmodel")?);
//! println!("{}", second.translate(&first.translate("Je suis étudiant.")?)?);
//! # Ok(()) }
//! ```

mod inflated;

use crate::Tokenizer;
use crate::error::{Error, path_text};
use inflated::FileInArchive;
use serde_json::{Map, Value, json};
use simdformer::checkpoint::{Checkpoint, ReadAt};
use simdformer_documents::archives::Zip;
use simdformer_documents::sentences::nonbreaking_prefixes;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const METADATA: &str = "metadata.json";
const PIECES: &str = "sentencepiece.model";
const CODES: &str = "bpe.model";
/// The abbreviations of the source for the words of Moses. A package has none unless it was put there.
const ABBREVIATIONS: &str = "nonbreaking_prefixes.txt";
const MODEL: &str = "model/";
const WEIGHTS: &str = "model/model.bin";
/// The files of `model/` beside the weights that are read.
const SETTINGS: [&str; 7] = [
    "config.json",
    "shared_vocabulary.json",
    "shared_vocabulary.txt",
    "source_vocabulary.json",
    "source_vocabulary.txt",
    "target_vocabulary.json",
    "target_vocabulary.txt",
];

/// The most bytes of a file that is no weights; real ones have a tenth of it.
const LONGEST: u64 = 8 << 20;
/// How many times larger than its compressed bytes a file may be, and the bytes to which that does not apply. Vocabularies
/// shrink to a fifth, weights hardly at all.
const MOST_RATIO: u64 = 24;
const SMALL: u64 = 1 << 20;

/// An opened package.
#[derive(Debug)]
pub struct Package {
    path: PathBuf,
    files: Files,
    from: String,
    to: String,
    target_prefix: Option<String>,
    /// The file of the pieces.
    pieces: &'static str,
}

#[derive(Debug)]
enum Files {
    Folder,
    /// The archive, and the folder in it, with a slash at its end.
    Archive(Mutex<Zip<File>>, String),
}

impl Package {
    /// Whether `path` is a file that begins like a zip archive, or a folder with `metadata.json` and a folder `model`.
    #[must_use]
    pub fn is_package(path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        if path.is_dir() {
            return path.join(METADATA).is_file() && path.join(MODEL).is_dir();
        }
        let mut begin = [0; 4];
        path.is_file()
            && File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok()
            && begin == *b"PK\x03\x04"
    }

    /// Opens a package and reads its metadata.
    ///
    /// # Errors
    /// It is damaged or lacks a file; it is no translation.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let files = match path.is_dir() {
            true => Files::Folder,
            false => {
                let file = File::open(path).map_err(|error| Error::unreadable(path, error))?;
                let zip = Zip::open(file).map_err(|error| inside(path, error.into()))?;
                let mut folders = zip.entries().iter().filter_map(|entry| {
                    let folder = entry.name().strip_suffix(METADATA)?;
                    (folder.matches('/').count() <= 1
                        && (folder.is_empty() || folder.ends_with('/')))
                    .then(|| folder.to_owned())
                });
                let (first, second) = (folders.next(), folders.next());
                drop(folders);
                match (first, second) {
                    (Some(folder), None) => Files::Archive(Mutex::new(zip), folder),
                    (first, _) => {
                        let found = if first.is_some() { "several" } else { "none" };
                        let expected = "a package of Argos: one folder with metadata.json";
                        return Err(Error::unsupported(path_text(path), expected, found));
                    }
                }
            }
        };
        let (from, to) = Default::default();
        let path = path.to_owned();
        let mut package = Self { path, files, from, to, target_prefix: None, pieces: PIECES };
        let metadata = package.object(METADATA)?;
        let text = |key: &str| match metadata.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(found) => {
                let found = found.to_string().chars().take(80).collect::<String>();
                Err(Error::corrupt(package.name(&format!("{METADATA}: {key}")), "a text", found))
            }
        };
        let kind = text("type")?;
        if let Some(kind) = kind.filter(|kind| kind != "translate") {
            let found = format!("{kind:?}");
            return Err(Error::unsupported(
                package.name(METADATA),
                "the type \"translate\"",
                found,
            ));
        }
        let language = |key: &str| {
            let missing =
                || Error::corrupt(package.name(METADATA), format!("a text at {key}"), "none");
            text(key)?.ok_or_else(missing)
        };
        let (from, to) = (language("from_code")?, language("to_code")?);
        let target_prefix = text("target_prefix")?;
        if !package.has(PIECES) && package.has(CODES) {
            package.pieces = CODES;
        }
        for (needed, expected) in [(package.pieces, "a file, or bpe.model"), (WEIGHTS, "a file")] {
            if !package.has(needed) {
                return Err(Error::corrupt(package.name(needed), expected, "none"));
            }
        }
        (package.from, package.to, package.target_prefix) = (from, to, target_prefix);
        Ok(package)
    }

    /// The code of the language of texts.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.from
    }

    /// The code of the language of translations.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.to
    }

    /// The model, whose configuration has the settings of Argos.
    ///
    /// # Errors
    /// The weights are damaged, or no model of CTranslate2 that [`Checkpoint::open`] opens.
    pub fn checkpoint(&self) -> Result<Checkpoint<'static>, Error> {
        let read = |name: &str| match name {
            "generation_config.json" => Ok(Some(SEARCH.as_bytes().to_vec())),
            _ => self.find(&format!("{MODEL}{name}")).map_err(io::Error::other),
        };
        let place = self.name(MODEL.trim_end_matches('/'));
        Ok(Checkpoint::from_ctranslate2(&place, self.weights()?, &read)?)
    }

    /// The tokenizer. Its source language is that of the package.
    ///
    /// # Errors
    /// The file of the pieces or a vocabulary is damaged; the vocabulary lacks the target prefix.
    pub fn tokenizer(&self) -> Result<Tokenizer, Error> {
        let mut files = BTreeMap::new();
        for name in SETTINGS {
            if let Some(bytes) = self.find(&format!("{MODEL}{name}"))? {
                files.insert(name.to_owned(), bytes);
            }
        }
        // It was there when the package was opened.
        let gone = || Error::corrupt(path_text(&self.path), self.pieces, "no such file any more");
        let pieces = self.find(self.pieces)?.ok_or_else(gone)?;
        let mut settings = json!({"src_lang": self.from, "tgt_lang": self.to});
        if let Some(prefix) = &self.target_prefix {
            settings["target_prefix"] = json!(prefix);
        }
        files.insert("tokenizer_config.json".to_owned(), settings.to_string().into_bytes());
        // A directory of CTranslate2 is recognized by the file.
        files.insert("model.bin".to_owned(), Vec::new());
        files.insert(self.pieces.to_owned(), pieces);
        if self.pieces == CODES {
            let own = self.find(ABBREVIATIONS)?;
            let list = own.unwrap_or_else(|| nonbreaking_prefixes(Some(&self.from)).into_bytes());
            files.insert(ABBREVIATIONS.to_owned(), list);
        }
        Ok(Tokenizer::from_files(&self.path, files)?)
    }

    /// What errors call a file.
    fn name(&self, file: &str) -> String {
        self.path.join(file).display().to_string()
    }

    fn has(&self, name: &str) -> bool {
        match &self.files {
            Files::Folder => self.path.join(name).is_file(),
            Files::Archive(zip, folder) => {
                let zip = zip.lock().unwrap_or_else(PoisonError::into_inner);
                position(&zip, folder, name).is_some()
            }
        }
    }

    /// A whole file that is no weights; `None` if there is none.
    fn find(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        match &self.files {
            Files::Folder => {
                let path = self.path.join(name);
                if !path.is_file() {
                    return Ok(None);
                }
                let unreadable = |error| Error::unreadable(&path, error);
                let mut bytes = Vec::new();
                let file = File::open(&path).map_err(unreadable)?;
                file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
                self.check_length(name, bytes.len() as u64).map(|()| Some(bytes))
            }
            Files::Archive(zip, folder) => {
                let mut zip = zip.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(index) = position(&zip, folder, name) else { return Ok(None) };
                let entry = &zip.entries()[index];
                self.check_length(name, entry.size())?;
                self.check_ratio(name, entry.size(), entry.data().end - entry.data().start)?;
                zip.read_entry(index).map(Some).map_err(|error| inside(&self.path, error.into()))
            }
        }
    }

    /// A file that is a JSON object.
    fn object(&self, name: &str) -> Result<Map<String, Value>, Error> {
        let Some(bytes) = self.find(name)? else {
            return Err(Error::corrupt(self.name(name), "a file", "none"));
        };
        serde_json::from_slice(&bytes)
            .map_err(|error| Error::corrupt(self.name(name), "a JSON object", error))
    }

    fn weights(&self) -> Result<Weights, Error> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |error| Error::unreadable(&path, error)
        };
        match &self.files {
            Files::Folder => {
                let path = self.path.join(WEIGHTS);
                let file = File::open(&path).map_err(unreadable(&path))?;
                let length = file.metadata().map_err(unreadable(&path))?.len();
                Ok(Weights::File(Mutex::new(file), length))
            }
            Files::Archive(zip, folder) => {
                let zip = zip.lock().unwrap_or_else(PoisonError::into_inner);
                let entry = position(&zip, folder, WEIGHTS).map(|index| &zip.entries()[index]);
                let Some(entry) = entry else {
                    return Err(Error::corrupt(self.name(WEIGHTS), "a file", "none"));
                };
                self.check_ratio(WEIGHTS, entry.size(), entry.data().end - entry.data().start)?;
                let file = File::open(&self.path).map_err(unreadable(&self.path))?;
                let opened = FileInArchive::open(file, entry, &self.name(WEIGHTS))?;
                Ok(Weights::InArchive(opened))
            }
        }
    }

    fn check_length(&self, name: &str, length: u64) -> Result<(), Error> {
        if length <= LONGEST {
            return Ok(());
        }
        Err(Error::unsupported(self.name(name), format!("at most {LONGEST} bytes"), "more"))
    }

    /// Checks that a file is not much larger than its compressed bytes.
    fn check_ratio(&self, name: &str, size: u64, compressed: u64) -> Result<(), Error> {
        let most = SMALL.max(MOST_RATIO.saturating_mul(compressed));
        if size <= most {
            return Ok(());
        }
        let expected = format!("at most {most} bytes, which compress to {compressed}");
        Err(Error::unsupported(self.name(name), expected, size))
    }
}

/// The search of Argos and of CTranslate2's `translate_batch`, in the keys of transformers. The maximum length counts the token
/// that a target begins with.
const SEARCH: &str = r#"{
    "num_beams": 4, "length_penalty": 0.2, "early_stopping": true, "max_length": 257, "min_new_tokens": 1
}"#;

/// The model of a directory or of a package of Argos.
///
/// # Errors
/// As of [`Checkpoint::open`] and [`Package::checkpoint`].
pub fn open_checkpoint(path: impl AsRef<Path>) -> Result<Checkpoint<'static>, Error> {
    let path = path.as_ref();
    match Package::is_package(path) {
        true => Package::open(path)?.checkpoint(),
        false => Ok(Checkpoint::open(path)?),
    }
}

/// The tokenizer of a directory or of a package of Argos.
///
/// # Errors
/// As of [`Tokenizer::from_dir`] and [`Package::tokenizer`].
pub fn open_tokenizer(path: impl AsRef<Path>) -> Result<Tokenizer, Error> {
    let path = path.as_ref();
    match Package::is_package(path) {
        true => Package::open(path)?.tokenizer(),
        false => Ok(Tokenizer::from_dir(path)?),
    }
}

/// The place of a file of the package among the entries.
fn position(zip: &Zip<File>, folder: &str, name: &str) -> Option<usize> {
    zip.entries().iter().position(|entry| entry.name().strip_prefix(folder) == Some(name))
}

/// An error of the archive, whose operand gets the path.
fn inside(path: &Path, error: Error) -> Error {
    let place = |operand: Box<str>| format!("{}: {operand}", path.display()).into_boxed_str();
    match error {
        Error::Unsupported { operand, expected, found } => {
            Error::Unsupported { operand: place(operand), expected, found }
        }
        Error::Corrupt { operand, expected, found } => {
            Error::Corrupt { operand: place(operand), expected, found }
        }
        other => other,
    }
}

/// The weights of a package.
enum Weights {
    File(Mutex<File>, u64),
    InArchive(FileInArchive),
}

impl ReadAt for Weights {
    fn length(&self) -> u64 {
        match self {
            Self::File(_, length) => *length,
            Self::InArchive(file) => file.length(),
        }
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file, _) => {
                // Every read sets the cursor first.
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.seek(SeekFrom::Start(offset))?;
                file.read_exact(out)
            }
            Self::InArchive(file) => file.read_exact_at(out, offset),
        }
    }
}
