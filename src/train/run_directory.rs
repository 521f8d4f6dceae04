//! The directory of a run: locked for as long as the run has it, and with no checkpoint of another run.

use super::checkpoint_layout::Layout;
use super::checkpoints::Checkpoints;
use super::lock::DirectoryLock;
use super::run_error::RunError;
use super::state::{LastCheckpoint, Saved};
use std::path::{Path, PathBuf};

/// Where a run keeps what it makes.
#[derive(Debug)]
pub(super) struct RunDirectory {
    pub(super) path: PathBuf,
    pub(super) layout: Layout,
    pub(super) checkpoints: Checkpoints,
    /// The steps of the run at its latest checkpoint here, if it has one.
    pub(super) saved: Option<u64>,
    _lock: DirectoryLock,
}

impl RunDirectory {
    /// Locks `path`. It may have no checkpoint, or those of the run called `run`, whose `last` is the latest of them.
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

/// Whether the latest of the checkpoints below `directory` is `last`, known by its checksum.
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

/// Whether all checkpoints that can be read are those of the run called `run`.
pub(super) fn check_run(found: &[(u64, PathBuf)], run: &str) -> Result<(), RunError> {
    for (_, path) in found {
        // One that is broken is nobody's, and goes when it is old enough.
        let Ok(saved) = Saved::read_state(path) else { continue };
        if saved.run() != run {
            let (file, setting) = (saved.file(), "identity");
            let (expected, found) = (saved.run().to_owned(), run.to_owned());
            return Err(RunError::OtherRun { file, setting, expected, found });
        }
    }
    Ok(())
}
