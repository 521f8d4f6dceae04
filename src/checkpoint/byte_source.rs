//! Bytes at an offset, from a file or from memory.
//!
//! Files are read by position and not mapped. A mapping counts as resident memory, so that the peak of loading
//! would be the file plus the packed weights; and if another process truncates the file, access to the mapping
//! kills this process. A positional read costs one copy, directly into the caller's buffer, and returns an
//! error instead.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::unsupported_formats::UnsupportedFormat;
use crate::error::{Error, not_utf8};
use crate::printable_text::sanitized;

/// The bytes of one safetensors file, or of one tensor in memory.
pub(super) struct Source<'c> {
    name: String,
    bytes: Bytes<'c>,
}

enum Bytes<'c> {
    File(Positioned, u64),
    Memory(Cow<'c, [u8]>),
    Other(Box<dyn ReadAt>),
}

/// Bytes that are read by position: an entry of an archive, a file that is decrypted.
pub trait ReadAt: Send + Sync {
    /// The number of bytes, which does not change.
    fn length(&self) -> u64;

    /// Fills `out` with the bytes from `offset` on. Calls for consecutive bytes are the usual case.
    ///
    /// # Errors
    /// They cannot be read, or there are fewer.
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()>;
}

impl<'c> Source<'c> {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        match open_file(path).map_err(|error| Error::unreadable(&*name, error))? {
            Some((file, len)) => Ok(Self { name, bytes: Bytes::File(Positioned::new(file), len) }),
            None => Err(not_a_file(name)),
        }
    }

    /// Bytes of the caller; errors name them `name`.
    pub(super) fn other(name: String, bytes: Box<dyn ReadAt>) -> Self {
        Self { name, bytes: Bytes::Other(bytes) }
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
            Bytes::Other(bytes) => bytes.length(),
        }
    }

    /// Fills `out` with the bytes starting at `offset`.
    pub(super) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let result = match &self.bytes {
            Bytes::File(file, _) => file.read_exact_at(out, offset),
            Bytes::Other(bytes) => bytes.read_exact_at(out, offset),
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
        result.map_err(|error| Error::unreadable(&*self.name, error))
    }
}

/// Number of first bytes that identify another format.
const BEGIN: usize = 512;

/// Returns an error if `source` begins like a file of another format, or like a text message.
pub(super) fn check_format(source: &Source<'_>) -> Result<(), Error> {
    let mut begin = [0; BEGIN];
    let begin = &mut begin[..source.len().min(BEGIN as u64) as usize];
    source.read_at(0, begin)?;
    match UnsupportedFormat::of_bytes(begin) {
        Some(found) => Err(foreign_weights(source.name(), found, begin)),
        None => Ok(()),
    }
}

fn foreign_weights(name: &str, found: UnsupportedFormat, begin: &[u8]) -> Error {
    const SAID: usize = 80;
    let says = match found {
        UnsupportedFormat::Message => sanitized(String::from_utf8_lossy(begin).trim(), SAID),
        _ => String::new(),
    };
    found.error(name, &says)
}

/// The text of a JSON file of at most `limit` bytes; `None` if there is no such file.
pub(crate) fn read_json(path: &Path, limit: u64) -> Result<Option<String>, Error> {
    read_text(path, limit)?.map(|text| check_json(&path.display().to_string(), text)).transpose()
}

/// `text`, which is no web page and no pointer of Git-LFS in place of JSON.
pub(super) fn check_json(name: &str, text: String) -> Result<String, Error> {
    let begin = &text.as_bytes()[..text.len().min(BEGIN)];
    let found = UnsupportedFormat::of_bytes(begin);
    let page = begin.trim_ascii_start().starts_with(b"<");
    match found.filter(|&found| {
        page || matches!(found, UnsupportedFormat::GitLfs | UnsupportedFormat::WebPage)
    }) {
        Some(found) => Err(foreign_weights(name, found, begin)),
        None => Ok(text),
    }
}

/// The text of a file of at most `limit` bytes; `None` if there is no such file.
pub(super) fn read_text(path: &Path, limit: u64) -> Result<Option<String>, Error> {
    let name = path.display().to_string();
    let (file, len) = match open_file(path) {
        Ok(Some(opened)) => opened,
        Ok(None) => return Err(not_a_file(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::unreadable(name, error)),
    };
    let mut bytes = Vec::with_capacity(len.min(limit) as usize + 2);
    // Read one byte more than allowed to detect a longer file; the length in the directory may be wrong.
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::unreadable(&*name, error))?;
    text_of(name, bytes, limit).map(Some)
}

/// The text of a file called `name`, if it has at most `limit` bytes.
pub(super) fn text_of(name: String, bytes: Vec<u8>, limit: u64) -> Result<String, Error> {
    if bytes.len() as u64 > limit {
        let expected = format!("at most {limit} bytes, as in every real one");
        return Err(Error::corrupt(name, expected, "more"));
    }
    String::from_utf8(bytes)
        .map_err(|error| Error::corrupt(name, "UTF-8", not_utf8(&error.utf8_error())))
}

/// The file and its length. `None` for anything other than a regular file; it is not opened, because opening a
/// pipe blocks.
fn open_file(path: &Path) -> io::Result<Option<(File, u64)>> {
    if !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    Ok(Some((file, len)))
}

fn not_a_file(name: String) -> Error {
    Error::not_found(name, "a regular file", "something else")
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

/// Other systems have one file cursor, so a mutex serializes the reads.
#[cfg(not(unix))]
struct Positioned(std::sync::Mutex<File>);

#[cfg(not(unix))]
impl Positioned {
    fn new(file: File) -> Self {
        Self(std::sync::Mutex::new(file))
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        use std::io::{Seek, SeekFrom};

        // A poisoned lock is safe: every read sets the cursor first.
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(out)
    }
}
