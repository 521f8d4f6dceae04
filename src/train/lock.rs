//! The lock of a directory: one run at a time writes below it.

use super::atomic_write;
use super::run_error::{RunError, about};
use std::fs::{File, TryLockError};
use std::path::Path;

/// The file that is locked. It is empty and stays after the run: a file that is removed could still be the one that
/// another run has just opened and is about to lock.
const FILE: &str = "train.lock";

/// A lock that the operating system holds for one open file. It is released when this is dropped and when the process
/// ends, however it ends, so no lock is left behind by a process that was killed.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Locks `directory`, which is created if it is missing; an error at once if another run has locked it, in this process
    /// or in another one.
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
