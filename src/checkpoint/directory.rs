//! Selects the files of a directory that contain the weights of a model or of a small layer, and reports an error if there are none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::byte_source::{Source, read_json};
use super::faults::wrong_dtype;
use super::lazy_tensor::{Accept, TensorView};
use super::safetensors_file::{self, Entry};
use super::shards::{self, Opened, ReadHeader};
#[cfg(feature = "torch")]
use super::torch_file;
use super::unsupported_formats::{self, UnsupportedFormat};
use crate::error::{Error, listed};
use crate::json_object::object;
use crate::printable_text::sanitized;

const WEIGHTS: &str = "model.safetensors";

/// The weights as `torch.save` writes them, and the index of their shards.
#[cfg(feature = "torch")]
const TORCH: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// Maximum number of file names that are read from a directory.
const MAX_NAMES: usize = 4096;

/// Returns an error if `directory` contains weights in another format, and none in safetensors.
pub(super) fn reject_other_formats(directory: &Path) -> Result<(), Error> {
    let names = names_in(directory);
    match UnsupportedFormat::among(&names) {
        Some((name, found)) if unsupported_formats::safetensors(&names).next().is_none() => {
            Err(found.error(&directory.join(name).display().to_string(), ""))
        }
        _ => Ok(()),
    }
}

/// The names of the files of a directory, sorted; only some of them for a very large directory.
pub(super) fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().take(MAX_NAMES);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// Whether a directory has the tensors of a model under their usual names.
pub(super) fn has_tensors(directory: &Path) -> bool {
    let exists = |name: &&str| directory.join(name).exists();
    [WEIGHTS, shards::INDEX].iter().any(exists)
}

/// Opens the weights of a directory: one file, shards with an index, or the only other safetensors file. Files of
/// `torch.save` are used if there is none of these.
pub(super) fn open_weights(directory: &Path) -> Result<Opened, Error> {
    let single = directory.join(WEIGHTS);
    if single.exists() {
        return open_single(&single, safetensors_file::read_header);
    }
    if let Some(sharded) = shards::open(directory, shards::INDEX, safetensors_file::read_header)? {
        return Ok(sharded);
    }
    let names = names_in(directory);
    let path = |name: &str| directory.join(name).display().to_string();
    let found: Vec<&String> = unsupported_formats::safetensors(&names).collect();
    let shards = shards_among(&found);
    if !shards.is_empty() {
        return Err(no_index(path(shards::INDEX), &shards));
    }
    let consolidated = |name: &str| name.starts_with("consolidated");
    if let [name] = found[..]
        && !consolidated(name)
        && unsupported_formats::variant(name).is_none()
    {
        return open_single(&directory.join(name), safetensors_file::read_header);
    }
    #[cfg(feature = "torch")]
    if let Some(opened) = open_torch(directory, &names)? {
        return Ok(opened);
    }
    match found[..] {
        [] => {
            reject_other_formats(directory)?;
            let expected = if cfg!(feature = "torch") {
                "weights here, in model.safetensors.index.json or in pytorch_model.bin"
            } else {
                "weights here or in model.safetensors.index.json"
            };
            Err(Error::not_found(path(WEIGHTS), expected, "no such file"))
        }
        [name] if consolidated(name) => Err(UnsupportedFormat::Consolidated.error(&path(name), "")),
        [name] => {
            let variant = unsupported_formats::variant(name).unwrap_or_default();
            let variant = sanitized(variant, 40);
            let found = format!(
                "the variant \"{variant}\"; rename it, or save what from_pretrained(..., variant=\"{variant}\") loads"
            );
            Err(Error::unsupported(path(name), "model.safetensors", found))
        }
        _ => {
            let files: Vec<_> = found.into_iter().map(|name| sanitized(name, 400)).collect();
            let directory = directory.display().to_string();
            Err(Error::unsupported(directory, "model.safetensors or one other", listed(&files)))
        }
    }
}

/// Opens the files of `torch.save` in a directory; `None` if there are none.
#[cfg(feature = "torch")]
fn open_torch(directory: &Path, names: &[String]) -> Result<Option<Opened>, Error> {
    let [single, index] = TORCH;
    let file = directory.join(single);
    if file.exists() {
        return open_single(&file, torch_file::read_header).map(Some);
    }
    if let Some(sharded) = shards::open(directory, index, torch_file::read_header)? {
        return Ok(Some(sharded));
    }
    let found: Vec<&String> = names
        .iter()
        .filter(|name| name.starts_with("pytorch_model") && name.ends_with(".bin"))
        .collect();
    match shards_among(&found) {
        shards if shards.is_empty() => Ok(None),
        shards => Err(no_index(directory.join(index).display().to_string(), &shards)),
    }
}

/// There are shards, and their index `file` does not exist.
fn no_index(file: String, shards: &[String]) -> Error {
    let expected = format!("the index that lists the tensors of {}", listed(shards));
    Error::not_found(file, expected, "no such file")
}

/// The names of shards, to be shown.
fn shards_among(names: &[&String]) -> Vec<String> {
    let shards = names.iter().filter(|name| unsupported_formats::is_shard(name));
    shards.map(|name| sanitized(name, 400)).collect()
}

pub(super) fn open_single(path: &Path, read_header: ReadHeader) -> Result<Opened, Error> {
    let source = Source::open(path)?;
    let entries = read_header(&source)?;
    let tensors = entries.into_iter().map(|entry| (entry.name.clone(), (0, entry))).collect();
    Ok(Opened { sources: vec![source], tensors, unlisted: Vec::new() })
}

/// The file of a folder that has the weights of one small layer, and the function that reads it.
fn layer_weights(folder: &Path) -> (PathBuf, ReadHeader) {
    let file = folder.join(WEIGHTS);
    #[cfg(feature = "torch")]
    if !file.exists() && folder.join(TORCH[0]).exists() {
        return (folder.join(TORCH[0]), torch_file::read_header);
    }
    (file, safetensors_file::read_header)
}

/// Maximum size of `modules.json`; real files have a hundredth of it.
const MAX_MODULES: u64 = 1 << 16;

object! {
    /// An entry of the `modules.json` of a sentence-transformers directory.
    struct Module {
        path: String = "path" or String::new(),
        kind: String = "type",
    }
}

/// The folders of the `modules.json` of a sentence-transformers directory and their types, paths of Python classes; `None`
/// if it has no such file.
pub(crate) fn read_modules(directory: &Path) -> Result<Option<Vec<(String, String)>>, Error> {
    let file = directory.join("modules.json");
    let Some(text) = read_json(&file, MAX_MODULES)? else { return Ok(None) };
    let modules: Vec<Module> = serde_json::from_str(&text).map_err(|error| {
        let message = sanitized(&error.to_string(), 400);
        let file = file.display().to_string();
        Error::corrupt(file, "a list of modules", format!("something else: {message}"))
    })?;
    Ok(Some(modules.into_iter().map(|module| (module.path, module.kind)).collect()))
}

/// The folder of the transformer in a sentence-transformers directory, if it is not the directory itself.
pub(super) fn transformer_folder(directory: &Path) -> Result<Option<PathBuf>, Error> {
    if directory.join("config.json").exists() {
        return Ok(None);
    }
    let modules = read_modules(directory)?.unwrap_or_default();
    let found = modules.into_iter().find(|(_, kind)| kind.ends_with(".Transformer"));
    let path = found.map(|(path, _)| path).filter(|path| shards::is_plain(path));
    Ok(path.map(|path| directory.join(path)))
}

/// Tensors in memory by name: shape and numbers.
pub(crate) type Numbers = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The file with the weights of a small layer in `folder`, and all its tensors; their numbers are finite.
pub(crate) fn read_layer(folder: &Path) -> Result<(String, Numbers), Error> {
    let (file, read_header) = layer_weights(folder);
    let source = Source::open(&file)?;
    let mut tensors = BTreeMap::new();
    for entry in read_header(&source)? {
        let Entry { name, dtype, shape, offset, strides, .. } = entry;
        let Some(dtype) = dtype.float() else {
            return Err(wrong_dtype(sanitized(&name, 400), &dtype.to_string()));
        };
        let view = TensorView {
            source: &source,
            name: &name,
            dtype,
            shape: shape.clone(),
            offset,
            strides: &strides,
            skipped: 0,
            accept: Accept::Finite,
        };
        let numbers = view.to_vec()?;
        tensors.insert(name, (shape, numbers));
    }
    Ok((source.name().to_owned(), tensors))
}
