//! Packages of Argos Translate of the demo model, and zip archives in which every part can be wrong.

use crate::ctranslate2::{Directory, Stored};
use miniz_oxide::deflate::compress_to_vec;
use serde_json::{Value, json};
use simdformer::checkpoint::Checkpoint;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// An entry of an archive, whose header may say something else than its data.
#[derive(Clone)]
pub struct Entry {
    pub name: String,
    /// 0 for none, 8 for DEFLATE.
    pub method: u16,
    pub data: Vec<u8>,
    pub crc: u32,
    pub size: u32,
    /// The place of the header that the directory states instead of the right one.
    pub at: Option<u32>,
}

impl Entry {
    pub fn new(name: &str, content: &[u8], deflated: bool) -> Self {
        let data = if deflated { compress_to_vec(content, 6) } else { content.to_vec() };
        let (name, method) = (name.to_owned(), if deflated { 8 } else { 0 });
        let crc = rawzip::crc32(content);
        Self { name, method, data, crc, size: content.len() as u32, at: None }
    }

    fn fields(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for half in [20, 0, self.method, 0, 0] {
            out.extend(half.to_le_bytes());
        }
        for word in [self.crc, self.data.len() as u32, self.size] {
            out.extend(word.to_le_bytes());
        }
        out.extend((self.name.len() as u16).to_le_bytes());
        out.extend([0; 2]);
        out
    }
}

pub fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let at = entry.at.unwrap_or(out.len() as u32);
        out.extend(b"PK\x03\x04");
        out.extend(entry.fields());
        out.extend(entry.name.as_bytes());
        out.extend(&entry.data);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(entry.fields());
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(entry.name.as_bytes());
    }
    let begin = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    for _ in 0..2 {
        out.extend((entries.len() as u16).to_le_bytes());
    }
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(begin.to_le_bytes());
    out.extend([0; 2]);
    out
}

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en")
}

/// The `metadata.json` of the demo model.
pub fn metadata() -> Value {
    json!({
        "package_version": "1.0", "argos_version": "1.5", "from_code": "fr", "from_name": "French",
        "to_code": "en", "to_name": "English",
    })
}

/// The files of a package of the demo model.
pub fn files(metadata: &Value) -> BTreeMap<String, Vec<u8>> {
    let checkpoint = Checkpoint::open(demo()).expect("the demo model");
    let directory = Directory::from_checkpoint(&checkpoint, Stored::F32);
    let text = fs::read_to_string(demo().join("vocab.json")).expect("the demo model");
    let ids: BTreeMap<String, usize> = serde_json::from_str(&text).expect("the demo model");
    let mut tokens: Vec<String> =
        (0..checkpoint.config().target_vocab).map(|id| format!("t{id}")).collect();
    for (token, id) in ids {
        tokens[id] = token;
    }
    let config = json!({
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "decoder_start_token": "<pad>",
        "add_source_bos": false, "add_source_eos": true, "layer_norm_epsilon": 1e-5,
    });
    [
        ("metadata.json", metadata.to_string().into_bytes()),
        ("README.md", b"# Demo".to_vec()),
        ("sentencepiece.model", fs::read(demo().join("source.spm")).expect("the demo model")),
        ("stanza/fr/tokenize/a.pt", vec![7; 100]),
        ("model/config.json", config.to_string().into_bytes()),
        ("model/shared_vocabulary.json", json!(tokens).to_string().into_bytes()),
        ("model/model.bin", directory.model.bytes()),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

/// The entries of a package with these files.
pub fn entries(files: &BTreeMap<String, Vec<u8>>, deflated: bool) -> Vec<Entry> {
    // The folders have entries of their own, as Python's `shutil` writes them.
    let folders = ["translate-fr_en/", "translate-fr_en/model/"];
    let folders = folders.into_iter().map(|name| Entry::new(name, b"", false));
    let place = |name: &str| format!("translate-fr_en/{name}");
    let files = files.iter().map(|(name, bytes)| Entry::new(&place(name), bytes, deflated));
    folders.chain(files).collect()
}

/// The same files in a folder.
pub fn extract(files: &BTreeMap<String, Vec<u8>>, folder: &Path) {
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("the demo model")).expect("the demo model");
        fs::write(path, bytes).expect("the demo model");
    }
}

/// A package of the demo model, compressed.
pub fn archive(metadata: &Value) -> Vec<u8> {
    zip(&entries(&files(metadata), true))
}
