//! The directory of a run: locked while the run uses it, and without checkpoints of another run.

use crate::checkpoints::Checkpoints;
use crate::checksummed_file;
use crate::error::{Error, conflict, other_run, unwritable};
use crate::layout::Layout;
use crate::saved_checkpoint::{LastCheckpoint, Saved};
use simdformer::atomic_file;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The directory to which a run writes.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    pub(crate) path: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) checkpoints: Checkpoints,
    /// The step of the run's latest checkpoint in this directory, if any.
    pub(crate) saved: Option<u64>,
    _lock: DirectoryLock,
}

impl RunDirectory {
    /// Locks `path`. The directory must have no checkpoint, or only checkpoints of the run `run`, of which `last` is
    /// the latest.
    pub(crate) fn open(
        path: &Path,
        layout: Layout,
        run: &str,
        last: Option<&LastCheckpoint>,
    ) -> Result<Self, Error> {
        let lock = DirectoryLock::acquire(path)?;
        let checkpoints = Checkpoints::new(path);
        checkpoints.recover()?;
        let found = checkpoints.list()?;
        if !found.is_empty() {
            check_last(path, &found, last)?;
            check_run(&found, run)?;
        }
        let saved = found.last().map(|(step, _)| *step);
        Ok(Self { path: path.to_owned(), layout, checkpoints, saved, _lock: lock })
    }
}

/// Checks, by checksum, that the latest checkpoint below `directory` is `last`.
fn check_last(
    directory: &Path,
    found: &[(u64, PathBuf)],
    last: Option<&LastCheckpoint>,
) -> Result<(), Error> {
    let is_last = |(step, path): &(u64, PathBuf)| {
        let seal = |saved: Saved| saved.last_checkpoint().seal;
        last.is_some_and(|last| {
            last.step == *step && Saved::read_state(path).map(seal).ok() == Some(last.seal)
        })
    };
    let all = || found.iter().map(|(step, _)| *step);
    let directory = directory.display().to_string();
    match found.iter().position(is_last) {
        Some(at) if at + 1 == found.len() => Ok(()),
        Some(at) => {
            let expected = format!(
                "step-{}, from which the run is resumed, to be the latest checkpoint",
                found[at].0
            );
            let later: Vec<u64> = all().skip(at + 1).collect();
            let found = format!(
                "{} after it; remove what is later, resume from the latest, or choose another directory",
                names(&later)
            );
            Err(conflict(directory, expected, found))
        }
        None => {
            let steps: Vec<u64> = all().collect();
            let found = format!(
                "{} of another run; resume from {} before the directory is set, or choose another directory",
                names(&steps),
                names(&steps[steps.len().saturating_sub(1)..])
            );
            Err(conflict(directory, "no checkpoint", found))
        }
    }
}

/// Checks that all readable checkpoints belong to the run `run`.
pub(crate) fn check_run(found: &[(u64, PathBuf)], run: &str) -> Result<(), Error> {
    for (_, path) in found {
        // A broken checkpoint belongs to no run; pruning deletes it later.
        let Ok(saved) = Saved::read_state(path) else { continue };
        if saved.run_identity() != run {
            return Err(other_run(saved.file(), "identity", saved.run_identity(), run));
        }
    }
    Ok(())
}

/// The names of the checkpoints of `steps`: all if they are few, otherwise the first and the last.
fn names(steps: &[u64]) -> String {
    const ALL: usize = 6;
    match steps {
        [first, .., last] if steps.len() > ALL => {
            format!("{} checkpoints from step-{first} to step-{last}", steps.len())
        }
        _ => steps.iter().map(|step| format!("step-{step}")).collect::<Vec<_>>().join(", "),
    }
}

/// The locked file. It is empty and is not removed after the run: if it were removed, another run could have just
/// opened the removed file and be about to lock it.
const LOCK_FILE: &str = "train.lock";

/// A lock that the operating system holds for one open file. It is released when this value is dropped and when the
/// process ends, so a killed process leaves no lock.
#[derive(Debug)]
struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Locks `directory`, which is created if it is missing. Returns an error immediately if another run, in this
    /// process or in another one, has locked it.
    fn acquire(directory: &Path) -> Result<Self, Error> {
        checksummed_file::create_directory(directory)?;
        let path = directory.join(LOCK_FILE);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(unwritable(&path))?;
        if atomic_file::try_lock(&file).map_err(unwritable(&path))? {
            return Ok(Self { _file: file });
        }
        let expected = format!("no lock on {}", path.display());
        let found = "one: it is locked by another run; wait for the end of that run or choose another directory";
        Err(conflict(directory.display().to_string(), expected, found))
    }
}
