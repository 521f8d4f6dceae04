//! The files of one saved checkpoint of a run: writes them into a new directory, reads and checks them.
//!
//! A directory has three parts. First, a checkpoint of the parameters. Second, `trainer.safetensors`, with the
//! moments and the average of every tensor by its tensor id, in row order, so that any instruction set can resume
//! from it. Third, `trainer.json`: the identity and progress of the run, its options, a checksum of the parameters,
//! and the length and checksum of every other file, so that weights and moments of two saves cannot be mixed.

use super::atomic_write::{self, Digest, Hash};
use super::checkpoint_content::Layout;
use super::faults::other_run;
use super::faults::wrong_state;
use super::faults::{unreadable, unwritable};
use super::memory_plan::StateRanges;
use super::options::Options;
use super::trainer::Trainer;
use crate::checkpoint::TensorId;
use crate::checkpoint::save::header;
use crate::error::Error;
use crate::memory::Span;
use core::ops::Range;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The version of the file format.
const VERSION: u64 = 3;
const STATE: &str = "trainer.json";
const TENSORS: &str = "trainer.safetensors";
/// Characters at the end of [`STATE`] that hold the checksum of the text before them.
const SEAL: usize = 33;

/// A float whose exact bits are stored.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Exact {
    /// For readers; not read back.
    value: Option<f64>,
    bits: u64,
}

impl From<f64> for Exact {
    fn from(value: f64) -> Self {
        Self { value: value.is_finite().then_some(value), bits: value.to_bits() }
    }
}

impl Exact {
    pub(super) fn value(self) -> f64 {
        f64::from_bits(self.bits)
    }
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) steps: u64,
    pub(super) skipped: u64,
    pub(super) epoch: u64,
    /// Batches of the epoch that were used.
    pub(super) position: u64,
    /// The step, including skipped steps, of the last validation.
    pub(super) validated: u64,
    pub(super) best_step: u64,
    pub(super) best: Option<Exact>,
    /// Validations since the best one.
    pub(super) patience: u64,
}

/// Settings that must be unchanged for the same bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Same {
    pub(super) seed: u64,
    pub(super) batches: String,
    pub(super) accumulate: u64,
    pub(super) sentences: u64,
    pub(super) data: String,
    pub(super) average: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct File {
    bytes: u64,
    hash: String,
}

/// The content of [`STATE`].
#[derive(Debug, Serialize, Deserialize)]
struct State {
    version: u64,
    crate_version: String,
    /// The identity of the run: see [`identity`].
    run: String,
    progress: Progress,
    same: Same,
    options: Options,
    /// The checksum of all parameters.
    parameters: String,
    files: BTreeMap<String, File>,
}

/// The one field that every version has.
#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// What a checkpoint stores about its run in addition to tensors.
pub(super) struct Description<'d> {
    pub(super) run: &'d str,
    pub(super) progress: Progress,
    pub(super) same: &'d Same,
    pub(super) options: Options,
}

/// The checkpoint that the run read or wrote last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastCheckpoint {
    /// The steps of the run at that checkpoint, including skipped steps.
    pub(super) step: u64,
    /// The checksum of its [`STATE`], which contains the checksums of all other files.
    pub(super) seal: u64,
}

/// The identity of a run that starts with the present state of `trainer`. Two runs with the same identity have the
/// same bits, except for hash collisions. The identity does not change when a run is resumed, even with other
/// options.
pub(super) fn identity(same: &Same, options: &Options, trainer: &Trainer<'_>) -> String {
    let Same { seed, batches, accumulate, sentences, data, average } = same;
    let mut hash = Hash::default();
    [*seed, *accumulate, *sentences, u64::from(*average)].into_iter().for_each(|x| hash.word(x));
    [batches, data].into_iter().for_each(|text| hash.text(text));
    for (name, text) in options {
        hash.text(name);
        hash.text(text);
    }
    hash.word(trainer.steps());
    hash.word(trainer.skipped());
    hash.word(parameters(trainer));
    format!("{:016x}", hash.value())
}

/// The checksum of all parameters, each with its tensor id.
fn parameters(trainer: &Trainer<'_>) -> u64 {
    let mut hash = Hash::default();
    for (role, _, numbers) in trainer.parameters() {
        hash.text(&role.to_string());
        hash.floats(numbers);
    }
    hash.value()
}

/// Writes all files of a checkpoint into `directory`, which no other process reads yet, and syncs them to disk.
/// Returns the checksum of the last file.
///
/// # Errors
/// A parameter, or a value of the average, is not finite; then no file is written. A file cannot be written.
pub(super) fn write(
    trainer: &Trainer<'_>,
    layout: &Layout,
    directory: &Path,
    Description { run, progress, same, options }: Description<'_>,
) -> Result<u64, Error> {
    trainer.check_whole()?;
    layout.check_numbers(&|role| trainer.parameter(role))?;
    if trainer.has_average() {
        let average = trainer.plan.state.average.of(trainer.state.floats());
        let of = |role| trainer.tensors.iter().find(|tensor| tensor.role == role);
        layout.check_numbers(&|role| average.get(of(role)?.range.clone()))?;
    }
    atomic_write::create_directory(directory)?;
    let mut written = layout.write_new(trainer, directory)?;
    written.push((TENSORS.to_owned(), write_moments(trainer, &directory.join(TENSORS))?));
    let files = written
        .into_iter()
        .map(|(name, Digest { bytes, hash })| (name, File { bytes, hash: format!("{hash:016x}") }));
    let state = State {
        version: VERSION,
        crate_version: env!("CARGO_PKG_VERSION").to_owned(),
        run: run.to_owned(),
        progress,
        same: same.clone(),
        options,
        parameters: format!("{:016x}", parameters(trainer)),
        files: files.collect(),
    };
    let text = sealed(&state).map_err(unwritable(&directory.join(STATE)))?;
    atomic_write::replace(&directory.join(STATE), |sink| sink.write(text.as_bytes()))?;
    Ok(hash(text.as_bytes()))
}

/// A checkpoint that was read.
#[derive(Debug)]
pub(super) struct Saved {
    directory: PathBuf,
    state: State,
    seal: u64,
}

impl Saved {
    /// Reads the state of a checkpoint, and checks every file of it.
    pub(super) fn read(directory: &Path) -> Result<Self, Error> {
        let saved = Self::read_state(directory)?;
        for (name, File { bytes, hash }) in &saved.state.files {
            let path = directory.join(name);
            let found = atomic_write::digest(&path)?;
            if found.bytes != *bytes || format!("{:016x}", found.hash) != *hash {
                let expected = format!("{bytes} bytes of checksum {hash}");
                let found =
                    format!("{} bytes of checksum {:016x}: it is broken", found.bytes, found.hash);
                return Err(Error::corrupt(path.display().to_string(), expected, found));
            }
        }
        Ok(saved)
    }

    /// Reads the state of a checkpoint, and no other file.
    pub(super) fn read_state(directory: &Path) -> Result<Self, Error> {
        let file = directory.join(STATE);
        let broken = |expected: String, found: String| {
            Error::corrupt(file.display().to_string(), expected, found)
        };
        let bytes = fs::read(&file).map_err(unreadable(&file))?;
        let expected = || format!("the state of a run, version {VERSION}");
        // Another version may have another checksum.
        if let Ok(Version { version }) = serde_json::from_slice(&bytes)
            && version != VERSION
        {
            return Err(broken(expected(), format!("version {version}")));
        }
        let text = unsealed(&bytes).ok_or_else(|| {
            let expected = "the text that was saved, with its checksum last".to_owned();
            broken(expected, format!("{} bytes that do not have it", bytes.len()))
        })?;
        let wrong = |error: serde_json::Error| broken(expected(), error.to_string());
        let state = serde_json::from_slice(text).map_err(wrong)?;
        Ok(Self { directory: directory.to_owned(), state, seal: hash(&bytes) })
    }

    /// The identity of the run.
    pub(super) fn run(&self) -> &str {
        &self.state.run
    }

    /// The path of the state file.
    pub(super) fn file(&self) -> String {
        self.directory.join(STATE).display().to_string()
    }

    /// The options of the run that wrote the checkpoint.
    pub(super) fn options(&self) -> &Options {
        &self.state.options
    }

    pub(super) fn last_checkpoint(&self) -> LastCheckpoint {
        let Progress { steps, skipped, .. } = self.state.progress;
        LastCheckpoint { step: steps + skipped, seal: self.seal }
    }

    /// Checks that the parameters of `trainer` equal those of this checkpoint, bit for bit.
    pub(super) fn check_parameters(&self, trainer: &Trainer<'_>) -> Result<(), Error> {
        let found = format!("{:016x}", parameters(trainer));
        if found == self.state.parameters {
            return Ok(());
        }
        let expected = format!(
            "a trainer with the parameters of this checkpoint, checksum {}",
            self.state.parameters
        );
        let found = format!("checksum {found}; open the trainer from the same directory");
        Err(Error::conflict(self.file(), expected, found))
    }

    /// The progress of the run, if `now` equals the saved settings.
    pub(super) fn progress(&self, now: &Same) -> Result<Progress, Error> {
        let saved = &self.state.same;
        let settings = [
            ("seed", saved.seed.to_string(), now.seed.to_string()),
            ("cut into batches", saved.batches.clone(), now.batches.clone()),
            ("number of batches a step", saved.accumulate.to_string(), now.accumulate.to_string()),
            ("number of sentences", saved.sentences.to_string(), now.sentences.to_string()),
            ("corpus", saved.data.clone(), now.data.clone()),
            ("choice of an average", saved.average.to_string(), now.average.to_string()),
        ];
        for (setting, expected, found) in settings {
            if expected != found {
                return Err(other_run(self.file(), setting, &expected, &found));
            }
        }
        Ok(self.state.progress.clone())
    }

    /// Restores the moments, the average and the step counts of a trainer. Its parameters already equal those of the
    /// checkpoint: see [`check_parameters`](Self::check_parameters).
    pub(super) fn restore(&self, trainer: &mut Trainer<'_>) -> Result<(), Error> {
        let file = self.directory.join(TENSORS);
        let bytes = fs::read(&file).map_err(unreadable(&file))?;
        let tensors = safetensors::SafeTensors::deserialize(&bytes).map_err(|error| {
            let found = format!("something else: {error}");
            Error::corrupt(file.display().to_string(), "tensors of a trainer", found)
        })?;
        // Check that all tensors exist before any is written.
        let parts = parts(trainer);
        for (prefix, _) in &parts {
            for (role, range) in owners(trainer) {
                numbers(&tensors, prefix, role, range.len())?;
            }
        }
        for (prefix, span) in parts {
            let owners: Vec<_> = owners(trainer).collect();
            for (role, range) in owners {
                let from = numbers(&tensors, prefix, role, range.len())?;
                let to = &mut span.of_mut(trainer.state.floats_mut())[range];
                let (from, _) = from.as_chunks::<4>();
                for (to, &from) in to.iter_mut().zip(from) {
                    *to = f32::from_le_bytes(from);
                }
            }
        }
        trainer.steps = self.state.progress.steps;
        trainer.skipped = self.state.progress.skipped;
        // An earlier gradient belongs to other moments.
        trainer.passes = 0;
        Ok(())
    }
}

/// The saved states of every tensor, with the span of each in the state buffer.
fn parts(trainer: &Trainer<'_>) -> Vec<(&'static str, Span<f32>)> {
    let StateRanges { first, second, average, .. } = &trainer.plan.state;
    let all = [("first", first), ("second", second), ("average", average)];
    let there = all.into_iter().filter(|(_, span)| span.bytes() > 0);
    there.map(|(prefix, span)| (prefix, span.clone())).collect()
}

/// Every tensor once, with its range among the parameters.
fn owners<'t>(trainer: &'t Trainer<'_>) -> impl Iterator<Item = (TensorId, Range<usize>)> + 't {
    let own = trainer.tensors.iter().filter(|tensor| !tensor.shared);
    own.map(|tensor| (tensor.role, tensor.range.clone()))
}

fn numbers<'t>(
    tensors: &'t safetensors::SafeTensors<'_>,
    prefix: &str,
    role: TensorId,
    expected: usize,
) -> Result<&'t [u8], Error> {
    let found = tensors.tensor(&format!("{prefix}.{role}")).ok();
    let bytes = found.filter(|found| found.dtype() == safetensors::Dtype::F32);
    let bytes = bytes.map_or(&[][..], |found| found.data());
    match bytes.len() == 4 * expected {
        true => Ok(bytes),
        false => Err(wrong_state(role, expected, bytes.len() / 4)),
    }
}

fn write_moments(trainer: &Trainer<'_>, file: &Path) -> Result<Digest, Error> {
    let parts = parts(trainer);
    let mut tensors = Vec::new();
    for (prefix, span) in &parts {
        let floats = span.of(trainer.state.floats());
        for (role, range) in owners(trainer) {
            tensors.push((format!("{prefix}.{role}"), [range.len()], &floats[range]));
        }
    }
    atomic_write::replace(file, |sink| {
        let entries = tensors.iter();
        let entries =
            entries.map(|(name, shape, _)| (&**name, "F32", &shape[..], 4 * shape[0] as u64));
        sink.write(&header(entries))?;
        for (_, _, floats) in &tensors {
            sink.write_f32(floats)?;
        }
        Ok(())
    })
}

/// The state as JSON whose last key is the checksum of the text before it.
fn sealed(state: &State) -> io::Result<String> {
    let text = serde_json::to_string_pretty(state)?;
    let open = text.trim_end_matches('}').trim_end();
    Ok(format!("{open},\n  \"hash\": \"{:016x}\"\n}}\n", hash(open.as_bytes())))
}

/// The state without its checksum, with the closing brace restored, if the checksum is correct.
fn unsealed(bytes: &[u8]) -> Option<&[u8]> {
    let text = bytes.get(..bytes.len().checked_sub(SEAL)?)?;
    let seal = format!(",\n  \"hash\": \"{:016x}\"\n}}\n", hash(text));
    (seal.as_bytes() == &bytes[text.len()..]).then_some(bytes)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = Hash::default();
    hash.bytes(bytes);
    hash.value()
}
