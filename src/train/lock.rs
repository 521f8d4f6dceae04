//! The lock of a directory: only one run at a time writes below it.

use super::atomic_write;
use super::run_error::{RunError, about};
use std::fs::{File, TryLockError};
use std::path::Path;

/// The locked file. It is empty and is not removed after the run: if it were removed, another run could have just
/// opened the removed file and be about to lock it.
const FILE: &str = "train.lock";

/// A lock that the operating system holds for one open file. It is released when this value is dropped and when the
/// process ends, so a killed process leaves no lock.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Locks `directory`, which is created if it is missing. Returns an error immediately if another run, in this
    /// process or in another one, has locked it.
    pub(super) fn acquire(directory: &Path) -> Result<Self, RunError> {
        atomic_write::create_directory(directory)?;
        let path = directory.join(FILE);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(about(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => {
                let (directory, file) =
                    (directory.display().to_string(), path.display().to_string());
                Err(RunError::DirectoryLocked { directory, file })
            }
            Err(TryLockError::Error(error)) => Err(about(&path)(error)),
        }
    }
}
