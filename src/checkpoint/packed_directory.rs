//! Directories whose weights are packed: which files of them have the weights of which instruction set, and the tensors
//! that no part of the network is.

use super::byte_source::Source;
use super::directory::{names_in, open_single};
use super::shards::Tensors;
use crate::error::Error;
use std::path::{Path, PathBuf};

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
