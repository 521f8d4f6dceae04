//! The content of a checkpoint directory: which tensors, under which names, and which other files.

use crate::checksummed_file::{self, Digest, Sink};
use crate::error::{Error, corrupt, unreadable, wrong_state};
use simdformer::checkpoint::{Checkpoint, TensorId, read_config, safetensors_header};
use simdformer::config::Config;
use simdformer::train::{FileTensor, Trainer};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

/// Extensions of the other files of a model: configs, vocabularies, tokenizers.
const COMPANIONS: [&str; 8] = ["json", "model", "spm", "txt", "vocab", "bpe", "tiktoken", "jinja"];
/// The maximum size of such a file in bytes; a vocabulary of 250,000 pieces has a tenth of it.
const MAX_COMPANION: u64 = 256 << 20;
/// Files that belong to a run, or to weights split into shards.
const NOT_COMPANIONS: [&str; 2] = ["trainer.json", "model.safetensors.index.json"];

/// The format of the checkpoints that a trainer writes: that of the directory from which it started.
///
/// A directory gets `model.safetensors` with the tensor names and shapes of the first checkpoint, in f32. Tensors
/// that the network does not use are copied unchanged. Tied matrices are written under each of their names. Copies of
/// `config.json`, of all vocabularies and of all settings are written to the same directory. So
/// [`Model::open`](simdformer::Model::open) and transformers load it.
pub struct Layout {
    config: Config,
    tensors: Vec<FileTensor>,
    companions: Vec<(String, Vec<u8>)>,
    /// The checkpoint from which unused tensors are copied.
    source: Option<Checkpoint<'static>>,
}

impl Layout {
    /// The format of a checkpoint that [`Checkpoint::open`] opens. Its files stay open. The files next to the weights
    /// are read now.
    ///
    /// # Errors
    /// As [`Checkpoint::open`]; also if a file next to the weights cannot be read.
    pub fn from_directory(directory: &Path) -> Result<Self, Error> {
        let source = Checkpoint::open(directory)?;
        let (config, tensors) = (source.config().clone(), FileTensor::of_checkpoint(&source));
        let companions = read_companions(directory)?;
        Ok(Self { config, tensors, companions, source: Some(source) })
    }

    /// The format of checkpoints of a new model. `path` is a `config.json`, or a directory with one; the other files
    /// of the directory are copied too.
    ///
    /// # Errors
    /// The config cannot be read, or is not [valid](Error::Corrupt).
    pub fn of_config(path: &Path) -> Result<Self, Error> {
        let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
        let config = read_config(&file)?;
        let tensors = FileTensor::of_config(&config);
        let mut companions =
            read_companions(&file.parent().map(Path::to_owned).unwrap_or_default())?;
        // A file with another name still becomes `config.json`.
        companions.retain(|(name, _)| name != "config.json");
        let text = fs::read(&file).map_err(unreadable(&file))?;
        companions.push(("config.json".to_owned(), in_f32(text)));
        Ok(Self { config, tensors, companions, source: None })
    }

    /// The architecture.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The text of `config.json`.
    pub fn config_text(&self) -> &str {
        let config = self.companions.iter().find(|(name, _)| name == "config.json");
        config.and_then(|(_, bytes)| str::from_utf8(bytes).ok()).unwrap_or("")
    }

    /// The checkpoint from which training starts; `None` for a new model.
    pub fn checkpoint(&self) -> Option<&Checkpoint<'static>> {
        self.source.as_ref()
    }

    /// Writes a checkpoint of the trainer's parameters. Each file is replaced atomically, the weights last.
    ///
    /// # Errors
    /// A parameter is not finite; then nothing is written. A file cannot be written, or the trainer has another
    /// architecture.
    pub fn write(&self, trainer: &Trainer<'_>, directory: &Path) -> Result<(), Error> {
        trainer.check_whole()?;
        self.write_with(&|role| trainer.parameter(role), directory)
    }

    /// As [`Layout::write`], with any values.
    pub(crate) fn write_with<'v>(
        &self,
        value: &dyn Fn(TensorId) -> Option<&'v [f32]>,
        directory: &Path,
    ) -> Result<(), Error> {
        self.check_numbers(value)?;
        self.write_companions(directory)?;
        let path = directory.join("model.safetensors");
        checksummed_file::replace(&path, |sink| self.write_tensors(value, sink)).map(|_| ())
    }

    /// Checks that all values to be written are finite; the error names the first that is not.
    pub(crate) fn check_numbers<'v>(
        &self,
        value: &dyn Fn(TensorId) -> Option<&'v [f32]>,
    ) -> Result<(), Error> {
        for tensor in &self.tensors {
            for (block, &role) in tensor.roles.iter().enumerate() {
                let numbers = value(role).unwrap_or_default();
                if let Some(at) = numbers.iter().position(|x| !x.is_finite()) {
                    let operand = format!(
                        "{}, to be saved (nothing was written, and earlier checkpoints are as they were)",
                        tensor.name
                    );
                    let index = block * numbers.len() + at;
                    return Err(Error::NotFinite {
                        index: None,
                        operand: operand.into(),
                        position: Some(index),
                        found: Some(numbers[at]),
                    });
                }
            }
        }
        Ok(())
    }

    /// As [`Layout::write`], with weights copied from an existing file.
    pub(crate) fn copy_weights(&self, from: &Path, directory: &Path) -> Result<(), Error> {
        self.write_companions(directory)?;
        let mut weights = fs::File::open(from).map_err(unreadable(from))?;
        checksummed_file::replace(&directory.join("model.safetensors"), |sink| {
            let mut block = vec![0; 1 << 16];
            loop {
                match std::io::Read::read(&mut weights, &mut block).map_err(unreadable(from))? {
                    0 => return Ok(()),
                    read => sink.write(&block[..read])?,
                }
            }
        })
        .map(|_| ())
    }

    fn write_companions(&self, directory: &Path) -> Result<(), Error> {
        checksummed_file::create_directory(directory)?;
        for (name, bytes) in &self.companions {
            let path = directory.join(name);
            // The starting directory already has these files.
            if fs::read(&path).is_ok_and(|found| found == *bytes) {
                continue;
            }
            checksummed_file::replace(&path, |sink| sink.write(bytes))?;
        }
        Ok(())
    }

    /// Writes all files of a directory that no other process reads yet; returns their digests.
    pub(crate) fn write_new(
        &self,
        trainer: &Trainer<'_>,
        directory: &Path,
    ) -> Result<Vec<(String, Digest)>, Error> {
        trainer.check_whole()?;
        let mut written = Vec::new();
        for (name, bytes) in &self.companions {
            let digest =
                checksummed_file::replace(&directory.join(name), |sink| sink.write(bytes))?;
            written.push((name.clone(), digest));
        }
        let value = |role| trainer.parameter(role);
        let name = "model.safetensors";
        let path = directory.join(name);
        let digest = checksummed_file::replace(&path, |sink| self.write_tensors(&value, sink))?;
        written.push((name.to_owned(), digest));
        Ok(written)
    }

    fn write_tensors<'v>(
        &self,
        value: &dyn Fn(TensorId) -> Option<&'v [f32]>,
        sink: &mut Sink,
    ) -> Result<(), Error> {
        let tensors = self.tensors.iter().map(|t| (&*t.name, &*t.dtype, &*t.shape, t.bytes));
        sink.write(&safetensors_header(tensors))?;
        let mut block = vec![0; 1 << 16];
        for tensor in &self.tensors {
            if tensor.roles.is_empty()
                && let Some(source) = &self.source
            {
                let mut offset = 0;
                while offset < tensor.bytes {
                    let bytes = (tensor.bytes - offset).min(block.len() as u64) as usize;
                    source.read_bytes(&tensor.name, offset, &mut block[..bytes])?;
                    sink.write(&block[..bytes])?;
                    offset += bytes as u64;
                }
            }
            for &role in &tensor.roles {
                sink.write_f32(block_numbers(tensor, role, value(role))?)?;
            }
        }
        Ok(())
    }

    /// Writes `loss` (one number) and the gradient of every trained tensor since the last update, in f32, under its
    /// checkpoint name and in its checkpoint shape. If only a part of a tensor is trained, the rest is zero.
    ///
    /// # Errors
    /// The file cannot be written, or nothing was accumulated.
    pub fn write_gradients(
        &self,
        trainer: &mut Trainer<'_>,
        loss: f64,
        file: &Path,
    ) -> Result<(), Error> {
        let learned: Vec<TensorId> = trainer.gradients()?.map(|(role, _, _)| role).collect();
        let owner = |role| trainer.owner(role);
        let has = |tensor: &&FileTensor| {
            let mut owners = tensor.roles.iter().filter_map(|&role| owner(role));
            owners.any(|owner| learned.contains(&owner))
        };
        let tensors: Vec<&FileTensor> = self.tensors.iter().filter(has).collect();
        let owners: BTreeMap<String, Vec<Option<TensorId>>> = tensors
            .iter()
            .map(|tensor| {
                let owners = tensor.roles.iter().map(|&role| owner(role));
                (tensor.name.clone(), owners.collect())
            })
            .collect();
        let gradients: Vec<(TensorId, &[usize], &[f32])> = trainer.gradients()?.collect();
        checksummed_file::replace(file, |sink| {
            let entries = tensors.iter().map(|t| (&*t.name, "F32", &*t.shape, t.bytes));
            sink.write(&safetensors_header(
                [("loss", "F64", &[][..], 8)].into_iter().chain(entries),
            ))?;
            sink.write(&loss.to_le_bytes())?;
            for tensor in &tensors {
                let zeros = vec![0.0; block_len(tensor)];
                for owner in &owners[&tensor.name] {
                    let found = gradients.iter().find(|(role, _, _)| Some(*role) == *owner);
                    let gradient = found.map_or(&zeros[..], |(_, _, gradient)| gradient);
                    sink.write_f32(gradient)?;
                }
            }
            Ok(())
        })
        .map(|_| ())
    }
}

/// The numbers of each block of this tensor.
fn block_len(tensor: &FileTensor) -> usize {
    tensor.shape.iter().product::<usize>() / tensor.roles.len().max(1)
}

/// The values of one block of this tensor; an error if their number differs from the block length.
fn block_numbers<'v>(
    tensor: &FileTensor,
    role: TensorId,
    found: Option<&'v [f32]>,
) -> Result<&'v [f32], Error> {
    let expected = block_len(tensor);
    match found {
        Some(numbers) if numbers.len() == expected => Ok(numbers),
        _ => Err(wrong_state(role, expected, found.map_or(0, <[f32]>::len))),
    }
}

/// The other files of the model in `directory`, by name.
fn read_companions(directory: &Path) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut companions = Vec::new();
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    for entry in fs::read_dir(directory).map_err(unreadable(directory))? {
        let path = entry.map_err(unreadable(directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ending = path.extension().unwrap_or_default().to_string_lossy();
        let is_companion = COMPANIONS.contains(&&*ending)
            && !NOT_COMPANIONS.contains(&name.as_str())
            && !name.starts_with('.')
            && path.is_file();
        if !is_companion {
            continue;
        }
        let bytes = fs::metadata(&path).map_err(unreadable(&path))?.len();
        if bytes > MAX_COMPANION {
            let (expected, found) = (format!("at most {MAX_COMPANION} bytes"), bytes.to_string());
            return Err(corrupt(path.display().to_string(), expected, found));
        }
        let mut text = fs::read(&path).map_err(unreadable(&path))?;
        if name == "config.json" {
            text = in_f32(text);
        }
        companions.push((name, text));
    }
    companions.sort();
    Ok(companions)
}

/// The `config.json` with the dtype set to that of the written weights.
fn in_f32(text: Vec<u8>) -> Vec<u8> {
    let Ok(mut config) = serde_json::from_slice::<serde_json::Value>(&text) else { return text };
    let mut changed = false;
    for key in ["dtype", "torch_dtype"] {
        match config.get_mut(key) {
            Some(dtype) if *dtype != "float32" => {
                *dtype = "float32".into();
                changed = true;
            }
            _ => {}
        }
    }
    match changed {
        true => serde_json::to_vec_pretty(&config).unwrap_or(text),
        false => text,
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout")
            .field("family", &self.config.family)
            .field("tensors", &self.tensors.len())
            .field("companions", &self.companions.len())
            .finish_non_exhaustive()
    }
}
