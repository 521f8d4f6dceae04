//! Atomic files with checksums.
//!
//! A file is written by [`AtomicFile`], which syncs and renames it. Directories are renamed in the same way.

use crate::error::{Error, unreadable, unwritable};
use simdformer::atomic_file::{self, AtomicFile};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

const BLOCK: usize = 1 << 16;

/// A checksum, XXH3 with 64 bits. It detects accidental corruption, not deliberate changes. Numbers are hashed in
/// little-endian byte order.
#[derive(Clone, Default)]
pub(crate) struct Hash(Xxh3);

impl Hash {
    pub(crate) fn word(&mut self, word: u64) {
        self.bytes(&word.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Hashes the length and the bytes, so that two texts hash differently from the same bytes split at another
    /// place.
    pub(crate) fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    /// Hashes the length and the bits of each float.
    pub(crate) fn floats(&mut self, numbers: &[f32]) {
        self.word(numbers.len() as u64);
        for numbers in numbers.chunks(256) {
            let mut bytes = [[0; 4]; 256];
            bytes.iter_mut().zip(numbers).for_each(|(bytes, x)| *bytes = x.to_le_bytes());
            self.bytes(bytes[..numbers.len()].as_flattened());
        }
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.digest()
    }
}

/// The length and the checksum of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) bytes: u64,
    pub(crate) hash: u64,
}

/// A file that is being written.
pub(crate) struct Sink {
    file: AtomicFile,
    path: PathBuf,
    /// Buffered bytes, fewer than a block.
    pending: Vec<u8>,
    digest: Digest,
    hash: Hash,
}

impl Sink {
    fn create(path: &Path) -> Result<Self, Error> {
        Ok(Self {
            file: AtomicFile::create(path).map_err(unwritable(path))?,
            path: path.to_owned(),
            pending: Vec::with_capacity(BLOCK),
            digest: Digest { bytes: 0, hash: 0 },
            hash: Hash::default(),
        })
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.pending.len()));
            self.pending.extend_from_slice(now);
            if self.pending.len() == BLOCK {
                self.flush()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Writes floats in little-endian byte order.
    pub(crate) fn write_f32(&mut self, numbers: &[f32]) -> Result<(), Error> {
        numbers.iter().try_for_each(|x| self.write(&x.to_le_bytes()))
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.hash.bytes(&self.pending);
        self.digest.bytes += self.pending.len() as u64;
        self.file.write_all(&self.pending).map_err(unwritable(&self.path))?;
        self.pending.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Digest, Error> {
        self.flush()?;
        self.file.finish().map_err(unwritable(&self.path))?;
        self.digest.hash = self.hash.value();
        Ok(self.digest)
    }
}

/// Creates or replaces a file atomically; returns its digest.
pub(crate) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut Sink) -> Result<(), Error>,
) -> Result<Digest, Error> {
    let mut sink = Sink::create(path)?;
    fill(&mut sink)?;
    sink.finish()
}

/// `path` with `.tmp` appended to its name.
pub(crate) fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    path.with_file_name(name)
}

/// As [`atomic_file::rename`].
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    atomic_file::rename(from, to).map_err(unwritable(to))
}

/// As [`atomic_file::create_directory`].
pub(crate) fn create_directory(path: &Path) -> Result<(), Error> {
    atomic_file::create_directory(path).map_err(unwritable(path))
}

/// The digest of an existing file.
pub(crate) fn digest(path: &Path) -> Result<Digest, Error> {
    let mut file = File::open(path).map_err(unreadable(path))?;
    let mut block = vec![0; BLOCK];
    let mut hash = Hash::default();
    let mut bytes = 0;
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(Digest { bytes, hash: hash.value() }),
            Ok(read) => {
                hash.bytes(&block[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(path)(error)),
        }
    }
}
