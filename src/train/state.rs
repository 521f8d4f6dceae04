//! Where a run stands, on disk: a directory for each save, which is there as a whole or not at all.
//!
//! A directory has the checkpoint of the parameters as they are; `trainer.safetensors`, with the moments and the average of
//! every tensor by its role, row after row, so that any instruction set goes on from it; and `trainer.json`: how far the
//! run is, what must be as it was, and the length and checksum of every other file, so that weights and moments of two saves
//! never meet.

use super::durable::{self, Digest, Hash};
use super::error::TrainError;
use super::layout::{Layout, write_header};
use super::run_error::{RunError, about};
use super::trainer::Trainer;
use crate::checkpoint::Role;
use core::fmt;
use core::ops::Range;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Changes when files are written otherwise.
const VERSION: u64 = 1;
const STATE: &str = "trainer.json";
const TENSORS: &str = "trainer.safetensors";
/// Characters at the end of [`STATE`]: the checksum of those before.
const SEAL: usize = 33;
const SAVES: &str = "checkpoints";
const STEP: &str = "step-";

/// A number that cannot be lost in print.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Exact {
    /// For people.
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

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) steps: u64,
    pub(super) skipped: u64,
    pub(super) epoch: u64,
    /// Batches taken of the epoch.
    pub(super) position: u64,
    /// The attempts at a step at which it was last validated.
    pub(super) validated: u64,
    pub(super) best_step: u64,
    pub(super) best: Option<Exact>,
    /// Validations since.
    pub(super) patience: u64,
}

/// What must be as it was, so that the bits are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Same {
    pub(super) seed: u64,
    pub(super) batches: String,
    pub(super) accumulate: u64,
    pub(super) sentences: u64,
    pub(super) data: String,
    pub(super) average: bool,
}

#[derive(Serialize, Deserialize)]
struct File {
    bytes: u64,
    hash: String,
}

#[derive(Serialize, Deserialize)]
struct State {
    version: u64,
    crate_version: String,
    progress: Progress,
    same: Same,
    files: BTreeMap<String, File>,
}

/// Where a run keeps what it saves: `checkpoints/step-N` below a directory.
#[derive(Clone, Debug)]
pub(super) struct Saves {
    folder: PathBuf,
    keep: usize,
}

impl Saves {
    pub(super) fn new(directory: &Path, keep: usize) -> Self {
        Self { folder: directory.join(SAVES), keep: keep.max(1) }
    }

    /// The numbers of steps after which something was saved, ascending.
    pub(super) fn steps(&self) -> Result<Vec<u64>, RunError> {
        let mut steps = Vec::new();
        if !self.folder.exists() {
            return Ok(steps);
        }
        for entry in fs::read_dir(&self.folder).map_err(about(&self.folder))? {
            let name = entry.map_err(about(&self.folder))?.file_name();
            let step = name.to_str().and_then(|name| name.strip_prefix(STEP)?.parse::<u64>().ok());
            steps.extend(step);
        }
        steps.sort_unstable();
        Ok(steps)
    }

    pub(super) fn directory(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{STEP}{step}"))
    }

    /// Saves, and removes what is too old; `attempts` names the directory.
    pub(super) fn save(
        &self,
        attempts: u64,
        trainer: &Trainer<'_>,
        layout: &Layout,
        (progress, same): (Progress, Same),
    ) -> Result<PathBuf, RunError> {
        let place = self.directory(attempts);
        if place.exists() {
            // The same step of the same run has the same bits.
            return Ok(place);
        }
        self.clear()?;
        let beside = durable::beside(&place);
        fs::create_dir_all(&beside).map_err(about(&beside))?;
        let mut written = layout.write_new(trainer, &beside)?;
        written.push((TENSORS.to_owned(), write_moments(trainer, &beside.join(TENSORS))?));
        let files = written.into_iter().map(|(name, Digest { bytes, hash })| {
            (name, File { bytes, hash: format!("{hash:016x}") })
        });
        let state = State {
            version: VERSION,
            crate_version: env!("CARGO_PKG_VERSION").to_owned(),
            progress,
            same,
            files: files.collect(),
        };
        let text = sealed(&state);
        durable::write(&beside.join(STATE), |sink| sink.write(text.as_bytes()))?;
        durable::sync(&beside)?;
        durable::rename(&beside, &place)?;
        self.prune()?;
        Ok(place)
    }

    /// Removes what somebody who died has left half done.
    fn clear(&self) -> Result<(), RunError> {
        if !self.folder.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(&self.folder).map_err(about(&self.folder))? {
            let path = entry.map_err(about(&self.folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(STEP) && name.ends_with(".tmp") {
                fs::remove_dir_all(&path).map_err(about(&path))?;
            }
        }
        Ok(())
    }

    fn prune(&self) -> Result<(), RunError> {
        let steps = self.steps()?;
        for &step in steps.iter().rev().skip(self.keep) {
            let old = self.directory(step);
            // Under a name that nobody goes on from, so that half of it is never taken for a whole.
            let going = durable::beside(&old);
            durable::rename(&old, &going)?;
            fs::remove_dir_all(&going).map_err(about(&going))?;
        }
        Ok(())
    }
}

/// A save that was found whole.
#[derive(Debug)]
pub(super) struct Saved {
    directory: PathBuf,
    state: State,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("progress", &self.progress)
            .field("same", &self.same)
            .finish_non_exhaustive()
    }
}

impl Saved {
    /// Reads what a save says of itself, and checks every file that it has.
    pub(super) fn read(directory: &Path) -> Result<Self, RunError> {
        let file = directory.join(STATE);
        let name = || file.display().to_string();
        let bytes = fs::read(&file).map_err(about(&file))?;
        let text = unsealed(&bytes).ok_or_else(|| RunError::Broken {
            file: name(),
            expected: "the text that was saved, with its checksum last".to_owned(),
            found: format!("{} bytes that do not have it", bytes.len()),
        })?;
        let state: State = serde_json::from_slice(text).map_err(|error| RunError::Broken {
            file: name(),
            expected: format!("the state of a run, version {VERSION}"),
            found: error.to_string(),
        })?;
        if state.version != VERSION {
            let (expected, found) = (format!("version {VERSION}"), state.version.to_string());
            return Err(RunError::Broken { file: name(), expected, found });
        }
        for (name, File { bytes, hash }) in &state.files {
            let path = directory.join(name);
            let found = durable::digest(&path)?;
            if found.bytes != *bytes || format!("{:016x}", found.hash) != *hash {
                return Err(RunError::Broken {
                    file: path.display().to_string(),
                    expected: format!("{bytes} bytes of checksum {hash}"),
                    found: format!("{} bytes of checksum {:016x}", found.bytes, found.hash),
                });
            }
        }
        Ok(Self { directory: directory.to_owned(), state })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// How far the run was, if `now` is as it was then.
    pub(super) fn progress(&self, now: &Same) -> Result<Progress, RunError> {
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
                let file = self.directory.join(STATE).display().to_string();
                return Err(RunError::OtherRun { file, setting, expected, found });
            }
        }
        Ok(self.state.progress.clone())
    }

    /// Brings the moments, the average and the counts of steps of a trainer to what they were. Its parameters are those
    /// of the checkpoint in the same directory already.
    pub(super) fn restore(&self, trainer: &mut Trainer<'_>) -> Result<(), RunError> {
        let file = self.directory.join(TENSORS);
        let bytes = fs::read(&file).map_err(about(&file))?;
        let tensors = safetensors::SafeTensors::deserialize(&bytes).map_err(|error| {
            let expected = "tensors of a trainer".to_owned();
            RunError::Broken {
                file: file.display().to_string(),
                expected,
                found: error.to_string(),
            }
        })?;
        // All are there before one is written.
        let parts = parts(trainer);
        for (prefix, _) in &parts {
            for (role, range) in owners(trainer) {
                numbers(&tensors, prefix, role, range.len())?;
            }
        }
        for (prefix, start) in parts {
            let owners: Vec<_> = owners(trainer).collect();
            for (role, range) in owners {
                let from = numbers(&tensors, prefix, role, range.len())?;
                let to = &mut trainer.state.floats_mut()[start + range.start..start + range.end];
                let (from, _) = from.as_chunks::<4>();
                for (to, &from) in to.iter_mut().zip(from) {
                    *to = f32::from_le_bytes(from);
                }
            }
        }
        trainer.steps = self.state.progress.steps;
        trainer.skipped = self.state.progress.skipped;
        Ok(())
    }
}

/// What is kept of every tensor, and where in the state it begins.
fn parts(trainer: &Trainer<'_>) -> Vec<(&'static str, usize)> {
    let plan = &trainer.plan;
    let all = [("first", &plan.first), ("second", &plan.second), ("average", &plan.average)];
    let there = all.into_iter().filter(|(_, range)| !range.is_empty());
    there.map(|(prefix, range)| (prefix, range.start)).collect()
}

/// Every tensor once, and its place among the parameters.
fn owners<'t>(trainer: &'t Trainer<'_>) -> impl Iterator<Item = (Role, Range<usize>)> + 't {
    let own = trainer.tensors.iter().filter(|tensor| !tensor.shared);
    own.map(|tensor| (tensor.role, tensor.range.clone()))
}

fn numbers<'t>(
    tensors: &'t safetensors::SafeTensors<'_>,
    prefix: &str,
    role: Role,
    expected: usize,
) -> Result<&'t [u8], RunError> {
    let found = tensors.tensor(&format!("{prefix}.{role}")).ok();
    let bytes = found.filter(|found| found.dtype() == safetensors::Dtype::F32);
    let bytes = bytes.map_or(&[][..], |found| found.data());
    match bytes.len() == 4 * expected {
        true => Ok(bytes),
        false => Err(TrainError::State { role, expected, found: bytes.len() / 4 }.into()),
    }
}

fn write_moments(trainer: &Trainer<'_>, file: &Path) -> Result<Digest, RunError> {
    let parts = parts(trainer);
    let mut tensors = Vec::new();
    for &(prefix, start) in &parts {
        for (role, range) in owners(trainer) {
            let shape = [range.len()];
            tensors.push((format!("{prefix}.{role}"), shape, start + range.start));
        }
    }
    durable::write(file, |sink| {
        let header = tensors.iter();
        let header =
            header.map(|(name, shape, _)| (&**name, "F32", &shape[..], 4 * shape[0] as u64));
        write_header(header, sink)?;
        for &(_, [len], start) in &tensors {
            sink.write_f32(&trainer.state.floats()[start..start + len])?;
        }
        Ok(())
    })
}

/// The state as JSON whose last key is the checksum of what comes before it.
fn sealed(state: &State) -> String {
    let text = serde_json::to_string_pretty(state).unwrap_or_default();
    let open = text.trim_end_matches('}').trim_end();
    format!("{open},\n  \"hash\": \"{:016x}\"\n}}\n", hash(open.as_bytes()))
}

/// The state without its checksum, closed again, if that is right.
fn unsealed(bytes: &[u8]) -> Option<&[u8]> {
    let text = bytes.get(..bytes.len().checked_sub(SEAL)?)?;
    let seal = format!(",\n  \"hash\": \"{:016x}\"\n}}\n", hash(text));
    (seal.as_bytes() == &bytes[text.len()..]).then_some(bytes)
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = Hash::default();
    hash.word(bytes.len() as u64);
    hash.bytes(bytes);
    hash.value()
}
