//! Models with packed weights: one copy in memory for all processes of a machine, opened in milliseconds.
//!
//! [`pack`] writes a directory with packed weights, `config.json` and the tokenizer files. Commands and libraries take it
//! like the directory of a checkpoint. The products and the command [map](LoadOptions::map_packed) its weights, so that all
//! processes share them; that page says what happens if the file changes. A model that [`Model::open`] reads has its own
//! copy.
//!
//! ```
//! use simdformer::{LoadOptions, Model};
//! use simdformer_text::packed::{self, PackOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en");
//! # if !root.exists() { return Ok(()) } // not in the published package
//! # let out = std::env::temp_dir().join(format!("doc-packed-{}", std::process::id()));
//! # let (directory, out) = (root.as_path(), out.as_path());
//! let options = PackOptions { dtypes: "int8".parse()?, ..PackOptions::default() };
//! let written = packed::pack(directory, out, &options)?;
//! let model = Model::open_with(out, LoadOptions { map_packed: true, ..LoadOptions::default() })?;
//! assert!(model.is_shared());
//! assert_eq!(model.fingerprint(), written.fingerprint);
//! # std::fs::remove_dir_all(out)?;
//! # Ok(()) }
//! ```
//!
//! # Verification
//!
//! The header of a file and all lengths are verified when it is mapped. The checksum of the weights is not, because it
//! would read the whole file: 32 ms instead of 0.3 ms for a Transformer-base in int8 in the cache of the system.
//! [`pack`] verifies what it has written, and [`LoadOptions::verify_packed`] verifies a file again, for example after it
//! was copied to another machine. A damaged weight gives wrong numbers, but no undefined behavior.

use crate::error::{Error, path_text};
use serde_json::{Map, Value};
use simdformer::atomic_file;
use simdformer::checkpoint::Checkpoint;
use simdformer::kernels::Isa;
use simdformer::task_heads::Classifier;
use simdformer::{LoadOptions, Model, WeightDtypes};
use simdformer_tokenize::tokenizer_folder;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

/// Endings of the files that are copied beside the weights: settings and tokenizers.
const COPIED: [&str; 6] = ["jinja", "json", "model", "spm", "tiktoken", "txt"];

/// Files of these endings that belong to the weights.
const INDICES: &str = ".index.json";

/// A file that is copied last, because a directory without it is no model.
const CONFIG: &str = "config.json";

/// How a checkpoint is packed.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// The dtypes of the matrices, as in [`LoadOptions::dtypes`].
    pub dtypes: WeightDtypes,
    /// The instruction sets to pack for: a file for each. Empty for the best one of this machine, or the one that the
    /// environment names. A machine can pack for the sets that it has.
    pub isas: Vec<Isa>,
}

/// What [`pack`] has written.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The identity of the model, the same for all instruction sets.
    pub fingerprint: u128,
    /// The files of the weights.
    pub parts: Vec<PackedPart>,
}

/// The weights for one instruction set.
#[derive(Clone, Debug)]
pub struct PackedPart {
    /// The file.
    pub path: PathBuf,
    /// The instruction set.
    pub isa: Isa,
    /// Bytes of the weights.
    pub bytes: usize,
}

/// Writes the model of `directory` with packed weights to `out`, which must not exist or be empty: the weights for each
/// instruction set, the settings and tokenizer files, and the classifier or the modules of sentence-transformers, if
/// there are any. Each file of weights is read back and verified. `config.json` is written last, so a directory that is
/// incomplete cannot be opened.
///
/// To have one directory for machines of several kinds, pack on each kind and copy the files `model.*.packed` together.
///
/// # Errors
/// `directory` is no checkpoint, or a weight cannot be loaded or saved ([`Error::Model`]); it is already packed, or `out` is
/// not empty ([`Error::Conflict`]); a file cannot be copied ([`Error::Io`]).
pub fn pack(
    directory: impl AsRef<Path>,
    out: impl AsRef<Path>,
    options: &PackOptions,
) -> Result<Packed, Error> {
    let (directory, out) = (directory.as_ref(), out.as_ref());
    let checkpoint = Checkpoint::open(directory)?;
    if checkpoint.is_packed() {
        return Err(Error::conflict(path_text(directory), "a checkpoint", "packed weights"));
    }
    let (transformer, folders) = folders(directory)?;
    fs::create_dir_all(out).map_err(unwritable(out))?;
    if fs::read_dir(out).map_err(unwritable(out))?.next().is_some() {
        return Err(not_empty(out));
    }
    let isas = match &options.isas[..] {
        [] => vec![Isa::detect().map_err(simdformer::Error::from)?],
        isas => isas.to_vec(),
    };
    let begun = Begun(Some(out));
    let weights = out.join(&transformer);
    fs::create_dir_all(&weights).map_err(unwritable(&weights))?;
    let mut parts = Vec::new();
    let mut identity = None;
    for isa in isas {
        let path = weights.join(Model::packed_name(isa));
        let dtypes = options.dtypes.clone();
        let model = Model::load(&checkpoint, LoadOptions { dtypes, ..isa.into() })?;
        model.save_packed(&path)?;
        let verify = LoadOptions { map_packed: true, verify_packed: true, ..isa.into() };
        Model::open_packed_with(checkpoint.config().clone(), &path, verify)?;
        let found = model.fingerprint();
        // All sets have the same fingerprint unless a file of the checkpoint changed in between.
        let first = *identity.get_or_insert(found);
        if first != found {
            let expected = "a checkpoint that stays while it is packed";
            return Err(Error::conflict(path_text(directory), expected, "one that changed"));
        }
        parts.push(PackedPart { path, isa, bytes: model.bytes() });
    }
    Classifier::save(&checkpoint, &weights)?;
    for folder in folders {
        // The weights of small layers are copied with the settings of their module.
        let module = folder != transformer && !folder.as_os_str().is_empty();
        copy_files(&directory.join(&folder), &out.join(&folder), module)?;
    }
    if !transformer.as_os_str().is_empty() {
        copy_file(&directory.join(CONFIG), &out.join(CONFIG))?;
    }
    write_config(&checkpoint, &directory.join(&transformer), &weights)?;
    let fingerprint = identity.ok_or_else(|| not_empty(out))?;
    begun.keep();
    Ok(Packed { fingerprint, parts })
}

/// Writes the `config.json` of the packed weights: that of `from`, or, if it is one of CTranslate2, the architecture, and
/// the settings of the tokenizer from there.
fn write_config(checkpoint: &Checkpoint<'_>, from: &Path, to: &Path) -> Result<(), Error> {
    let (from, to) = (from.join(CONFIG), to.join(CONFIG));
    let text = match fs::read_to_string(&from) {
        Ok(text) => text,
        // Early versions of CTranslate2 have no such file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => "{}".to_owned(),
        Err(error) => return Err(unreadable(&from)(error)),
    };
    let parse = |text: &str| -> Result<Map<String, Value>, Error> {
        serde_json::from_str(text).map_err(|error| unreadable(&from)(error.into()))
    };
    let settings = parse(&text)?;
    let family = checkpoint.config().family.model_type();
    if settings.get("model_type").and_then(Value::as_str) == Some(family) {
        return copy_file(&from, &to);
    }
    let mut config = parse(&checkpoint.config().to_json()?)?;
    for (key, value) in settings {
        config.entry(key).or_insert(value);
    }
    let text = format!("{:#}\n", Value::Object(config));
    atomic_file::replace(&to, |file| file.write_all(text.as_bytes())).map_err(unwritable(&to))
}

fn not_empty(out: &Path) -> Error {
    Error::conflict(path_text(out), "no directory or an empty one", "files")
}

/// A directory that was empty. What was written to it is deleted unless all of it was.
struct Begun<'d>(Option<&'d Path>);

impl Begun<'_> {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let entries = self.0.and_then(|directory| fs::read_dir(directory).ok());
        for path in entries.into_iter().flatten().flatten().map(|entry| entry.path()) {
            // The caller returns the error that came first.
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

/// The folder of the transformer, relative to the directory, and all folders whose files are copied.
fn folders(directory: &Path) -> Result<(PathBuf, Vec<PathBuf>), Error> {
    let inside = tokenizer_folder(directory)?;
    let transformer = inside.strip_prefix(directory).map(Path::to_owned).unwrap_or_default();
    let mut folders = vec![PathBuf::new()];
    if !transformer.as_os_str().is_empty() {
        folders.push(transformer.clone());
    }
    let file = directory.join("modules.json");
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((transformer, folders)),
        Err(error) => return Err(unreadable(&file)(error)),
    };
    let modules: Value =
        serde_json::from_str(&text).map_err(|error| unreadable(&file)(error.into()))?;
    for module in modules.as_array().into_iter().flatten() {
        let path = PathBuf::from(module["path"].as_str().unwrap_or_default());
        let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        // The reader of modules reports a path that leads out of the directory.
        if inside && !folders.contains(&path) {
            folders.push(path);
        }
    }
    Ok((transformer, folders))
}

/// Copies the files of a folder: of a module all of them, otherwise settings and tokenizers. `config.json` of the model
/// is left for the end.
fn copy_files(from: &Path, to: &Path, module: bool) -> Result<(), Error> {
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable(from)(error)),
    };
    for entry in entries {
        let path = entry.map_err(unreadable(from))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let setting = COPIED.contains(&ending) && !name.ends_with(INDICES) && name != CONFIG;
        if path.is_file() && (module || setting) {
            fs::create_dir_all(to).map_err(unwritable(to))?;
            copy_file(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// Copies a file, if there is one.
fn copy_file(from: &Path, to: &Path) -> Result<(), Error> {
    let mut file = match File::open(from) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable(from)(error)),
    };
    atomic_file::replace(to, |copy| io::copy(&mut file, copy).map(|_| ())).map_err(unwritable(to))
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::unreadable(path, error)
}

fn unwritable(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::unwritable(path, error)
}
