//! The files of a directory that have the weights of a model or of a small layer: one file, shards with an index, files of
//! packed weights. An error says what is there instead.

use super::byte_source::{Source, read_json};
use super::faults::too_many_tensors;
use super::lazy_tensor::{Accept, TensorView};
use super::safetensors_file::{self, Entry, MAX_TENSORS};
#[cfg(feature = "torch")]
use super::torch_file;
use super::unsupported_formats::{self, UnsupportedFormat};
use crate::config::Config;
use crate::error::{Error, listed};
use crate::json_object::object;
use crate::printable_text::sanitized;
use serde_core::Deserialize;
use serde_core::de::{Deserializer, Error as _, MapAccess, Visitor};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

const WEIGHTS: &str = "model.safetensors";

/// The weights as `torch.save` writes them, and the index of their shards.
#[cfg(feature = "torch")]
const TORCH: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// Maximum size of `config.json` and `generation_config.json`: that of a classifier with twenty thousand
/// labels.
pub(super) const MAX_CONFIG: u64 = 2 << 20;

/// Adds the settings of `file`, if it exists.
pub(super) fn set_generation_config(config: &mut Config, file: &Path) -> Result<(), Error> {
    let Some(text) = read_json(file, MAX_CONFIG)? else { return Ok(()) };
    config.set_generation_config(&text).map_err(|error| error.in_file(&file.display().to_string()))
}

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
    [WEIGHTS, INDEX].iter().any(exists)
}

/// Opens the weights of a directory: one file, shards with an index, or the only other safetensors file. Files of
/// `torch.save` are used if there is none of these.
pub(super) fn open_weights(directory: &Path) -> Result<Opened, Error> {
    let single = directory.join(WEIGHTS);
    if single.exists() {
        return open_single(&single, safetensors_file::read_header);
    }
    if let Some(sharded) = open_shards(directory, INDEX, safetensors_file::read_header)? {
        return Ok(sharded);
    }
    let names = names_in(directory);
    let path = |name: &str| directory.join(name).display().to_string();
    let found: Vec<&String> = unsupported_formats::safetensors(&names).collect();
    let shards = shards_among(&found);
    if !shards.is_empty() {
        return Err(no_index(path(INDEX), &shards));
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
    if let Some(sharded) = open_shards(directory, index, torch_file::read_header)? {
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
    let path = found.map(|(path, _)| path).filter(|path| is_plain(path));
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
        let name = sanitized(&entry.name, SHOWN);
        let numbers =
            TensorView { accept: Accept::Finite, ..entry.view(&source, &name)? }.to_vec()?;
        tensors.insert(entry.name, (entry.shape, numbers));
    }
    Ok((source.name().to_owned(), tensors))
}

/// The index of shards in safetensors.
const INDEX: &str = "model.safetensors.index.json";

/// Maximum size of an index: a hundred characters for each tensor.
const MAX_INDEX: u64 = 8 << 20;

/// Maximum characters of a name in an error.
const SHOWN: usize = 400;

/// The location of each tensor: the index of its source, and its entry there. Sorted by name, so that all lists
/// of tensors have the same order.
pub(super) type Tensors = BTreeMap<String, (usize, Entry)>;

object! {
    /// The part of the index that is used. Other fields, such as the total size, may be wrong.
    struct Index {
        weight_map: Placed = "weight_map",
    }
}

/// The tensors of each file.
#[derive(Default)]
struct Placed {
    files: BTreeMap<String, HashSet<String>>,
    twice: Option<String>,
    too_many: bool,
}

impl<'de> Deserialize<'de> for Placed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Collect)
    }
}

struct Collect;

impl<'de> Visitor<'de> for Collect {
    type Value = Placed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors and files")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Placed, A::Error> {
        let (mut placed, mut seen) = (Placed::default(), HashSet::new());
        while let Some(tensor) = map.next_key::<String>()? {
            let file: String = map.next_value().map_err(|error| {
                A::Error::custom(format_args!("{}: {error}", sanitized(&tensor, SHOWN)))
            })?;
            // Report the error after the rest has been parsed as valid JSON.
            placed.too_many |= seen.len() == MAX_TENSORS;
            if placed.too_many || placed.twice.is_some() {
                continue;
            }
            if !seen.insert(tensor.clone()) {
                placed.twice = Some(sanitized(&tensor, SHOWN));
            }
            placed.files.entry(file).or_default().insert(tensor);
        }
        Ok(placed)
    }
}

/// Whether a file of this name is directly in the directory, on any operating system.
fn is_plain(name: &str) -> bool {
    let outside = |c: char| matches!(c, '/' | '\\' | ':') || c.is_control();
    !name.is_empty() && name != "." && name != ".." && !name.contains(outside)
}

/// What one or several files contain.
pub(super) struct Opened {
    pub(super) sources: Vec<Source<'static>>,
    pub(super) tensors: Tensors,
    /// Tensors of shards that their index does not list, sorted.
    pub(super) unlisted: Vec<String>,
}

/// The function that reads the tensors of one file.
pub(super) type ReadHeader = fn(&Source<'_>) -> Result<Vec<Entry>, Error>;

/// Opens the shards of a directory with an index of this name; `None` if it has none.
fn open_shards(
    directory: &Path,
    index: &str,
    read_header: ReadHeader,
) -> Result<Option<Opened>, Error> {
    let index = directory.join(index);
    let Some(text) = read_json(&index, MAX_INDEX)? else { return Ok(None) };
    let file = || index.display().to_string();
    let Index { weight_map: Placed { files, twice, too_many } } = serde_json::from_str(&text)
        .map_err(|error| {
            let message = sanitized(&error.to_string(), SHOWN);
            Error::corrupt(file(), "an index of shards", format!("something else: {message}"))
        })?;
    drop(text);
    if too_many {
        return Err(too_many_tensors(file(), MAX_TENSORS));
    }
    if let Some(tensor) = twice {
        let operand = format!("{}: {tensor}", file());
        return Err(Error::corrupt(operand, "to be placed once", "to be placed twice"));
    }
    if let Some(shard) = files.keys().find(|name| !is_plain(name)) {
        let found = format!("the shard \"{}\"", sanitized(shard, SHOWN));
        return Err(Error::corrupt(file(), "plain file names", found));
    }
    let missing = files.keys().filter(|name| !directory.join(name).exists());
    let missing: Vec<String> = missing.map(|name| sanitized(name, SHOWN)).collect();
    if !missing.is_empty() {
        let found = format!("no such files as {}", listed(&missing));
        return Err(Error::not_found(file(), "the files that it names", found));
    }
    let (mut sources, mut tensors, mut unlisted) = (Vec::new(), Tensors::new(), Vec::new());
    for (shard, mut wanted) in files {
        let source = Source::open(&directory.join(shard))?;
        for entry in read_header(&source)? {
            // Ignore a tensor that the index assigns to another shard.
            if wanted.remove(entry.name.as_str()) {
                tensors.insert(entry.name.clone(), (sources.len(), entry));
            } else {
                unlisted.push(entry.name);
            }
        }
        if let Some(tensor) = wanted.into_iter().min() {
            let operand = format!("{}: {}", source.name(), sanitized(&tensor, SHOWN));
            return Err(Error::corrupt(operand, "a tensor, which the index places here", "none"));
        }
        sources.push(source);
    }
    unlisted.retain(|name| !tensors.contains_key(name));
    unlisted.sort_unstable();
    unlisted.dedup();
    Ok(Some(Opened { sources, tensors, unlisted }))
}

/// The tensors of task heads, which are not packed.
pub(crate) const HEADS: &str = "heads.safetensors";

/// A file of packed weights in a directory.
#[derive(Clone, Debug)]
pub(crate) struct PackedFile {
    /// The name of its instruction set.
    pub(crate) isa: String,
    pub(crate) path: PathBuf,
    /// The path as text.
    pub(super) name: String,
}

/// The name of the file of packed weights for the instruction set with this name.
pub(crate) fn packed_name(isa: &str) -> String {
    format!("model.{isa}.packed")
}

/// The files of packed weights in `directory`, by the names of their instruction sets.
pub(super) fn packed_files(directory: &Path) -> Vec<PackedFile> {
    let names = names_in(directory);
    let file = |file: &String| {
        let isa = file.strip_prefix("model.")?.strip_suffix(".packed")?.to_owned();
        let path = directory.join(file);
        let name = path.display().to_string();
        Some(PackedFile { isa, path, name })
    };
    names.iter().filter_map(file).collect()
}

/// The tensors of task heads in a directory with packed weights.
pub(super) fn heads(directory: &Path) -> Result<(Vec<Source<'static>>, Tensors), Error> {
    let file = directory.join(HEADS);
    if !file.exists() {
        return Ok((Vec::new(), Tensors::new()));
    }
    let opened = open_single(&file, super::safetensors_file::read_header)?;
    Ok((opened.sources, opened.tensors))
}
