//! The chunks of WAV, AIFF and Wave64 files: those before the samples, and what follows the samples.

use crate::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};

/// The maximum number of chunks before the samples; usually there are one to five.
const CHUNKS: usize = 1000;
/// The maximum length of a chunk before the samples, in bytes; with pictures there are some megabytes.
const SKIPPED: u32 = 64 << 20;

/// The name of a chunk, and the bytes of its size.
type ChunkHead = ([u8; 4], [u8; 4]);

/// A reader with its position, and its length if known.
pub(crate) struct Source<R> {
    pub(crate) reader: BufReader<R>,
    length: Option<u64>,
    at: u64,
    /// The number of chunks that were begun.
    chunks: usize,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(reader: R, length: Option<u64>) -> Self {
        Self { reader: BufReader::new(reader), length, at: 0, chunks: 0 }
    }

    /// The name and the four bytes of the size of the next chunk; `None` at the end.
    pub(crate) fn next_chunk(&mut self) -> Result<Option<ChunkHead>, Error> {
        if self.chunks == CHUNKS {
            let expected = format!("at most {CHUNKS} before the samples");
            return Err(Error::corrupt("chunks", expected, "more"));
        }
        self.chunks += 1;
        let (mut name, mut size) = ([0; 4], [0; 4]);
        let read = self.fill(&mut name)? + self.fill(&mut size)?;
        Ok((read == 8).then_some((name, size)))
    }

    /// Whether the length of the samples, which begin here, is one that a writer leaves if it cannot seek back, or until it does:
    /// 0, or one near 2^31, 2^32 or 2^63 in a shorter file. `end`: where the file ends, as its head says.
    pub(crate) fn is_placeholder(&mut self, size: u64, end: u64) -> Result<bool, Error> {
        let near = |power: u32, size: u64| size.abs_diff(1 << power) <= 1 << 16;
        let shorter = self.remaining().is_none_or(|remaining| remaining < size);
        if size != 0 {
            return Ok(
                shorter && (near(31, size) || near(32, size) || size >= (1 << 63) - (1 << 16))
            );
        }
        // No samples: other chunks follow, or nothing.
        let next = self.reader.fill_buf().map_err(Error::not_read)?;
        let chunk = next.len() >= 8
            && next[..4].iter().all(|&byte| byte.is_ascii_graphic() || byte == b' ')
            && self.at + 8 + u64::from(u32_of(next, 4)) <= end.saturating_add(1);
        Ok(!next.is_empty() && !chunk)
    }

    /// The error for a file that ends before its chunk `expected`.
    pub(crate) fn no_chunk(&self, expected: &str) -> Error {
        let found = format!("the end of the file after {} bytes", self.at);
        Error::corrupt("chunks", expected, found)
    }

    /// Checks a chunk that is not the samples.
    pub(crate) fn check_chunk(&self, name: &[u8; 4], size: u32) -> Result<(), Error> {
        self.check_size(name, u64::from(size))?;
        if size > SKIPPED {
            let what = format!("the chunk {}", escaped_name(name));
            return Err(Error::corrupt(what, format!("at most {SKIPPED} bytes"), size));
        }
        Ok(())
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
        let read = fill(&mut self.reader, bytes)?;
        self.at += read as u64;
        Ok(read)
    }

    /// Skips bytes; returns how many were skipped.
    pub(crate) fn skip_bytes(&mut self, bytes: u64) -> Result<u64, Error> {
        let passed = io::copy(&mut self.reader.by_ref().take(bytes), &mut io::sink())
            .map_err(Error::not_read)?;
        self.at += passed;
        Ok(passed)
    }

    /// Checks that the remaining bytes are at least the size of a chunk.
    pub(crate) fn check_size(&self, name: &[u8; 4], size: u64) -> Result<(), Error> {
        match self.remaining() {
            Some(remaining) if remaining < size => {
                let found = format!("{remaining} to the end of the file");
                let what = format!("the chunk {}", escaped_name(name));
                Err(Error::corrupt(what, format!("{size} bytes"), found))
            }
            _ => Ok(()),
        }
    }

    /// Bytes to the end, if known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.length.map(|length| length.saturating_sub(self.at))
    }

    /// The error for data that ends inside a chunk.
    pub(crate) fn truncated(&self, name: &[u8; 4], size: u32) -> Error {
        Error::corrupt(
            format!("the chunk {}", escaped_name(name)),
            format!("{size} bytes"),
            format!("the end of the file after {} bytes of all", self.at),
        )
    }
}

/// A chunk's name, escaped for printing.
fn escaped_name(name: &[u8; 4]) -> String {
    format!("`{}`", name.escape_ascii())
}

/// Reads until `bytes` is full or the data ends.
fn fill(reader: &mut impl Read, bytes: &mut [u8]) -> Result<usize, Error> {
    let mut read = 0;
    while read < bytes.len() {
        match read_some(reader, &mut bytes[read..])? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// Reads what there is; 0 bytes only at the end.
pub(crate) fn read_some(reader: &mut impl Read, bytes: &mut [u8]) -> Result<usize, Error> {
    loop {
        match reader.read(bytes) {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(Error::not_read(error)),
        }
    }
}

/// What is after the samples of a file.
#[derive(Clone, Copy)]
pub(crate) struct After {
    /// Bytes before the next chunk.
    pub(crate) gap: u64,
    layout: Layout,
}

/// How the chunks of a file begin.
#[derive(Clone, Copy)]
pub(crate) enum Layout {
    /// A name and a length, whose lowest byte is the first; odd ones are followed by a byte.
    Wav,
    /// A name and a length, whose highest byte is the first.
    Aiff,
    /// A name of 16 bytes, and a length that counts its head; chunks begin at multiples of 8 bytes.
    Wave64,
}

impl After {
    /// `gap`: the bytes before the next chunk.
    pub(crate) fn new(gap: u64, layout: Layout) -> Self {
        Self { gap, layout }
    }

    /// The bytes of the chunk that begins with `head`, with its head and what fills it up. `None` if it is none.
    pub(crate) fn chunk(&self, head: &[u8]) -> Option<u64> {
        let name = head.get(..4)?;
        let is_name = name.iter().all(|&byte| byte.is_ascii_graphic() || byte == b' ');
        let length = |at: usize| head.get(at..at + 4)?.try_into().ok();
        let bytes = match self.layout {
            Layout::Wav => 8 + u64::from(u32::from_le_bytes(length(4)?)),
            Layout::Aiff => 8 + u64::from(u32::from_be_bytes(length(4)?)),
            Layout::Wave64 => u64::from_le_bytes(head.get(16..24)?.try_into().ok()?),
        };
        let multiple = if matches!(self.layout, Layout::Wave64) { 8 } else { 2 };
        (is_name && bytes >= 8).then(|| bytes.checked_next_multiple_of(multiple)).flatten()
    }

    /// The bytes of samples of the chunk that begins with `head`, if it has more of them.
    pub(crate) fn samples(&self, head: &[u8]) -> Option<u64> {
        let is_wav = matches!(self.layout, Layout::Wav) && head.starts_with(b"data");
        is_wav.then(|| u64::from(u32_of(head, 4)))
    }
}

/// Checks the chunks after the samples and their bytes: a pipe may never end.
pub(crate) fn check_after(chunks: usize, bytes: u64) -> Result<(), Error> {
    if chunks >= CHUNKS || bytes > u64::from(SKIPPED) {
        let expected = format!("at most {CHUNKS} of {SKIPPED} bytes after the samples");
        return Err(Error::corrupt("chunks", expected, "more"));
    }
    Ok(())
}

/// The number whose lowest byte is at a place.
pub(crate) fn u32_of(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
