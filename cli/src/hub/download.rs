//! Downloads a file: continues a part, repeats what fails, and compares size and checksum before it is used.

use crate::hub::cache::ModelCache;
use crate::hub::checksum::{self, BLOCK};
use crate::hub::client::{Attempts, Client, Reply, encoded, host};
use crate::hub::error::HubError;
use crate::hub::listing::Entry;
use crate::hub::model_name::{ModelName, is_hex};
use indicatif::ProgressBar;
use ring::digest::Context;
use simdformer::atomic_file;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// The most requests for one file, so that a server that sends a byte at a time comes to an end.
const REQUESTS: usize = 1000;

/// What downloads of one model have in common.
pub(crate) struct Download<'d> {
    pub(crate) client: &'d Client<'d>,
    pub(crate) cache: &'d ModelCache,
    pub(crate) name: &'d ModelName,
    pub(crate) commit: &'d str,
    pub(crate) bar: ProgressBar,
    pub(crate) notes: &'d mut dyn Write,
    pub(crate) quiet: bool,
}

/// The part of a file that has arrived.
struct Part<'e> {
    path: PathBuf,
    file: File,
    entry: &'e Entry,
    digest: Context,
    /// Its bytes.
    length: u64,
    /// The most bytes that it ever had.
    longest: u64,
    /// Whether they came in more than one answer.
    is_continued: bool,
}

impl Download<'_> {
    /// Brings a file into the snapshot.
    pub(crate) fn file(&mut self, path: &str, entry: &Entry) -> Result<(), HubError> {
        let (cache, etag) = (self.cache, entry.etag());
        if cache.is_whole(self.commit, path, entry) {
            self.bar.inc(entry.size);
            return Ok(());
        }
        let (notes, quiet) = (&mut *self.notes, self.quiet);
        let _lock = cache.lock(etag, &mut || {
            if !quiet {
                // If the note cannot be written, waiting is still right.
                let _ = writeln!(notes, "simdformer: another process downloads {path}, waiting");
            }
        })?;
        let blob = cache.blob(etag);
        if cache.verify(&blob, entry) {
            self.bar.inc(entry.size);
        } else {
            self.blob(path, entry)?;
        }
        cache.link(self.commit, path, etag)
    }

    /// Downloads the blob of a file.
    fn blob(&mut self, path: &str, entry: &Entry) -> Result<(), HubError> {
        let mut part = Part::open(self.cache.incomplete(entry.etag()), entry)?;
        self.bar.set_message(path.to_owned());
        self.bar.inc(part.length);
        let mut is_second = false;
        loop {
            self.receive(path, &mut part)?;
            let found = part.checksum();
            if found == entry.etag() {
                break;
            }
            // The answers may be of different files. It is tried once more from the beginning.
            let is_last = is_second || !part.is_continued;
            is_second = true;
            self.forget(&mut part)?;
            part.longest = 0;
            if is_last {
                let _ = fs::remove_file(&part.path);
                let (file, expected) = (path.to_owned(), entry.etag().to_owned());
                return Err(HubError::Checksum { file, expected, found });
            }
        }
        let blob = self.cache.blob(entry.etag());
        // A rename may reach the disk before the bytes do.
        part.file.sync_all().map_err(|error| HubError::file(&part.path, 0, error))?;
        atomic_file::rename(&part.path, &blob).map_err(|error| HubError::file(&blob, 0, error))?;
        self.cache.note_verified(&blob, entry);
        Ok(())
    }

    /// Requests what is missing until the part has the size of the file.
    fn receive(&self, path: &str, part: &mut Part<'_>) -> Result<(), HubError> {
        let size = part.entry.size;
        let mut attempts = Attempts::new(self.client.environment.retries);
        for _ in 0..REQUESTS {
            if part.length == size {
                return Ok(());
            }
            let before = part.longest;
            let outcome = self.receive_once(path, part);
            part.longest = part.longest.max(part.length);
            let error = match outcome {
                Ok(()) if part.longest > before || part.length == size => continue,
                Ok(()) => HubError::Interrupted {
                    host: host(&self.client.environment.endpoint),
                    reason: format!("{path} ended at byte {} of {size}", part.length),
                },
                Err(error) => error,
            };
            if part.longest > before {
                attempts.reset();
            }
            attempts.wait_after(error)?;
        }
        let found = format!("{} in {REQUESTS} requests", part.length);
        Err(HubError::Size { file: path.to_owned(), expected: size, found })
    }

    /// One request, whose bytes are added to the part.
    fn receive_once(&self, path: &str, part: &mut Part<'_>) -> Result<(), HubError> {
        let url = format!(
            "{}/{}/resolve/{}/{}",
            self.client.environment.endpoint,
            self.name.repository(),
            self.commit,
            encoded(path, true)
        );
        let reply = self.client.get(&url, part.length)?;
        // A checksum of another kind, as mirrors may send, says nothing.
        let expected = part.entry.etag();
        let same_kind = |found: &&str| is_hex(found, expected.len());
        if let Some(found) =
            reply.etag.as_deref().filter(same_kind).filter(|&found| found != expected)
        {
            let (file, expected) = (path.to_owned(), expected.to_owned());
            return Err(HubError::Changed { file, expected, found: found.to_owned() });
        }
        match reply.status {
            // The whole file, whether or not a part of it was requested.
            200 => {
                let size = part.entry.size;
                if let Some(found) = reply.length().filter(|&length| length != size) {
                    let (file, found) = (path.to_owned(), format!("a body of {found}"));
                    return Err(HubError::Size { file, expected: size, found });
                }
                self.forget(part)?;
            }
            206 if continues(&reply, part) => part.is_continued = true,
            // The server has another idea of the file's size or of its parts. Without a part no range is requested.
            206 | 416 if part.length > 0 => return self.forget(part),
            _ => return Err(self.client.refusal(&reply, self.name)),
        }
        let (mut body, url) = reply.into_body();
        let mut block = vec![0; BLOCK];
        loop {
            let read = match body.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.client.interrupted(&url, error)),
            };
            if part.length + read as u64 > part.entry.size {
                let (file, expected) = (path.to_owned(), part.entry.size);
                let found = "a body that is longer".to_owned();
                // The bytes before may be wrong, too.
                part.clear()?;
                return Err(HubError::Size { file, expected, found });
            }
            part.add(&block[..read])?;
            self.bar.inc(read as u64);
        }
    }

    /// Begins a part again.
    fn forget(&self, part: &mut Part<'_>) -> Result<(), HubError> {
        self.bar.set_position(self.bar.position().saturating_sub(part.length));
        part.clear()
    }
}

/// Whether an answer begins with the next byte of a part, of a file of the same size.
fn continues(reply: &Reply, part: &Part<'_>) -> bool {
    let Some(range) = reply.header("content-range") else { return false };
    let Some((range, total)) = range.trim().trim_start_matches("bytes ").split_once('/') else {
        return false;
    };
    let first = range.split('-').next().and_then(|first| first.parse().ok());
    first == Some(part.length) && (total == "*" || total.parse() == Ok(part.entry.size))
}

impl<'e> Part<'e> {
    /// Opens what an earlier run left, or a new file, and computes the checksum of its bytes.
    fn open(path: PathBuf, entry: &'e Entry) -> Result<Self, HubError> {
        let io = |error| HubError::file(&path, entry.size, error);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(io)?;
        }
        // Nothing is written through a link.
        if fs::symlink_metadata(&path).is_ok_and(|about| about.is_symlink()) {
            fs::remove_file(&path).map_err(io)?;
        }
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        let mut length = file.metadata().map_err(io)?.len();
        if length > entry.size {
            file.set_len(0).map_err(io)?;
            length = 0;
        }
        let mut digest = checksum::begin(entry);
        let mut block = vec![0; BLOCK];
        let mut left = length;
        while left > 0 {
            let most = BLOCK.min(usize::try_from(left).unwrap_or(BLOCK));
            let read = file.read(&mut block[..most]).map_err(io)?;
            if read == 0 {
                break;
            }
            digest.update(&block[..read]);
            left -= read as u64;
        }
        let length = length - left;
        Ok(Self { path, file, entry, digest, length, longest: length, is_continued: length > 0 })
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        let more = self.entry.size - self.length;
        let written =
            self.file.seek(SeekFrom::Start(self.length)).and_then(|_| self.file.write_all(bytes));
        written.map_err(|error| HubError::file(&self.path, more, error))?;
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Deletes the bytes.
    fn clear(&mut self) -> Result<(), HubError> {
        self.file.set_len(0).map_err(|error| HubError::file(&self.path, 0, error))?;
        self.digest = checksum::begin(self.entry);
        (self.length, self.is_continued) = (0, false);
        Ok(())
    }

    /// The checksum of the bytes, in hexadecimal digits.
    fn checksum(&self) -> String {
        checksum::finish(self.digest.clone())
    }
}
