//! Replaces a file as a whole: a reader of the path finds the old file or the new one, never a part.
//!
//! The new file is written under a temporary name in the same directory, synced to disk, and renamed. The temporary
//! name is random, and the file is created only if the name is free. Two processes that replace one path therefore
//! never share a file, and a link is never followed. After the rename the directory is synced too, because it holds the
//! name.

use core::hash::{BuildHasher, Hasher};
use std::fs::{self, File, OpenOptions};
use std::hash::RandomState;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of names that are tried. A random name is taken once in 2^64 times, unless another program creates
/// such files.
const ATTEMPTS: usize = 16;

/// Writes a file with `fill` and renames it to `path`. After an error the old file is unchanged. A killed process
/// leaves a file `.simdformer-*.part` in the directory.
pub(crate) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    replace_with(path, &mut random_name, fill, sync_directory)
}

fn replace_with(
    path: &Path,
    next_name: &mut dyn FnMut() -> String,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
    sync_directory: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    if path.file_name().is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path does not name a file"));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let (mut file, temporary) = create(directory, next_name)?;
    fill(&mut file)?;
    file.sync_all()?;
    // Some systems cannot rename an open file.
    drop(file);
    temporary.rename(path)?;
    sync_directory(directory)
}

/// A file that is deleted unless it is renamed, also if `fill` panics.
struct Temporary(Option<PathBuf>);

impl Temporary {
    fn rename(mut self, to: &Path) -> io::Result<()> {
        if let Some(path) = &self.0 {
            fs::rename(path, to)?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The caller returns the first error, so this one is ignored.
            let _ = fs::remove_file(path);
        }
    }
}

/// Creates a new file in `directory`.
fn create(
    directory: &Path,
    next_name: &mut dyn FnMut() -> String,
) -> io::Result<(File, Temporary)> {
    let mut attempts = 1;
    loop {
        let path = directory.join(next_name());
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, Temporary(Some(path)))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts < ATTEMPTS => {
                attempts += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn random_name() -> String {
    // The keys of `RandomState` come from the system's random numbers, so processes and machines get different names.
    format!(".simdformer-{:016x}.part", RandomState::new().build_hasher().finish())
}

/// Syncs the directory to disk if the system supports it: Windows cannot open a directory, and a directory that is not
/// readable, or one of some network file systems, cannot be synced.
fn sync_directory(directory: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        Err(error) if [InvalidInput, PermissionDenied, Unsupported].contains(&error.kind()) => {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("simdformer-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("the folder").flatten();
            let mut names: Vec<String> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A name that is taken, by a file or a link, is not changed, and another name is tried; at last an error is
    /// returned.
    #[test]
    fn an_existing_name_is_not_replaced() {
        let folder = Folder::new("atomic-taken");
        let (path, taken) = (folder.0.join("file"), folder.0.join("taken"));
        let victim = folder.0.join("victim");
        fs::write(&victim, "dear").expect("written");
        #[cfg(unix)]
        std::os::unix::fs::symlink(&victim, &taken).expect("a link");
        #[cfg(not(unix))]
        fs::write(&taken, "dear").expect("written");
        let mut names = ["free", "taken"].map(str::to_owned).to_vec();
        let mut next = || names.pop().expect("a name");
        replace_with(&path, &mut next, |file| file.write_all(b"new"), |_| Ok(()))
            .expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"new");
        assert_eq!(
            (fs::read(&victim).expect("read"), fs::read(&taken).expect("read")),
            (b"dear".to_vec(), b"dear".to_vec())
        );
        let mut always = || "taken".to_owned();
        let error = replace_with(&path, &mut always, |_| Ok(()), |_| Ok(())).expect_err("no name");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(folder.names(), ["file", "taken", "victim"]);
    }

    /// The directory is synced after the rename, and an error of the sync is returned.
    #[test]
    fn the_directory_is_synced_after_the_rename() {
        let folder = Folder::new("atomic-sync");
        let path = folder.0.join("file");
        let mut synced = Vec::new();
        let sync = |directory: &Path| {
            synced.push((directory.to_owned(), fs::read(&path).expect("already there")));
            Err(io::Error::other("the disk is gone"))
        };
        let found = replace_with(&path, &mut random_name, |file| file.write_all(b"new"), sync);
        assert_eq!(found.expect_err("told").to_string(), "the disk is gone");
        assert_eq!(synced, [(folder.0.clone(), b"new".to_vec())]);
        sync_directory(&folder.0).expect("synced");
        assert!(!cfg!(unix) || sync_directory(&folder.0.join("none")).is_err());
    }

    #[test]
    fn a_writer_that_fails_or_panics_leaves_the_old_file() {
        let folder = Folder::new("atomic-fails");
        let path = folder.0.join("file");
        replace(&path, |file| file.write_all(b"old")).expect("replaced");
        let fails = |file: &mut File| file.write_all(b"new").and(Err(io::Error::other("no")));
        assert_eq!(replace(&path, fails).expect_err("told").to_string(), "no");
        let panics = || replace(&path, |_| panic!("no"));
        std::panic::catch_unwind(panics).expect_err("a panic");
        assert_eq!(fs::read(&path).expect("read"), b"old");
        assert_eq!(folder.names(), ["file"]);
        for path in ["", "/", ".."] {
            let error = replace(Path::new(path), |_| Ok(())).expect_err("no file");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        assert_ne!(random_name(), random_name());
    }
}
