//! Models and tokenizers, shared by all objects of a process that were opened with the same path and options.

use crate::errors::{Failure, Place};
use pyo3::prelude::*;
use simdformer::config::Side;
use simdformer::kernels::Isa;
use simdformer::{LoadOptions, Model, WeightDtypes};
use simdformer_text::Error as TextError;
use simdformer_text::argos::{open_checkpoint, open_tokenizer};
use simdformer_text::translator::{Failure as TextFailure, is_same_language};
use simdformer_text::{Encoded, Tokenizer};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

/// A model, and the tokenizer of its directory.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) model: Arc<Model>,
    /// An error if the directory has no tokenizer of a known family: then there are no texts, but ids.
    tokenizer: Result<Arc<Tokenizer>, Failure>,
    directory: PathBuf,
}

impl Loaded {
    /// The identity of the model. That of packed weights is in the header of their file, so the file is verified.
    pub(crate) fn fingerprint(&self) -> Result<String, Failure> {
        let found = self.model.fingerprint();
        if self.model.is_shared() {
            let isa = Some(self.model.isa());
            let options = LoadOptions {
                isa,
                map_packed: true,
                verify_packed: true,
                ..LoadOptions::default()
            };
            let verified = Model::open_with(&self.directory, options)?.fingerprint();
            if verified != found {
                let directory = self.directory.display();
                let message = format!(
                    "{directory}: expected the weights that were opened, found others: they changed meanwhile"
                );
                return Err(Failure::new("CheckpointError", message));
            }
        }
        Ok(format!("{found:032x}"))
    }

    /// The tokenizer of the directory.
    pub(crate) fn tokenizer(&self) -> Result<&Arc<Tokenizer>, Failure> {
        self.tokenizer.as_ref().map_err(Clone::clone)
    }
}

/// What decides which bytes a model has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    directory: PathBuf,
    /// Length and time of the change of each file, so that new weights in the same place are read.
    files: Vec<(PathBuf, u64, Option<SystemTime>)>,
    isa: &'static str,
    dtypes: String,
}

/// The state of one key.
#[derive(Debug, Default)]
struct Slot {
    ready: Weak<Loaded>,
    /// The process of the thread that loads, and a mutex that it holds. A child of a fork ignores its parent's.
    loading: Option<(u32, Arc<Mutex<()>>)>,
}

static SLOTS: Mutex<Option<HashMap<Key, Slot>>> = Mutex::new(None);

fn slots() -> MutexGuard<'static, Option<HashMap<Key, Slot>>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The instruction set of this name, or the one that the environment or the machine chooses.
pub(crate) fn instruction_set(name: Option<&str>) -> Result<Isa, Failure> {
    let available = || Isa::available().map(|isa| isa.name().to_owned()).collect::<Vec<_>>();
    let isa = match name {
        Some(name) => Isa::from_name(name),
        None => Isa::detect(),
    };
    isa.map_err(|error| {
        let failure = Failure::new("IsaError", error.to_string()).with("available", available());
        match name {
            Some(name) => failure.with("expected", name),
            None => failure,
        }
    })
}

/// The model of `directory`. Loads it with Python detached, unless an object of this process has it.
pub(crate) fn open(
    py: Python<'_>,
    directory: &Path,
    isa: Option<&str>,
    dtype: Option<&str>,
) -> Result<Arc<Loaded>, Failure> {
    let isa = instruction_set(isa)?;
    let dtypes = match dtype {
        None => WeightDtypes::default(),
        Some(name) => name.parse::<WeightDtypes>()?,
    };
    let files = match files(directory) {
        Ok(files) => files,
        // A change of the files would not be seen. What opening says is more exact.
        Err(error) => {
            let opened = py.detach(|| load(directory, isa, dtypes));
            return Err(opened.err().unwrap_or_else(|| {
                let message = format!("{}: {error}", directory.display());
                Failure::new("CheckpointError", message)
            }));
        }
    };
    let key = Key {
        directory: directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf()),
        files,
        isa: isa.name(),
        dtypes: dtypes.to_string(),
    };
    let process = std::process::id();
    loop {
        let gate = {
            let mut slots = slots();
            let slot = slots.get_or_insert_default().entry(key.clone()).or_default();
            if let Some(loaded) = slot.ready.upgrade() {
                return Ok(loaded);
            }
            match &slot.loading {
                Some((owner, gate)) if *owner == process => Arc::clone(gate),
                _ => break,
            }
        };
        // Another thread loads this model. Its mutex is free when it has finished.
        py.detach(|| drop(gate.lock().unwrap_or_else(PoisonError::into_inner)));
    }
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(slot) = slots().get_or_insert_default().get_mut(&key) {
        slot.loading = Some((process, Arc::clone(&gate)));
    }
    let loaded = py.detach(|| load(directory, isa, dtypes).map(Arc::new));
    let mut slots = slots();
    let slots = slots.get_or_insert_default();
    match &loaded {
        Ok(loaded) => slots.insert(key, Slot { ready: Arc::downgrade(loaded), loading: None }),
        Err(_) => slots.remove(&key),
    };
    slots.retain(|_, slot| slot.loading.is_some() || slot.ready.strong_count() > 0);
    drop(held);
    loaded
}

fn load(directory: &Path, isa: Isa, dtypes: WeightDtypes) -> Result<Loaded, Failure> {
    let checkpoint = open_checkpoint(directory)?;
    let model = Model::load(&checkpoint, LoadOptions { dtypes, map_packed: true, ..isa.into() })?;
    let tokenizer = match open_tokenizer(directory) {
        Ok(tokenizer) => {
            let tokens = &model.config().tokens;
            let own = tokenizer.with_source_tokens(tokens.source_begin, tokens.source_end);
            Ok(Arc::new(own.with_same_language(is_same_language)))
        }
        Err(missing @ (TextError::NotFound { .. } | TextError::Unsupported { .. })) => {
            Err(Failure::from(missing))
        }
        // A broken file.
        Err(error) => return Err(error.into()),
    };
    Ok(Loaded { model: Arc::new(model), tokenizer, directory: directory.to_owned() })
}

/// The files of a directory that decide the results of its model, relative to it and sorted; without `weights` settings and
/// tokenizers only.
#[pyfunction]
#[pyo3(signature = (directory, *, weights))]
pub(crate) fn model_files(directory: PathBuf, weights: bool) -> PyResult<Vec<PathBuf>> {
    let mut files = simdformer_text::model_files::list(directory)?;
    files.retain(|file| weights || !simdformer_text::model_files::is_weights(file));
    Ok(files)
}

/// The files of a model with their lengths and times, sorted. A file system may have no times.
fn files(directory: &Path) -> io::Result<Vec<(PathBuf, u64, Option<SystemTime>)>> {
    let about = |file: PathBuf| {
        let data = std::fs::metadata(directory.join(&file))?;
        Ok((file, data.len(), data.modified().ok()))
    };
    simdformer_text::model_files::list(directory)?.into_iter().map(about).collect()
}

/// An error if a text has more tokens than the model takes; if `cuts` is set, only if its ids do.
pub(crate) fn check_length(
    loaded: &Loaded,
    encoded: &Encoded,
    cuts: bool,
    index: Option<usize>,
) -> Result<(), Failure> {
    let positions = loaded.model.config().max_positions(Side::Encoder).unwrap_or(usize::MAX);
    if encoded.ids.len() <= positions && (cuts || !encoded.truncated) {
        return Ok(());
    }
    let most = encoded.ids.len().min(positions);
    let failure = TextFailure::TooLong { tokens: encoded.tokens, most };
    Err(Failure::sentence(failure, Place { text: index, sentence: None }))
}
