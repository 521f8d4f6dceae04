//! Files that appear when they are complete: a reader of the path finds the old file or the new one, never a part.
//!
//! Everything that the packages of simdformer write goes through [`AtomicFile`]. The new file is written
//! under a temporary name in the directory of the destination, synced to disk, and renamed. The temporary name is random,
//! and the file is created only if the name is free. Two processes that replace one path therefore never share a file.
//! After the rename the directory is synced too, because it holds the name.
//!
//! Of the destination these stay: a symbolic link (the file that it leads to is replaced) and the permission bits. The
//! owner is the one of the process, and other hard links keep the old content. A device, a pipe and the files of
//! `/proc/self/fd` are no files that could be replaced: they are written to directly.

use core::hash::{BuildHasher, Hasher};
use std::fs::{self, File, OpenOptions};
use std::hash::RandomState;
use std::io::{self, BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of names that are tried. A random name is taken once in 2^64 times, unless another program creates
/// such files.
const ATTEMPTS: usize = 16;
/// Maximum number of links that are followed, as in Linux.
const LINKS: usize = 40;

/// A buffered file that replaces the one at its path by [`finish`](Self::finish). Without it nothing has changed: the
/// temporary file is deleted when the value is dropped, also by a panic. A killed process leaves a file
/// `.simdformer-*.part`.
///
/// ```
/// use simdformer_atomic_file::AtomicFile;
/// use std::io::Write;
///
/// # let path = std::env::temp_dir().join(format!("doc-atomic-{}", std::process::id()));
/// let mut file = AtomicFile::create(&path)?;
/// file.write_all(b"all of it")?;
/// assert!(!path.exists());
/// file.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"all of it");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<File>,
    /// The temporary file and the destination; `None` for what is written to directly.
    place: Option<(Temporary, PathBuf)>,
}

impl AtomicFile {
    /// Creates the temporary file for `path`.
    ///
    /// # Errors
    /// `path` names no file, or a directory; the file cannot be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::create_with(path.as_ref(), &mut random_name)
    }

    fn create_with(path: &Path, next_name: &mut dyn FnMut() -> String) -> io::Result<Self> {
        let Some(path) = replaced_file(path)? else {
            let file = OpenOptions::new().append(true).open(path)?;
            return Ok(Self { file: BufWriter::new(file), place: None });
        };
        let old = match fs::metadata(&path) {
            Ok(old) if old.is_dir() => return Err(ErrorKind::IsADirectory.into()),
            Ok(old) => Some(old),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let (file, temporary) = create(directory_of(&path), next_name)?;
        if let Some(old) = old {
            keep_mode(&file, &old)?;
        }
        Ok(Self { file: BufWriter::new(file), place: Some((temporary, path)) })
    }

    /// Writes what is buffered, syncs the file and renames it to its path.
    ///
    /// # Errors
    /// The system cannot write, sync or rename; the file at the path is the old one then, unless only the directory
    /// could not be synced.
    pub fn finish(self) -> io::Result<()> {
        self.finish_with(|directory| sync_directory(directory))
    }

    fn finish_with(self, sync: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let Self { file, place } = self;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let Some((temporary, path)) = place else { return unless_unsupported(file.sync_all()) };
        file.sync_all()?;
        // Some systems cannot rename an open file.
        drop(file);
        temporary.rename(&path)?;
        sync(directory_of(&path))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Replaces the file at `path` by what `fill` writes. After an error the old file is unchanged.
///
/// # Errors
/// As [`AtomicFile`]; those of `fill`.
pub fn replace(
    path: impl AsRef<Path>,
    fill: impl FnOnce(&mut AtomicFile) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    fill(&mut file)?;
    file.finish()
}

/// Replaces the file at `path` by these bytes.
///
/// # Errors
/// As [`AtomicFile`].
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    replace(path, |file| file.write_all(bytes.as_ref()))
}

/// Renames a file or a directory, and syncs the directory with the new name. A file that is replaced gives its
/// permission bits to the new one.
///
/// # Errors
/// The system cannot rename or sync.
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if let (Ok(file), Ok(old)) = (File::open(from), fs::metadata(to))
        && old.is_file()
    {
        keep_mode(&file, &old)?;
    }
    fs::rename(from, to)?;
    sync_directory(directory_of(to))
}

/// Creates a directory and its missing parents, and syncs each new name: if the name of a directory is lost in a crash,
/// the files in it are lost, too.
///
/// # Errors
/// The system cannot create or sync a directory.
pub fn create_directory(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    create_directory(directory_of(path))?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_directory(directory_of(path)),
    }
}

/// Syncs the names in a directory to disk if the system supports it: Windows cannot open a directory, and a directory that
/// is not readable, or one of some network file systems, cannot be synced.
///
/// # Errors
/// The system supports it and fails.
pub fn sync_directory(directory: impl AsRef<Path>) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    match synced {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => unless_unsupported(synced),
    }
}

/// The file that a write to `path` replaces: without symbolic links at its end; there need not be one. `None` for a
/// device, a pipe or an open file, which is not replaced.
///
/// # Errors
/// The path does not name a file; there are more than 40 links.
pub fn replaced_file(path: impl AsRef<Path>) -> io::Result<Option<PathBuf>> {
    let given = path.as_ref();
    if given.file_name().is_none() {
        let reason = "the path does not name a file";
        return Err(io::Error::new(ErrorKind::InvalidInput, reason));
    }
    if fs::metadata(given).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(None);
    }
    let mut path = given.to_owned();
    for _ in 0..LINKS {
        // `/dev/stdout` is an open file, and what is written to it comes after what others wrote.
        if cfg!(target_os = "linux") && path.starts_with("/proc") {
            return Ok(None);
        }
        match fs::read_link(&path) {
            Ok(target) => path = directory_of(&path).join(target),
            Err(_) => return Ok(Some(path)),
        }
    }
    Err(io::Error::other(format!("expected at most {LINKS} symbolic links, found more")))
}

/// Whether two paths lead to one regular file: by symbolic or hard links, by another spelling, or because the file system
/// ignores case. False if one of them does not exist.
///
/// # Errors
/// The system cannot say what is at a path.
pub fn is_same_file(one: impl AsRef<Path>, other: impl AsRef<Path>) -> io::Result<bool> {
    let about = |path: &Path| match fs::metadata(path) {
        Ok(about) => Ok(Some(about).filter(fs::Metadata::is_file)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    };
    let (one, other) = (one.as_ref(), other.as_ref());
    match (about(one)?, about(other)?) {
        #[cfg(unix)]
        (Some(a), Some(b)) => {
            use std::os::unix::fs::MetadataExt;
            Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
        }
        #[cfg(not(unix))]
        (Some(_), Some(_)) => Ok(fs::canonicalize(one)? == fs::canonicalize(other)?),
        _ => Ok(false),
    }
}

/// Locks a file until it is closed: `false` if another open file has the lock.
///
/// A process that another thread has just started holds every lock of this process until it runs its own program. So
/// the lock is asked for during 100 ms.
///
/// # Errors
///
/// The system cannot lock the file.
pub fn try_lock(file: &File) -> io::Result<bool> {
    for _ in 0..50 {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            Err(fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

/// The directory of a path.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Gives a new file the permission bits of the old one. A file system without them refuses that.
fn keep_mode(file: &File, old: &fs::Metadata) -> io::Result<()> {
    match file.set_permissions(old.permissions()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        kept => unless_unsupported(kept),
    }
}

fn unless_unsupported(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if [ErrorKind::InvalidInput, ErrorKind::Unsupported].contains(&error.kind()) => {
            Ok(())
        }
        done => done,
    }
}

/// A file that is deleted unless it is renamed, also if its writer panics.
#[derive(Debug)]
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
            Err(error) if error.kind() == ErrorKind::AlreadyExists && attempts < ATTEMPTS => {
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

/// The program of the README, compiled and run by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("simdformer-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
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

    /// Writes with these names.
    fn replace_with(path: &Path, next: &mut dyn FnMut() -> String, text: &str) -> io::Result<()> {
        let mut file = AtomicFile::create_with(path, next)?;
        file.write_all(text.as_bytes())?;
        file.finish()
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
        replace_with(&path, &mut || names.pop().expect("a name"), "new").expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"new");
        assert_eq!(
            (fs::read(&victim).expect("read"), fs::read(&taken).expect("read")),
            (b"dear".to_vec(), b"dear".to_vec())
        );
        let error = replace_with(&path, &mut || "taken".to_owned(), "").expect_err("no name");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
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
        let mut file = AtomicFile::create(&path).expect("created");
        file.write_all(b"new").expect("written");
        let found = file.finish_with(sync);
        assert_eq!(found.expect_err("told").to_string(), "the disk is gone");
        assert_eq!(synced, [(folder.0.clone(), b"new".to_vec())]);
        sync_directory(&folder.0).expect("synced");
        assert!(!cfg!(unix) || sync_directory(folder.0.join("none")).is_err());
    }

    #[test]
    fn a_writer_that_fails_or_panics_leaves_the_old_file() {
        let folder = Folder::new("atomic-fails");
        let path = folder.0.join("file");
        replace(&path, |file| file.write_all(b"old")).expect("replaced");
        let fails = |file: &mut AtomicFile| file.write_all(b"new").and(Err(io::Error::other("no")));
        assert_eq!(replace(&path, fails).expect_err("told").to_string(), "no");
        let panics = || replace(&path, |_| panic!("no"));
        std::panic::catch_unwind(panics).expect_err("a panic");
        assert_eq!(fs::read(&path).expect("read"), b"old");
        assert_eq!(folder.names(), ["file"]);
        for path in ["", "/", ".."] {
            let error = replace(Path::new(path), |_| Ok(())).expect_err("no file");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{path:?}");
        }
        assert_eq!(
            replace(&folder.0, |_| Ok(())).expect_err("told").kind(),
            ErrorKind::IsADirectory
        );
        assert_ne!(random_name(), random_name());
    }

    /// Every kind of destination x every mode: the link and the mode stay, and nothing else appears.
    #[cfg(unix)]
    #[test]
    fn links_and_modes_of_the_destination_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        for kind in ["new", "file", "link", "chain", "dangling", "relative", "linked folder"] {
            for mode in [0o600, 0o640, 0o644, 0o755, 0o444] {
                let folder = Folder::new("atomic-modes");
                let (path, real) = (folder.0.join("path"), folder.0.join("real"));
                fs::create_dir(folder.0.join("below")).expect("a folder");
                let place = match kind {
                    "new" | "file" => &path,
                    "linked folder" => &folder.0.join("below/path"),
                    _ => &real,
                };
                let has_old = !["new", "dangling"].contains(&kind);
                if has_old {
                    fs::write(place, "old").expect("written");
                    fs::set_permissions(place, fs::Permissions::from_mode(mode)).expect("a mode");
                }
                let given = match kind {
                    "link" | "dangling" => symlink(&real, &path).map(|()| path.clone()),
                    "relative" => symlink("real", &path).map(|()| path.clone()),
                    "chain" => symlink("path", folder.0.join("first"))
                        .and_then(|()| symlink("./below/../real", &path))
                        .map(|()| folder.0.join("first")),
                    "linked folder" => symlink("below", folder.0.join("other"))
                        .map(|()| folder.0.join("other/path")),
                    _ => Ok(path.clone()),
                };
                let given = given.expect("a link");
                let before = folder.names();
                replace(&given, |file| file.write_all(b"new")).expect("replaced");
                assert_eq!(fs::read(place).expect("read"), b"new", "{kind}");
                let about = fs::symlink_metadata(place).expect("there");
                assert!(about.is_file());
                let found = about.permissions().mode() & 0o777;
                assert!(!has_old || found == mode, "{kind}: {found:o}, expected {mode:o}");
                let mut after = folder.names();
                if !has_old {
                    after.retain(|name| place.file_name() != Some(name.as_ref()));
                }
                assert_eq!(after, before, "{kind}");
            }
        }
    }

    /// A renamed file has the mode of the file that it replaces, or else its own; a directory has its own.
    #[cfg(unix)]
    #[test]
    fn a_renamed_file_has_the_mode_of_the_replaced_one() {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        for of_old in [None, Some(0o600), Some(0o640), Some(0o444)] {
            for own in [0o644, 0o400] {
                let folder = Folder::new("atomic-rename");
                let (from, to) = (folder.0.join("from"), folder.0.join("to"));
                for (path, of_file) in [(&from, Some(own)), (&to, of_old)] {
                    let Some(of_file) = of_file else { continue };
                    fs::write(path, path.as_os_str().as_encoded_bytes()).expect("written");
                    let of_file = fs::Permissions::from_mode(of_file);
                    fs::set_permissions(path, of_file).expect("a mode");
                }
                rename(&from, &to).expect("renamed");
                assert_eq!(mode(&to), of_old.unwrap_or(own), "{of_old:?}");
                assert_eq!(folder.names(), ["to"]);
                let content = fs::read(&to);
                assert!(content.is_err() || content.is_ok_and(|it| it.ends_with(b"from")));
            }
        }
        let folder = Folder::new("atomic-rename-folder");
        let (from, to) = (folder.0.join("from"), folder.0.join("to"));
        for path in [&from, &to] {
            fs::create_dir(path).expect("a folder");
        }
        fs::set_permissions(&to, fs::Permissions::from_mode(0o700)).expect("a mode");
        let own = mode(&from);
        rename(&from, &to).expect("renamed");
        assert_eq!(mode(&to), own);
    }

    /// What is not a file is written to and stays; a full device is an error.
    #[cfg(target_os = "linux")]
    #[test]
    fn devices_and_pipes_are_written_to_directly() {
        use std::os::unix::fs::FileTypeExt;
        replace("/dev/null", |file| file.write_all(b"text")).expect("written");
        assert!(fs::metadata("/dev/null").expect("there").file_type().is_char_device());
        for length in [1, 100_000] {
            let full = replace("/dev/full", |file| file.write_all(&vec![0; length]));
            assert_eq!(full.expect_err("full").kind(), ErrorKind::StorageFull);
        }
        // An open file, as `/dev/stdout` is: what comes first stays.
        let folder = Folder::new("atomic-open");
        let path = folder.0.join("file");
        let mut open = File::create(&path).expect("created");
        open.write_all(b"first ").expect("written");
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        replace(&link, |file| file.write_all(b"second")).expect("written");
        assert_eq!(fs::read(&path).expect("read"), b"first second");
        assert_eq!(folder.names(), ["file"]);
    }

    #[cfg(unix)]
    #[test]
    fn one_file_has_many_paths() {
        use std::os::unix::fs::symlink;
        let folder = Folder::new("atomic-same");
        let file = folder.0.join("file");
        fs::write(&file, "same").expect("written");
        fs::write(folder.0.join("other"), "same").expect("written");
        symlink("file", folder.0.join("link")).expect("a link");
        fs::hard_link(&file, folder.0.join("hard")).expect("a link");
        fs::create_dir(folder.0.join("below")).expect("a folder");
        for (name, expected) in [
            ("file", true),
            ("./file", true),
            ("below/../file", true),
            ("link", true),
            ("hard", true),
            ("other", false),
            ("none", false),
            ("file/none", false),
            ("below", false),
        ] {
            assert_eq!(is_same_file(&file, folder.0.join(name)).ok(), Some(expected), "{name}");
        }
        assert_eq!(is_same_file(&folder.0, &folder.0).ok(), Some(false));
    }

    /// Processes that other threads start do not take the lock of a file that was closed.
    #[cfg(unix)]
    #[test]
    fn a_closed_file_can_be_locked_while_processes_start() {
        let folder = Folder::new("atomic-lock");
        let path = folder.0.join("file");
        let lock = || try_lock(&File::create(&path).unwrap()).unwrap();
        std::thread::scope(|scope| {
            let processes = scope.spawn(|| {
                for _ in 0..100 {
                    std::process::Command::new("true").status().unwrap();
                }
            });
            while !processes.is_finished() {
                assert!(lock());
            }
        });
        let held = File::open(&path).unwrap();
        assert!(try_lock(&held).unwrap());
        assert!(!lock());
    }
}
