//! A file inside of an archive, read by position: its compressed bytes stay where they are, and no copy of the whole is made.
//!
//! DEFLATE is read from its begin. When an entry is opened, all of it passes through a small window: its length and its
//! checksum are verified, and the state of the decompressor is kept at up to 64 places, from which later reads go on.

use crate::error::Error;
use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZError, MZFlush, MZStatus};
use rawzip::Crc32;
use simdformer::checkpoint::ReadAt;
use simdformer_documents::archives::Entry;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The most places at which a state is kept, of 43 kB each, and the fewest bytes between two.
const STATES: u64 = 64;
const STEP: u64 = 1 << 20;
/// Reads that go on at the same time: three matrices are read in turn as one.
const STREAMS: usize = 4;
/// Bytes that are read or written at a time.
const BLOCK: usize = 1 << 15;

/// An entry of an archive.
pub(super) struct FileInArchive {
    size: u64,
    content: Mutex<Content>,
}

struct Content {
    file: File,
    data: Range<u64>,
    /// `None` if it is not compressed.
    inflated: Option<Streams>,
}

/// A state of the decompressor: what it has read and written.
#[derive(Clone)]
struct Stream {
    state: Box<InflateState>,
    read: u64,
    written: u64,
}

impl Stream {
    fn new() -> Self {
        Self { state: InflateState::new_boxed(DataFormat::Raw), read: 0, written: 0 }
    }
}

#[derive(Default)]
struct Streams {
    /// In the order of their places.
    kept: Vec<Stream>,
    /// The last used one is the last.
    running: Vec<Stream>,
}

impl FileInArchive {
    /// Opens an entry of the archive `file`, and verifies all of it. Errors name it `name`.
    pub(super) fn open(file: File, entry: &Entry, name: &str) -> Result<Self, Error> {
        let Some(deflated) = entry.is_deflated() else {
            return Err(Error::unsupported(name, "DEFLATE or no compression", "another one"));
        };
        let (size, data) = (entry.size(), entry.data());
        let mut content = Content { file, data, inflated: None };
        let mut streams = deflated.then(Streams::default);
        let (mut stream, mut crc, mut length) = (Stream::new(), Crc32::new(), 0u64);
        let step = STEP.max(size / STATES);
        let mut block = vec![0; BLOCK];
        loop {
            if let Some(streams) = &mut streams
                && length >= step * streams.kept.len() as u64
                && streams.kept.len() <= STATES as usize
            {
                streams.kept.push(stream.clone());
            }
            let filled = match deflated {
                true => content.inflate(&mut stream, &mut block),
                false => content.read_stored(length, &mut block),
            };
            let filled = filled.map_err(|error| match error.kind() {
                ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                    Error::corrupt(name, "whole data", error)
                }
                _ => Error::of_stream("read", name)(error),
            })?;
            if filled == 0 {
                break;
            }
            length += filled as u64;
            if length > size {
                break;
            }
            crc.update(&block[..filled]);
        }
        if length != size {
            let more = if length > size { "more" } else { "fewer" };
            return Err(Error::corrupt(name, format!("{size} bytes, as in the directory"), more));
        }
        if crc.checksum() != entry.crc() {
            let expected = format!("the checksum {:08x}", entry.crc());
            return Err(Error::corrupt(name, expected, format_args!("{:08x}", crc.checksum())));
        }
        content.inflated = streams;
        Ok(Self { size, content: Mutex::new(content) })
    }
}

impl ReadAt for FileInArchive {
    fn length(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // A panic while the lock is held leaves no half state: a stream that is used is taken out.
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let content = &mut *content;
        let Some(streams) = &mut content.inflated else {
            content.file.seek(SeekFrom::Start(content.data.start + offset))?;
            return content.file.read_exact(out);
        };
        let mut stream = streams.take(offset);
        content.inflate_from(&mut stream, offset, out)?;
        if let Some(streams) = &mut content.inflated {
            streams.running.push(stream);
        }
        Ok(())
    }
}

impl Streams {
    /// The stream that is closest before `offset`.
    fn take(&mut self, offset: u64) -> Stream {
        let before = |stream: &&Stream| stream.written <= offset;
        let kept = self.kept.iter().rfind(before);
        let running = self.running.iter().enumerate().filter(|(_, stream)| before(stream));
        let closest = running.max_by_key(|(_, stream)| stream.written).map(|(index, _)| index);
        let reached = closest.map(|index| self.running[index].written);
        match (closest, kept) {
            (Some(index), kept) if reached >= kept.map(|kept| kept.written) => {
                self.running.remove(index)
            }
            (_, kept) => {
                if self.running.len() >= STREAMS {
                    self.running.remove(0);
                }
                kept.cloned().unwrap_or_else(Stream::new)
            }
        }
    }
}

impl Content {
    /// Fills `out` with the bytes from `offset` on, which is not before what `stream` has written.
    fn inflate_from(&mut self, stream: &mut Stream, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut passed = [0; BLOCK];
        while stream.written < offset {
            let length = (offset - stream.written).min(BLOCK as u64) as usize;
            if self.inflate(stream, &mut passed[..length])? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let mut filled = 0;
        while filled < out.len() {
            match self.inflate(stream, &mut out[filled..])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                more => filled += more,
            }
        }
        Ok(())
    }

    /// Writes the next bytes of `stream` to `out`; none at its end.
    fn inflate(&mut self, stream: &mut Stream, out: &mut [u8]) -> io::Result<usize> {
        let mut input = [0; BLOCK];
        loop {
            let left = (self.data.end - self.data.start).saturating_sub(stream.read);
            let length = left.min(BLOCK as u64) as usize;
            self.file.seek(SeekFrom::Start(self.data.start + stream.read))?;
            self.file.read_exact(&mut input[..length])?;
            let done = inflate(&mut stream.state, &input[..length], out, MZFlush::None);
            stream.read += done.bytes_consumed as u64;
            stream.written += done.bytes_written as u64;
            let ended = match done.status {
                Ok(status) => status == MZStatus::StreamEnd,
                Err(MZError::Buf) => false,
                Err(_) => return Err(io::Error::new(ErrorKind::InvalidData, "invalid DEFLATE")),
            };
            if done.bytes_written > 0 || ended || out.is_empty() {
                return Ok(done.bytes_written);
            }
            if done.bytes_consumed == 0 {
                return Err(io::Error::new(ErrorKind::InvalidData, "DEFLATE without an end"));
            }
        }
    }

    /// Reads bytes that are not compressed; none at their end.
    fn read_stored(&mut self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let left = (self.data.end - self.data.start).saturating_sub(offset);
        let length = left.min(out.len() as u64) as usize;
        self.file.seek(SeekFrom::Start(self.data.start + offset))?;
        self.file.read_exact(&mut out[..length])?;
        Ok(length)
    }
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::FileInArchive;
    use simdformer::checkpoint::ReadAt;
    use simdformer_documents::archives::Zip;
    use simdformer_testing::argos::{Entry, zip};
    use simdformer_testing::temporary_folder::TemporaryFolder;
    use std::fs::File;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Compressed bytes must not be read as weights.
    #[test]
    fn a_read_that_panics_leaves_the_others_right() {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
        let place = TemporaryFolder::new("inflated");
        place.write("a.zip", zip(&[Entry::new("a", &bytes, true)]));
        let open = || File::open(place.path().join("a.zip")).unwrap();
        let archive = Zip::open(open()).unwrap();
        let file = FileInArchive::open(open(), &archive.entries()[0], "a").unwrap();
        let read = || {
            let mut out = [0; 1000];
            file.read_exact_at(&mut out, 5000).map(|()| out)
        };
        // A place that no arithmetic of a build with checks can reach.
        let right = file.content.lock().unwrap().data.clone();
        file.content.lock().unwrap().data.start = u64::MAX;
        let failed = catch_unwind(AssertUnwindSafe(read));
        assert!(!matches!(failed, Ok(Ok(_))));
        assert_eq!(failed.is_err(), file.content.is_poisoned());
        file.content.clear_poison();
        file.content.lock().unwrap().data = right;
        assert_eq!(read().unwrap()[..], bytes[5000..6000]);
    }
}
