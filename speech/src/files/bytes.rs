//! The bytes of a source, and how they are read.

use crate::input::stream::Stream;
use std::io::{self, ErrorKind, Read, Seek};

/// The error for an MP4 file in a pipe.
pub(super) const NEEDS_FILE: &str =
    "its index is not at its beginning, which needs a file, not a pipe";
/// Bytes that a call of the system reads.
const BLOCK: usize = 1 << 14;

/// What can be read at any place.
pub(super) trait ReadSeek: Read + Seek + Send {}

impl<S: Read + Seek + Send> ReadSeek for S {}

/// The bytes of a recording, without what may be too much.
pub(super) enum Bytes<'s> {
    /// A file whose index has the sound only, and its length.
    Pieces(Box<dyn ReadSeek + 's>, u64),
    /// What is read front to back.
    Pipe(Stream<'s>),
}

impl Read for Bytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pieces(pieces, _) => pieces.read(out),
            Self::Pipe(pipe) => pipe.read(out),
        }
    }
}

pub(super) fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message.into())
}

/// Reads `count` bytes and forgets them.
pub(super) fn skip(reader: &mut impl Read, mut count: u64) -> io::Result<()> {
    let mut block = [0; BLOCK];
    while count > 0 {
        let wanted = count.min(BLOCK as u64) as usize;
        match reader.read(&mut block[..wanted]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => count -= read as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `out` is full or the source ends, and returns the number of bytes.
pub(super) fn fill(reader: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < out.len() {
        match reader.read(&mut out[count..]) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
