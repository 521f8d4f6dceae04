//! Models with packed weights: one copy in memory for all processes of a machine, opened in milliseconds.
//!
//! [`pack`] writes a directory with packed weights, `config.json` and the tokenizer files. Commands and libraries take it
//! like the directory of a checkpoint. [`load`] maps the file of the weights: pages that no process has read yet come
//! from the disk when a product first needs them, and all processes that map one file share them. A model that
//! [`Model::open`] reads has its own copy.
//!
//! ```
//! use simdformer::LoadOptions;
//! use simdformer_text::packed::{self, PackOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fr-en");
//! # if !root.exists() { return Ok(()) } // not in the published package
//! # let out = std::env::temp_dir().join(format!("doc-packed-{}", std::process::id()));
//! # let (directory, out) = (root.as_path(), out.as_path());
//! let options = PackOptions { dtypes: "int8".parse()?, ..PackOptions::default() };
//! let written = packed::pack(directory, out, &options)?;
//! let model = packed::open(out, LoadOptions::default())?;
//! assert!(model.is_shared());
//! assert_eq!(model.fingerprint(), written.fingerprint);
//! # std::fs::remove_dir_all(out)?;
//! # Ok(()) }
//! ```
//!
//! # What happens if a file changes
//!
//! A file that is replaced by renaming another one over it, as [`pack`], [`Model::save_packed`] and package managers do,
//! or that is deleted, is safe: processes that have mapped it keep the old content. A file that is changed in place
//! changes the weights of running processes. If it is truncated, access to the missing pages ends the process with
//! `SIGBUS`. The same happens if a disk or a network file system fails while a page is read. So packed weights belong in
//! a directory that only the writer of models may write to. No function gives the bytes of a map to the caller:
//!
//! ```compile_fail
//! # fn main() -> std::io::Result<()> {
//! let file = std::fs::File::open("model.avx512.packed")?;
//! let bytes: &[u8] = (*simdformer_text::packed::map_file(&file)?).as_ref();
//! # Ok(()) }
//! ```
//!
//! # Verification
//!
//! The header of a file and all lengths are verified when it is mapped. The checksum of the weights is not, because it
//! would read the whole file: 32 ms instead of 0.3 ms for a Transformer-base in int8 in the cache of the system.
//! [`pack`] verifies what it has written, and [`LoadOptions::verify_packed`] verifies a file again, for example after it
//! was copied to another machine. A damaged weight gives wrong numbers, but no undefined behavior.

mod map_file;
mod pack;

pub use pack::{PackOptions, Packed, PackedPart, pack};

use map_file::map_file;
use simdformer::checkpoint::Checkpoint;
use simdformer::{Error, LoadOptions, Model};
use std::path::Path;

/// As [`Model::load`]; if the directory of `checkpoint` has packed weights, they are mapped.
///
/// # Errors
/// As [`Model::load`].
pub fn load<'c>(
    checkpoint: &Checkpoint<'_>,
    options: impl Into<LoadOptions<'c>>,
) -> Result<Model, Error> {
    Model::load(checkpoint, LoadOptions { map_packed: Some(map_file), ..options.into() })
}

/// As [`Model::open_with`]; if the directory has packed weights, they are mapped.
///
/// # Errors
/// As [`Model::open_with`].
pub fn open<'c>(
    directory: impl AsRef<Path>,
    options: impl Into<LoadOptions<'c>>,
) -> Result<Model, Error> {
    load(&Checkpoint::open(directory)?, options)
}
