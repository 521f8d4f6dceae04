//! Selects the files of a directory that contain the weights, and reports an error if there are none.

use std::path::Path;

use super::CheckpointError;
use super::byte_source::Source;
use super::safetensors_file;
use super::shards::{self, Tensors};
use super::unsupported_formats::{self, UnsupportedFormat};
use crate::printable_text::sanitized;

const WEIGHTS: &str = "model.safetensors";

/// Maximum number of file names that are read from a directory.
const MAX_NAMES: usize = 4096;

/// Returns an error if `directory` contains weights in another format, and none in safetensors.
pub(super) fn reject_other_formats(directory: &Path) -> Result<(), CheckpointError> {
    let names = names_in(directory);
    match UnsupportedFormat::among(&names) {
        Some((name, found)) if unsupported_formats::safetensors(&names).next().is_none() => {
            let file = directory.join(name).display().to_string();
            Err(CheckpointError::ForeignWeights { file, found, says: String::new() })
        }
        _ => Ok(()),
    }
}

/// The names of the files of a directory, sorted; only some of them for a very large directory.
fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().take(MAX_NAMES);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// Opens the weights of a directory: one file, shards with an index, or the only other safetensors file.
pub(super) fn open_weights(
    directory: &Path,
) -> Result<(Vec<Source<'static>>, Tensors), CheckpointError> {
    let single = directory.join(WEIGHTS);
    if single.exists() {
        return open_single(&single);
    }
    if let Some(sharded) = shards::open(directory)? {
        return Ok(sharded);
    }
    let names = names_in(directory);
    let path = |name: &str| directory.join(name).display().to_string();
    let found: Vec<&String> = unsupported_formats::safetensors(&names).collect();
    let shards: Vec<String> = found
        .iter()
        .filter(|name| unsupported_formats::is_shard(name))
        .map(|&name| sanitized(name, 400))
        .collect();
    if !shards.is_empty() {
        let file = path(shards::INDEX);
        return Err(CheckpointError::ShardsWithoutIndex { file, shards });
    }
    match found[..] {
        [] => {
            reject_other_formats(directory)?;
            let (file, hint) = (path(WEIGHTS), "nor is there a model.safetensors.index.json");
            Err(CheckpointError::FileMissing { file, hint })
        }
        [name] if name.starts_with("consolidated") => {
            let (file, found) = (path(name), UnsupportedFormat::Consolidated);
            Err(CheckpointError::ForeignWeights { file, found, says: String::new() })
        }
        [name] => match unsupported_formats::variant(name) {
            Some(variant) => {
                let (file, variant) = (path(name), sanitized(variant, 40));
                Err(CheckpointError::OnlyVariant { file, variant })
            }
            None => open_single(&directory.join(name)),
        },
        _ => {
            let files = found.into_iter().map(|name| sanitized(name, 400)).collect();
            Err(CheckpointError::SeveralWeights { path: directory.display().to_string(), files })
        }
    }
}

fn open_single(path: &Path) -> Result<(Vec<Source<'static>>, Tensors), CheckpointError> {
    let source = Source::open(path)?;
    let entries = safetensors_file::read_header(&source)?;
    let tensors = entries.into_iter().map(|entry| (entry.name.clone(), (0, entry))).collect();
    Ok((vec![source], tensors))
}
