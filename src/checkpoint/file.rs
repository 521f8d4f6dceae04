//! Bytes at an offset, from a file or from memory.
//!
//! Files are read by position and never mapped. A mapping would count towards resident memory as long as it lives, so
//! that loading would peak at the file plus the packed weights, and a file that somebody shortens would kill the
//! process; a positional read costs one copy, straight into the caller's buffer, and fails with an error.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::CheckpointError;
use super::unsupported_formats::UnsupportedFormat;
use crate::sanitize::sanitized;

/// Where the bytes of one safetensors file, or of one tensor in memory, are.
pub(super) struct Source<'c> {
    name: String,
    bytes: Bytes<'c>,
}

enum Bytes<'c> {
    File(Positioned, u64),
    Memory(Cow<'c, [u8]>),
}

impl<'c> Source<'c> {
    pub(super) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let name = path.display().to_string();
        match open_file(path).map_err(|error| unreadable(&name, error))? {
            Some((file, len)) => Ok(Self { name, bytes: Bytes::File(Positioned::new(file), len) }),
            None => Err(CheckpointError::NotAFile { file: name }),
        }
    }

    pub(super) fn memory(bytes: Cow<'c, [u8]>) -> Self {
        Self { name: "memory".to_owned(), bytes: Bytes::Memory(bytes) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::File(_, len) => *len,
            Bytes::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `out` with the bytes from `offset` on.
    pub(super) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), CheckpointError> {
        let result = match &self.bytes {
            Bytes::File(file, _) => file.read_exact_at(out, offset),
            Bytes::Memory(bytes) => {
                let begin = usize::try_from(offset).ok();
                let range = begin.and_then(|begin| Some(begin..begin.checked_add(out.len())?));
                match range.and_then(|range| bytes.get(range)) {
                    Some(bytes) => {
                        out.copy_from_slice(bytes);
                        Ok(())
                    }
                    None => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
        };
        result.map_err(|error| unreadable(&self.name, error))
    }
}

/// Bytes by which a file in another format is known.
const BEGIN: usize = 512;

/// An error if `source` begins as the files of other programs do, or as messages.
pub(super) fn disguised(source: &Source<'_>) -> Result<(), CheckpointError> {
    let mut begin = [0; BEGIN];
    let begin = &mut begin[..source.len().min(BEGIN as u64) as usize];
    source.read_at(0, begin)?;
    match UnsupportedFormat::of_bytes(begin) {
        Some(found) => Err(foreign(source.name(), found, begin)),
        None => Ok(()),
    }
}

fn foreign(name: &str, found: UnsupportedFormat, begin: &[u8]) -> CheckpointError {
    const SAID: usize = 80;
    let says = match found {
        UnsupportedFormat::Message => sanitized(String::from_utf8_lossy(begin).trim(), SAID),
        _ => String::new(),
    };
    CheckpointError::ForeignWeights { file: name.to_owned(), found, says }
}

/// The text of a JSON file of at most `limit` bytes; `None` if there is no such file.
pub(super) fn read_json(path: &Path, limit: u64) -> Result<Option<String>, CheckpointError> {
    let name = path.display().to_string();
    let (file, len) = match open_file(path) {
        Ok(Some(opened)) => opened,
        Ok(None) => return Err(CheckpointError::NotAFile { file: name }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&name, error)),
    };
    let mut bytes = Vec::with_capacity(len.min(limit) as usize + 2);
    // One byte more than allowed, to see whether there is more; the length in the directory may lie.
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&name, error))?;
    if bytes.len() as u64 > limit {
        return Err(CheckpointError::JsonTooLarge { file: name, limit });
    }
    let begin = &bytes[..bytes.len().min(BEGIN)];
    let found = UnsupportedFormat::of_bytes(begin);
    let page = begin.trim_ascii_start().starts_with(b"<");
    if let Some(found) = found.filter(|&found| {
        page || matches!(found, UnsupportedFormat::GitLfs | UnsupportedFormat::WebPage)
    }) {
        return Err(foreign(&name, found, begin));
    }
    String::from_utf8(bytes).map(Some).map_err(|error| CheckpointError::NotUtf8 {
        file: name,
        valid_up_to: error.utf8_error().valid_up_to(),
    })
}

/// The file and its length; `None` for anything but a regular file, unopened, because opening a pipe waits.
fn open_file(path: &Path) -> io::Result<Option<(File, u64)>> {
    if !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    Ok(Some((file, len)))
}

fn unreadable(name: &str, error: io::Error) -> CheckpointError {
    CheckpointError::Unreadable { file: name.to_owned(), error }
}

#[cfg(unix)]
struct Positioned(File);

#[cfg(unix)]
impl Positioned {
    fn new(file: File) -> Self {
        Self(file)
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, out, offset)
    }
}

/// Elsewhere the file has one cursor, so readers take turns.
#[cfg(not(unix))]
struct Positioned(std::sync::Mutex<File>);

#[cfg(not(unix))]
impl Positioned {
    fn new(file: File) -> Self {
        Self(std::sync::Mutex::new(file))
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        use std::io::{Seek, SeekFrom};

        // Every read seeks first, so a cursor that a panicking reader left anywhere does no harm.
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(out)
    }
}
