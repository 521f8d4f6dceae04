//! Checkpoints in several files, and the index of their tensors. It is the same for every format of the files.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;

use serde_core::Deserialize;
use serde_core::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::byte_source::{Source, read_json};
use super::faults::too_many_tensors;
use super::safetensors_file::{Entry, MAX_TENSORS};
use crate::error::{Error, listed};
use crate::json_object::object;
use crate::printable_text::sanitized;

/// The index of shards in safetensors.
pub(super) const INDEX: &str = "model.safetensors.index.json";

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
pub(super) fn is_plain(name: &str) -> bool {
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
pub(super) fn open(
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
