//! Reads a file whole, if it is a regular one and not too large.

use crate::error::{Error, path_text};
use crate::limits::{self, FileLimit};
use serde_json::Value;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Parses JSON with at most `most` values.
pub(super) fn parse(bytes: &[u8], most: FileLimit) -> Result<Value, Error> {
    let found = limits::values(bytes);
    if found > most.values {
        return Err(Error::corrupt("", format!("at most {} values", most.values), found));
    }
    let no_json = |error| Error::corrupt("", "JSON", format_args!("an error: {error}"));
    serde_json::from_slice(bytes).map_err(no_json)
}

/// The kind of a path that is not a regular file.
fn kind(about: &fs::Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = about.file_type();
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if about.is_dir() { "a directory" } else { "none" }
}

/// Reads a whole file of at most `most` bytes, if it exists.
///
/// A pipe is not opened, because opening it waits for a writer. A process that replaces the file by a pipe between
/// the two checks can still make the call wait. It cannot make the call read a pipe or a device.
pub(super) fn read_file(path: &Path, most: u64) -> Result<Option<Vec<u8>>, Error> {
    let io = |error| Error::unreadable(path, error);
    let wrong = |expected: &str, found: &str| Err(Error::corrupt(path_text(path), expected, found));
    let not_regular = |about: &fs::Metadata| wrong("a regular file", kind(about));
    match fs::metadata(path) {
        Ok(about) if about.is_file() => (),
        Ok(about) => return not_regular(&about),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    }
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let about = file.metadata().map_err(io)?;
    if !about.is_file() {
        return not_regular(&about);
    }
    // The length is usually known. If the file system reports a wrong length, reading ends at the limit.
    if about.len() > most {
        return wrong(&format!("at most {most} bytes"), &about.len().to_string());
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > most {
        return wrong(&format!("at most {most} bytes"), "more");
    }
    // A failed download may leave such a file.
    if bytes.starts_with(b"version https://git-lfs") {
        return wrong("the file itself", "a Git-LFS pointer: `git lfs pull` fetches it");
    }
    let begin = bytes[..bytes.len().min(15)].to_ascii_lowercase();
    if begin.starts_with(b"<!doctype html") || begin.starts_with(b"<html") {
        return wrong("the file itself", "a web page: the download was refused");
    }
    Ok(Some(bytes))
}
