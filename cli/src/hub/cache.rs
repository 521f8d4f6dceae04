//! The files of one model on disk, in the layout of the Python client, so that both share them.
//!
//! ```text
//! models--ORG--NAME/refs/main                        the commit of a branch or tag, written when all files are there
//! models--ORG--NAME/trees/COMMIT.json                the list of all files of a commit
//! models--ORG--NAME/blobs/CHECKSUM                   a whole file
//! models--ORG--NAME/.simdformer/CHECKSUM             size and times of a file whose checksum was verified
//! models--ORG--NAME/blobs/CHECKSUM.incomplete        the part of a file that has arrived
//! models--ORG--NAME/snapshots/COMMIT/config.json     a relative symbolic link to the blob
//! .locks/models--ORG--NAME/CHECKSUM.lock             held while a blob is written
//! ```
//!
//! Nothing reads a part: a part becomes a blob by renaming when its size and checksum are right, and only then a link
//! is made. A file that another program has brought is read once to compare its checksum. Without the list of files a
//! directory is never complete: it may lack files that no program has asked for yet.

use crate::hub::checksum;
use crate::hub::error::HubError;
use crate::hub::file_selection::select;
use crate::hub::listing::{Entry, Listing};
use crate::hub::model_name::{ModelName, is_hex};
use simdformer::atomic_file;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The largest JSON file that decides which files are needed: an index of shards.
const JSON_BYTES: u64 = 8 << 20;
/// The largest list of files.
const LISTING_BYTES: u64 = 64 << 20;
/// The largest note about a verified file.
const NOTE_BYTES: u64 = 512;

/// The folders of one model in a cache.
pub(crate) struct ModelCache {
    folder: PathBuf,
    locks: PathBuf,
}

impl ModelCache {
    pub(crate) fn new(cache: &Path, name: &ModelName) -> Self {
        let folder = name.folder();
        Self { folder: cache.join(&folder), locks: cache.join(".locks").join(&folder) }
    }

    /// The directory of a model at a commit.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// A file of a snapshot. `path` must be relative.
    pub(crate) fn file(&self, commit: &str, path: &str) -> PathBuf {
        path.split('/').fold(self.snapshot(commit), |folder, part| folder.join(part))
    }

    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(etag)
    }

    /// The part of a blob that has arrived.
    pub(crate) fn incomplete(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(format!("{etag}.incomplete"))
    }

    /// Whether a snapshot has a file, whole: of the size and the checksum of `entry`.
    pub(crate) fn is_whole(&self, commit: &str, path: &str, entry: &Entry) -> bool {
        self.verify(&self.file(commit, path), entry)
    }

    /// Whether a file has the size and the checksum of `entry`. It is read once: a note says what was verified, until the
    /// file changes.
    pub(crate) fn verify(&self, file: &Path, entry: &Entry) -> bool {
        let Some(stamp) = stamp(file, entry.size) else { return false };
        let noted = read_file(&self.note(entry), NOTE_BYTES);
        if noted.is_ok_and(|noted| noted == stamp.as_bytes()) {
            return true;
        }
        let is_whole = checksum::of_file(file, entry).is_ok_and(|found| found == entry.etag());
        if is_whole {
            self.write_note(&stamp, entry);
        }
        is_whole
    }

    /// Notes that a file has its checksum.
    pub(crate) fn note_verified(&self, file: &Path, entry: &Entry) {
        if let Some(stamp) = stamp(file, entry.size) {
            self.write_note(&stamp, entry);
        }
    }

    fn write_note(&self, stamp: &str, entry: &Entry) {
        // Without a note, as in a cache that is read-only, the file is read again the next time.
        let _ = write(&self.note(entry), stamp);
    }

    fn note(&self, entry: &Entry) -> PathBuf {
        self.folder.join(".simdformer").join(entry.etag())
    }

    /// Reads a JSON file of a snapshot.
    pub(crate) fn json(&self, commit: &str, path: &str) -> Result<Vec<u8>, HubError> {
        read_file(&self.file(commit, path), JSON_BYTES)
    }

    /// The commit that a branch or a tag was when its files were last complete.
    pub(crate) fn commit_of(&self, name: &ModelName) -> Option<String> {
        if let Some(commit) = name.commit() {
            return Some(commit.to_owned());
        }
        let bytes = read_file(&self.reference(name.revision()), 64).ok()?;
        let commit = str::from_utf8(&bytes).ok()?.trim();
        is_hex(commit, 40).then(|| commit.to_owned())
    }

    fn reference(&self, revision: &str) -> PathBuf {
        revision.split('/').fold(self.folder.join("refs"), |folder, part| folder.join(part))
    }

    /// Records the commit of a branch or a tag, whose files are complete.
    pub(crate) fn set_commit(&self, name: &ModelName, commit: &str) -> Result<(), HubError> {
        if self.commit_of(name).as_deref() == Some(commit) {
            return Ok(());
        }
        write(&self.reference(name.revision()), commit)
    }

    /// The list of files of a commit, if it is kept.
    pub(crate) fn listing(&self, commit: &str) -> Option<Listing> {
        let bytes = read_file(&self.listing_file(commit), LISTING_BYTES).ok()?;
        Listing::of_cache(commit, &bytes)
    }

    pub(crate) fn keep_listing(&self, listing: &Listing) -> Result<(), HubError> {
        write(&self.listing_file(&listing.commit), &listing.to_cache())
    }

    fn listing_file(&self, commit: &str) -> PathBuf {
        self.folder.join("trees").join(format!("{commit}.json"))
    }

    /// The directory of the model at the commit of `listing`, if it has all needed files, each whole.
    pub(crate) fn complete(&self, name: &ModelName, listing: &Listing) -> Option<PathBuf> {
        let commit = &listing.commit[..];
        let whole = |path: &str| -> Result<(), HubError> {
            let found = listing.get(path).is_some_and(|entry| self.is_whole(commit, path, entry));
            let missing =
                || HubError::file(&self.file(commit, path), 0, ErrorKind::NotFound.into());
            found.then_some(()).ok_or_else(missing)
        };
        let needed = select(name, &listing.names(), &mut |path| {
            whole(path)?;
            self.json(commit, path)
        });
        let complete = needed.and_then(|needed| needed.iter().try_for_each(|path| whole(path)));
        complete.is_ok().then(|| self.snapshot(commit))
    }

    /// Waits until no other process writes the blob. `waiting` is called if one does.
    pub(crate) fn lock(&self, etag: &str, waiting: &mut dyn FnMut()) -> Result<File, HubError> {
        let path = self.locks.join(format!("{etag}.lock"));
        let io = |error| HubError::file(&path, 0, error);
        fs::create_dir_all(&self.locks).map_err(io)?;
        loop {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false);
            let file = options.open(&path).map_err(io)?;
            match file.try_lock() {
                Ok(()) => (),
                Err(TryLockError::WouldBlock) => {
                    waiting();
                    file.lock().map_err(io)?;
                }
                // Some file systems have no locks. The checksum is compared in any case.
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => (),
                Err(TryLockError::Error(error)) => return Err(io(error)),
            }
            // The process that held the lock may have deleted the file.
            if is_at(&file, &path) {
                return Ok(file);
            }
        }
    }

    /// Makes the file of a snapshot a link to a blob.
    pub(crate) fn link(&self, commit: &str, path: &str, etag: &str) -> Result<(), HubError> {
        let link = self.file(commit, path);
        let io = |error| HubError::file(&link, 0, error);
        let folders = path.matches('/').count() + 2;
        let target = format!("{}blobs/{etag}", "../".repeat(folders));
        if let Some(folder) = link.parent() {
            fs::create_dir_all(folder).map_err(io)?;
        }
        match fs::remove_file(&link) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(error)),
            _ => (),
        }
        match symlink(Path::new(&target), &link) {
            Ok(()) => Ok(()),
            // Another process made it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            // There are no symbolic links here.
            Err(_) => fs::hard_link(self.blob(etag), &link).map_err(io),
        }
    }
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
}

/// Whether an open file is still the one at a path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// What changes when a file does; `None` if it is no regular file of this size.
fn stamp(path: &Path, size: u64) -> Option<String> {
    let about = fs::metadata(path).ok()?;
    if !about.is_file() || about.len() != size {
        return None;
    }
    #[cfg(unix)]
    let rest = {
        use std::os::unix::fs::MetadataExt;
        let (modified, changed) = (about.mtime_nsec(), about.ctime_nsec());
        let place = (about.dev(), about.ino());
        format!("{place:?} {} {modified} {} {changed}", about.mtime(), about.ctime())
    };
    #[cfg(not(unix))]
    let rest = format!("{:?}", about.modified().ok()?);
    Some(format!("{size} {rest}"))
}

/// Reads a file of at most `most` bytes.
fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, HubError> {
    let io = |error| HubError::file(path, 0, error);
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(io(io::Error::other("expected a regular file")));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes)).map_err(io)?;
    if bytes.len() as u64 > most {
        return Err(io(io::Error::other(format!("expected at most {most} bytes, found more"))));
    }
    Ok(bytes)
}

/// Writes a small file such that other processes see all of it or nothing.
fn write(path: &Path, text: &str) -> Result<(), HubError> {
    let io = |error| HubError::file(path, text.len() as u64, error);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(io)?;
    }
    atomic_file::write(path, text).map_err(io)
}
