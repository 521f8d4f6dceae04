//! The files of one saved checkpoint of a run: writes them into a new directory, reads and checks them.
//!
//! A directory has three parts. First, a checkpoint of the parameters. Second, `trainer.safetensors`, with the
//! moments and the average of every tensor by its tensor id, in row order, so that any instruction set can resume
//! from it. Third, `trainer.json`: the identity and progress of the run, its options, a checksum of the parameters,
//! and the length and checksum of every other file, so that weights and moments of two saves cannot be mixed.

use crate::checksummed_file::{self, Digest, Hash};
use crate::error::{Error, conflict, corrupt, other_run, unreadable, unwritable, wrong_state};
use crate::layout::Layout;
use crate::options::Options;
use serde::{Deserialize, Serialize};
use simdformer::checkpoint::{TensorId, safetensors_header};
use simdformer::train::{StatePart, Trainer};
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
pub(crate) struct Exact {
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
    pub(crate) fn value(self) -> f64 {
        f64::from_bits(self.bits)
    }
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) steps: u64,
    pub(crate) skipped: u64,
    pub(crate) epoch: u64,
    /// Batches of the epoch that were used.
    pub(crate) position: u64,
    /// The step, including skipped steps, of the last validation.
    pub(crate) validated: u64,
    pub(crate) best_step: u64,
    pub(crate) best: Option<Exact>,
    /// Validations since the best one.
    pub(crate) patience: u64,
}

/// Settings that must be unchanged for the same bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Same {
    pub(crate) seed: u64,
    pub(crate) batches: String,
    pub(crate) accumulate: u64,
    pub(crate) sentences: u64,
    pub(crate) data: String,
    pub(crate) average: bool,
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
pub(crate) struct Description<'d> {
    pub(crate) run: &'d str,
    pub(crate) progress: Progress,
    pub(crate) same: &'d Same,
    pub(crate) options: Options,
}

/// The checkpoint that the run read or wrote last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastCheckpoint {
    /// The steps of the run at that checkpoint, including skipped steps.
    pub(crate) step: u64,
    /// The checksum of its [`STATE`], which contains the checksums of all other files.
    pub(crate) seal: u64,
}

/// The identity of a run that starts with the present state of `trainer`. Two runs with the same identity have the
/// same bits, except for hash collisions. The identity does not change when a run is resumed, even with other
/// options.
pub(crate) fn identity(same: &Same, options: &Options, trainer: &Trainer<'_>) -> String {
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
pub(crate) fn write(
    trainer: &Trainer<'_>,
    layout: &Layout,
    directory: &Path,
    Description { run, progress, same, options }: Description<'_>,
) -> Result<u64, Error> {
    trainer.check_whole()?;
    layout.check_numbers(&|role| trainer.parameter(role))?;
    if trainer.has_average() {
        layout.check_numbers(&|role| trainer.state(StatePart::Average, role))?;
    }
    checksummed_file::create_directory(directory)?;
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
    checksummed_file::replace(&directory.join(STATE), |sink| sink.write(text.as_bytes()))?;
    Ok(hash(text.as_bytes()))
}

/// A checkpoint that was read.
#[derive(Debug)]
pub(crate) struct Saved {
    directory: PathBuf,
    state: State,
    seal: u64,
}

impl Saved {
    /// Reads the state of a checkpoint, and checks every file of it.
    pub(crate) fn from_directory(directory: &Path) -> Result<Self, Error> {
        let saved = Self::read_state(directory)?;
        for (name, File { bytes, hash }) in &saved.state.files {
            let path = directory.join(name);
            let found = checksummed_file::digest(&path)?;
            if found.bytes != *bytes || format!("{:016x}", found.hash) != *hash {
                let expected = format!("{bytes} bytes of checksum {hash}");
                let found =
                    format!("{} bytes of checksum {:016x}: it is broken", found.bytes, found.hash);
                return Err(corrupt(path.display().to_string(), expected, found));
            }
        }
        Ok(saved)
    }

    /// Reads the state of a checkpoint, and no other file.
    pub(crate) fn read_state(directory: &Path) -> Result<Self, Error> {
        let file = directory.join(STATE);
        let broken =
            |expected: String, found: String| corrupt(file.display().to_string(), expected, found);
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
    pub(crate) fn run_identity(&self) -> &str {
        &self.state.run
    }

    /// The path of the state file.
    pub(crate) fn file(&self) -> String {
        self.directory.join(STATE).display().to_string()
    }

    /// The options of the run that wrote the checkpoint.
    pub(crate) fn options(&self) -> &Options {
        &self.state.options
    }

    pub(crate) fn last_checkpoint(&self) -> LastCheckpoint {
        let Progress { steps, skipped, .. } = self.state.progress;
        LastCheckpoint { step: steps + skipped, seal: self.seal }
    }

    /// Checks that the parameters of `trainer` equal those of this checkpoint, bit for bit.
    pub(crate) fn check_parameters(&self, trainer: &Trainer<'_>) -> Result<(), Error> {
        let found = format!("{:016x}", parameters(trainer));
        if found == self.state.parameters {
            return Ok(());
        }
        let expected = format!(
            "a trainer with the parameters of this checkpoint, checksum {}",
            self.state.parameters
        );
        let found = format!("checksum {found}; open the trainer from the same directory");
        Err(conflict(self.file(), expected, found))
    }

    /// The progress of the run, if `now` equals the saved settings.
    pub(crate) fn progress(&self, now: &Same) -> Result<Progress, Error> {
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
    pub(crate) fn restore(&self, trainer: &mut Trainer<'_>) -> Result<(), Error> {
        let file = self.directory.join(TENSORS);
        let bytes = fs::read(&file).map_err(unreadable(&file))?;
        let tensors = safetensors::SafeTensors::deserialize(&bytes).map_err(|error| {
            let found = format!("something else: {error}");
            corrupt(file.display().to_string(), "tensors of a trainer", found)
        })?;
        let found = |part, role| {
            let found = tensors.tensor(&state_name(part, role)).ok();
            let bytes = found.filter(|found| found.dtype() == safetensors::Dtype::F32);
            bytes.map_or(&[][..], |found| found.data())
        };
        // Check that all tensors exist before any is written.
        for (part, role, numbers) in state(trainer) {
            let bytes = found(part, role).len();
            if bytes != 4 * numbers.len() {
                return Err(wrong_state(role, numbers.len(), bytes / 4));
            }
        }
        let Progress { steps, skipped, .. } = self.state.progress;
        trainer.restore([steps, skipped], |part, role, to| {
            let (from, _) = found(part, role).as_chunks::<4>();
            to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from_le_bytes(*from));
        });
        Ok(())
    }
}

/// Every part of the state of every tensor.
fn state<'t>(
    trainer: &'t Trainer<'_>,
) -> impl Iterator<Item = (StatePart, TensorId, &'t [f32])> + use<'t> {
    StatePart::ALL.into_iter().flat_map(move |part| {
        let tensors = trainer.parameters();
        tensors.filter_map(move |(role, ..)| Some((part, role, trainer.state(part, role)?)))
    })
}

/// The name of a part of the state of a tensor in [`TENSORS`].
fn state_name(part: StatePart, role: TensorId) -> String {
    let part = match part {
        StatePart::FirstMoment => "first",
        StatePart::SecondMoment => "second",
        StatePart::Average => "average",
    };
    format!("{part}.{role}")
}

fn write_moments(trainer: &Trainer<'_>, file: &Path) -> Result<Digest, Error> {
    let tensors = state(trainer)
        .map(|(part, role, numbers)| (state_name(part, role), [numbers.len()], numbers))
        .collect::<Vec<_>>();
    checksummed_file::replace(file, |sink| {
        let entries = tensors.iter();
        let entries =
            entries.map(|(name, shape, _)| (&**name, "F32", &shape[..], 4 * shape[0] as u64));
        sink.write(&safetensors_header(entries))?;
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
