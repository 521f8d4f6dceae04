//! Directories of CTranslate2: a valid `model.bin` with changed variables or bytes, or arbitrary bytes; settings and
//! vocabularies. The result must be an `Err`, or a checkpoint whose tensors can be read. Everything else is a bug.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use simdformer::checkpoint::Checkpoint;
use simdformer::config::Config;
use simdformer::kernels::Isa;
use simdformer::{LoadOptions, Model};
use simdformer_testing::ctranslate2::{Directory, Stored, Variable};
use simdformer_testing::temporary_folder::TemporaryFolder;
use std::fs;
use std::sync::OnceLock;

#[derive(Debug, arbitrary::Arbitrary)]
struct Input<'a> {
    stored: u8,
    version: Option<u8>,
    changes: Vec<Change<'a>>,
    /// Changes of the bytes of the whole file.
    bytes: Vec<(u32, u8)>,
    keep: Option<u32>,
    /// In place of all that.
    file: Option<&'a [u8]>,
    config: Option<&'a str>,
    vocabulary: Option<&'a str>,
}

/// A change of a variable.
#[derive(Debug, arbitrary::Arbitrary)]
enum Change<'a> {
    Name(u8, &'a str),
    Kind(u8, u8),
    Shape(u8, Vec<u16>),
    Number(u8, f32),
    Remove(u8),
    Copy(u8, &'a str),
    Alias(&'a str, u8),
}

const CONFIG: &str = r#"{"model_type": "t5", "d_model": 4, "num_layers": 1, "num_heads": 2, "d_kv": 2, "d_ff": 6,
    "vocab_size": 8, "decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 4,
    "relative_attention_max_distance": 8}"#;

fn valid() -> &'static [Directory] {
    static VALID: OnceLock<Vec<Directory>> = OnceLock::new();
    VALID.get_or_init(|| {
        let config = Config::from_hugging_face(CONFIG).expect("a good configuration");
        let folder = TemporaryFolder::new("ctranslate2_fuzz_checkpoint");
        let model = Model::from_fn(config, |_, _, out| {
            out.iter_mut().zip(1u8..).for_each(|(x, i)| *x = 1.0 / f32::from(i));
            Ok(())
        });
        model.expect("a model").save(folder.path()).expect("saved");
        let checkpoint = Checkpoint::open(folder.path()).expect("a checkpoint");
        Stored::ALL.map(|stored| Directory::from_checkpoint(&checkpoint, stored)).to_vec()
    })
}

fn change(variables: &mut Vec<Variable>, aliases: &mut Vec<(String, String)>, change: &Change<'_>) {
    let count = variables.len().max(1);
    let at = |index: u8| usize::from(index) % count;
    match change {
        Change::Name(index, name) => {
            variables.iter_mut().skip(at(*index)).take(1).for_each(|v| v.name = (*name).into())
        }
        Change::Kind(index, kind) => {
            variables.iter_mut().skip(at(*index)).take(1).for_each(|v| v.kind = *kind)
        }
        Change::Shape(index, shape) => {
            let shape = shape.iter().take(200).map(|&size| size.into());
            variables
                .iter_mut()
                .skip(at(*index))
                .take(1)
                .for_each(|v| v.shape = shape.clone().collect())
        }
        Change::Number(index, number) => {
            for variable in variables.iter_mut().skip(at(*index)).take(1) {
                variable
                    .bytes
                    .iter_mut()
                    .zip(number.to_le_bytes())
                    .for_each(|(to, byte)| *to = byte);
            }
        }
        Change::Remove(index) if !variables.is_empty() => drop(variables.remove(at(*index))),
        Change::Remove(_) => (),
        Change::Copy(index, name) => {
            let copy = variables.get(at(*index)).cloned();
            variables.extend(copy.map(|copy| Variable { name: (*name).into(), ..copy }));
        }
        Change::Alias(name, index) => {
            let of = variables.get(at(*index)).map(|variable| variable.name.clone());
            aliases.extend(of.map(|of| ((*name).to_owned(), of)));
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    let stored = usize::from(input.stored) % valid().len();
    let mut directory = valid()[stored].clone();
    directory.model.version = input.version.map_or(6, u32::from);
    for one in &input.changes {
        change(&mut directory.model.variables, &mut directory.model.aliases, one);
    }
    // A text of more bytes than its length can say is no text of the writer.
    if directory.model.variables.iter().any(|variable| variable.name.len() > 60_000) {
        return;
    }
    let folder = TemporaryFolder::new("ctranslate2_fuzz");
    directory.write(folder.path());
    let file = folder.path().join("model.bin");
    let mut bytes = directory.model.bytes();
    for &(at, byte) in &input.bytes {
        let at = at as usize % bytes.len();
        bytes[at] = byte;
    }
    if let Some(keep) = input.keep {
        bytes.truncate(keep as usize);
    }
    if let Some(file) = input.file {
        bytes = file.to_vec();
    }
    fs::write(file, &bytes).expect("written");
    if let Some(config) = input.config {
        fs::write(folder.path().join("config.json"), config).expect("written");
    }
    if let Some(vocabulary) = input.vocabulary {
        fs::write(folder.path().join("shared_vocabulary.json"), vocabulary).expect("written");
    }
    let untouched = input.version.is_none()
        && input.changes.is_empty()
        && input.bytes.is_empty()
        && input.keep.is_none()
        && input.file.is_none()
        && input.config.is_none()
        && input.vocabulary.is_none();
    let checkpoint = match Checkpoint::open(folder.path()) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            assert!(!untouched, "a valid directory: {error}");
            return;
        }
    };
    for name in checkpoint.names() {
        if let Ok(tensor) = checkpoint.named(name) {
            let _ = tensor.to_vec();
            let rows = tensor.shape().first().copied().unwrap_or(0);
            let _ = tensor.rows(rows / 2..rows).and_then(|rows| rows.to_vec());
        }
    }
    let _ = Model::load(&checkpoint, LoadOptions::from(Isa::SCALAR));
});
