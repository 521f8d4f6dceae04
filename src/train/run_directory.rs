//! The directory of a run: locked while the run uses it, and without checkpoints of another run.

use super::checkpoint_layout::Layout;
use super::checkpoints::Checkpoints;
use super::lock::DirectoryLock;
use super::run_error::RunError;
use super::state::{LastCheckpoint, Saved};
use std::path::{Path, PathBuf};

/// The directory to which a run writes.
#[derive(Debug)]
pub(super) struct RunDirectory {
    pub(super) path: PathBuf,
    pub(super) layout: Layout,
    pub(super) checkpoints: Checkpoints,
    /// The step of the run's latest checkpoint in this directory, if any.
    pub(super) saved: Option<u64>,
    _lock: DirectoryLock,
}

impl RunDirectory {
    /// Locks `path`. The directory must have no checkpoint, or only checkpoints of the run `run`, of which `last` is
    /// the latest.
    pub(super) fn open(
        path: &Path,
        layout: Layout,
        run: &str,
        last: Option<&LastCheckpoint>,
    ) -> Result<Self, RunError> {
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
) -> Result<(), RunError> {
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
            let (resumed, later) = (found[at].0, all().skip(at + 1).collect());
            Err(RunError::LaterCheckpoints { directory, resumed, later })
        }
        None => Err(RunError::DirectoryHasCheckpoints { directory, steps: all().collect() }),
    }
}

/// Checks that all readable checkpoints belong to the run `run`.
pub(super) fn check_run(found: &[(u64, PathBuf)], run: &str) -> Result<(), RunError> {
    for (_, path) in found {
        // A broken checkpoint belongs to no run; pruning deletes it later.
        let Ok(saved) = Saved::read_state(path) else { continue };
        if saved.run() != run {
            let (file, setting) = (saved.file(), "identity");
            let (expected, found) = (saved.run().to_owned(), run.to_owned());
            return Err(RunError::OtherRun { file, setting, expected, found });
        }
    }
    Ok(())
}
