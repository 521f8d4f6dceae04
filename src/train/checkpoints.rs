//! The checkpoints of a run: `checkpoints/step-N` below a directory, each there as a whole or not at all.
//!
//! A checkpoint is written into `step-N.tmp` and renamed. Where there is one of the same step, that one becomes `step-N.old`
//! for the moment between two renames. So whenever the process or the machine stops, each step has a whole checkpoint
//! as `step-N` or as `step-N.old`, and what is called `.tmp` is unfinished.

use super::atomic_write;
use super::checkpoint_layout::Layout;
use super::run_error::{RunError, about};
use super::state::{self, Description};
use super::trainer::Trainer;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "checkpoints";
const STEP: &str = "step-";
const OLD: &str = ".old";
const UNFINISHED: &str = ".tmp";

/// The checkpoints below a directory.
#[derive(Clone, Debug)]
pub(super) struct Checkpoints {
    folder: PathBuf,
}

/// What a name in the folder stands for.
enum Kind {
    Whole(u64),
    /// Whole, and in the way of one that replaces it.
    Old(u64),
    Unfinished,
    UnsupportedFormat,
}

impl Checkpoints {
    pub(super) fn new(directory: &Path) -> Self {
        Self { folder: directory.join(FOLDER) }
    }

    /// The number of steps of each checkpoint, ascending, and where it is. Nothing is changed, so no lock is needed.
    pub(super) fn list(&self) -> Result<Vec<(u64, PathBuf)>, RunError> {
        let mut found = BTreeMap::new();
        for (kind, path) in self.entries()? {
            match kind {
                Kind::Whole(step) => {
                    found.insert(step, path);
                }
                Kind::Old(step) => {
                    found.entry(step).or_insert(path);
                }
                Kind::Unfinished | Kind::UnsupportedFormat => {}
            }
        }
        Ok(found.into_iter().collect())
    }

    fn entries(&self) -> Result<Vec<(Kind, PathBuf)>, RunError> {
        let mut entries = Vec::new();
        if !self.folder.exists() {
            return Ok(entries);
        }
        for entry in fs::read_dir(&self.folder).map_err(about(&self.folder))? {
            let path = entry.map_err(about(&self.folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            entries.push((kind(&name), path));
        }
        Ok(entries)
    }

    fn directory(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{STEP}{step}"))
    }

    /// Brings the folder to order after a process that stopped in the middle: a checkpoint that was not replaced in the end
    /// gets its name back, and what is unfinished goes. Only the run that has locked the directory calls it.
    pub(super) fn recover(&self) -> Result<(), RunError> {
        for (kind, path) in self.entries()? {
            match kind {
                Kind::Old(step) => {
                    let place = self.directory(step);
                    match place.exists() {
                        true => fs::remove_dir_all(&path).map_err(about(&path))?,
                        false => atomic_write::rename(&path, &place)?,
                    }
                }
                Kind::Unfinished => fs::remove_dir_all(&path).map_err(about(&path))?,
                Kind::Whole(_) | Kind::UnsupportedFormat => {}
            }
        }
        Ok(())
    }

    /// Writes the checkpoint of `step`, in place of one of the same step, and removes all but the newest `keep` of those up
    /// to this one. Returns where it is, and the checksum of its state. Only the run that has locked the directory
    /// calls it.
    ///
    /// # Errors
    /// As [`state::write`]; the checkpoints that are there stay.
    pub(super) fn save(
        &self,
        (step, keep): (u64, usize),
        trainer: &Trainer<'_>,
        layout: &Layout,
        description: Description<'_>,
    ) -> Result<(PathBuf, u64), RunError> {
        self.recover()?;
        let place = self.directory(step);
        let beside = atomic_write::beside(&place);
        let seal = state::write(trainer, layout, &beside, description)?;
        if place.exists() {
            let old = self.folder.join(format!("{STEP}{step}{OLD}"));
            atomic_write::rename(&place, &old)?;
            if let Err(error) = atomic_write::rename(&beside, &place) {
                // If this fails too, the next start does it.
                let _ = atomic_write::rename(&old, &place);
                return Err(error);
            }
            fs::remove_dir_all(&old).map_err(about(&old))?;
        } else {
            atomic_write::rename(&beside, &place)?;
        }
        self.prune(step, keep)?;
        Ok((place, seal))
    }

    /// Keeps `newest`, and of those before it as many as `keep` leaves room for. Later ones are none of this run's business.
    fn prune(&self, newest: u64, keep: usize) -> Result<(), RunError> {
        let steps = self.list()?;
        let own = steps.into_iter().rev().filter(|(step, _)| *step <= newest);
        for (_, old) in own.skip(keep.max(1)) {
            // First under the name of an unfinished one, so that half of it is never taken for a whole.
            let going = atomic_write::beside(&old);
            atomic_write::rename(&old, &going)?;
            fs::remove_dir_all(&going).map_err(about(&going))?;
        }
        Ok(())
    }
}

fn kind(name: &str) -> Kind {
    let Some(rest) = name.strip_prefix(STEP) else { return Kind::UnsupportedFormat };
    if rest.ends_with(UNFINISHED) {
        return Kind::Unfinished;
    }
    let (number, old) = match rest.strip_suffix(OLD) {
        Some(number) => (number, true),
        None => (rest, false),
    };
    // As it is written here, without zeros or a sign before it.
    match number.parse::<u64>().ok().filter(|step| step.to_string() == number) {
        Some(step) if old => Kind::Old(step),
        Some(step) => Kind::Whole(step),
        None => Kind::UnsupportedFormat,
    }
}
