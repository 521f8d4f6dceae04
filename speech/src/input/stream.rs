//! The bytes of a source, in which recordings may follow each other: files are joined by writing one after the other.
//!
//! The reader of a recording stops where the next one begins, and gives back what it has read of it. So a source is read once,
//! whatever recordings it has.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The bytes that decide which format a recording has.
pub(crate) const HEAD: usize = 64;
/// The bytes that are read and forgotten at a time.
const SKIPPED: usize = 1 << 12;

enum Source<'s> {
    /// A file and its length.
    File(File, u64),
    /// A source that cannot be read twice.
    Pipe(Box<dyn Read + Send + 's>),
}

struct Inner<'s> {
    source: Source<'s>,
    /// The place of the next byte of the source.
    at: u64,
    /// The bytes before it that were given back, from `from` on.
    back: Vec<u8>,
    from: usize,
    /// The place of the recording that follows, if there is one.
    next: Option<u64>,
}

impl Inner<'_> {
    /// The place of the next byte that is read.
    fn place(&self) -> u64 {
        self.at - (self.back.len() - self.from) as u64
    }

    /// As [`Read::read`], of the source itself.
    fn read_source(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.source {
            Source::File(file, _) => read_some(file, out),
            Source::Pipe(pipe) => read_some(pipe, out),
        }?;
        self.at += read as u64;
        Ok(read)
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.from == self.back.len() {
            return self.read_source(out);
        }
        let count = out.len().min(self.back.len() - self.from);
        out[..count].copy_from_slice(&self.back[self.from..self.from + count]);
        self.from += count;
        Ok(count)
    }
}

/// Reads again if a signal interrupts it: not all readers of `symphonia` do so.
fn read_some(reader: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(out) {
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            read => return read,
        }
    }
}

/// The bytes of a source. All clones read the same ones.
#[derive(Clone)]
pub(crate) struct Stream<'s>(Arc<Mutex<Inner<'s>>>);

impl<'s> Stream<'s> {
    /// `length`: the bytes of the file, which is read from its beginning.
    pub(crate) fn of_file(file: File, length: u64) -> Self {
        Self::new(Source::File(file, length))
    }

    pub(crate) fn of_pipe(pipe: impl Read + Send + 's) -> Self {
        Self::new(Source::Pipe(Box::new(pipe)))
    }

    fn new(source: Source<'s>) -> Self {
        let inner = Inner { source, at: 0, back: Vec::new(), from: 0, next: None };
        Self(Arc::new(Mutex::new(inner)))
    }

    fn inner(&self) -> MutexGuard<'_, Inner<'s>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes that are left, if they are known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        let inner = self.inner();
        match &inner.source {
            Source::File(_, length) => Some(length.saturating_sub(inner.place())),
            Source::Pipe(_) => None,
        }
    }

    /// The next [`HEAD`] bytes, or all up to the end, which stay.
    pub(crate) fn peek(&self) -> io::Result<Vec<u8>> {
        let mut inner = self.inner();
        let from = inner.from;
        inner.back.drain(..from);
        inner.from = 0;
        while inner.back.len() < HEAD {
            let mut more = [0; HEAD];
            let wanted = HEAD - inner.back.len();
            match inner.read_source(&mut more[..wanted])? {
                0 => break,
                read => inner.back.extend_from_slice(&more[..read]),
            }
        }
        Ok(inner.back[..inner.back.len().min(HEAD)].to_vec())
    }

    /// Reads `count` bytes, or all up to the end, and forgets them.
    pub(crate) fn skip(&self, mut count: u64) -> io::Result<()> {
        let mut block = [0; SKIPPED];
        while count > 0 {
            let wanted = count.min(SKIPPED as u64) as usize;
            match self.inner().read(&mut block[..wanted])? {
                0 => break,
                read => count -= read as u64,
            }
        }
        Ok(())
    }

    /// Gives back the last bytes that were read.
    pub(crate) fn give_back(&self, bytes: &[u8]) {
        let mut inner = self.inner();
        inner.back = [bytes, &inner.back[inner.from..]].concat();
        inner.from = 0;
    }

    /// Says that the next byte is the first one of another recording.
    pub(crate) fn set_next(&self) {
        let mut inner = self.inner();
        inner.next = Some(inner.place());
    }

    /// Goes to the recording that follows. Returns whether there is one.
    pub(crate) fn begin_next(&self) -> io::Result<bool> {
        let mut inner = self.inner();
        let Some(next) = inner.next.take() else { return Ok(false) };
        if next != inner.place()
            && let Source::File(file, _) = &mut inner.source
        {
            file.seek(SeekFrom::Start(next))?;
            (inner.at, inner.from) = (next, 0);
            inner.back.clear();
        }
        Ok(true)
    }

    /// The bytes from here on, to read at any place, if they are those of a file.
    #[cfg(feature = "files")]
    pub(crate) fn section(&self) -> Option<Section<'s>> {
        let length = self.remaining()?;
        let start = self.inner().place();
        Some(Section { stream: self.clone(), start, length, at: 0 })
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.inner().read(out)
    }
}

/// A part of a file.
#[cfg(feature = "files")]
pub(crate) struct Section<'s> {
    stream: Stream<'s>,
    /// Its place in the file, and its bytes.
    start: u64,
    length: u64,
    /// The place of the next byte in it.
    at: u64,
}

#[cfg(feature = "files")]
impl Section<'_> {
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Ends it at `end`, where another recording begins.
    pub(crate) fn end_at(&mut self, end: u64) {
        self.length = end;
        self.stream.inner().next = Some(self.start + end);
    }
}

#[cfg(feature = "files")]
impl Read for Section<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let wanted = self.length.saturating_sub(self.at).min(out.len() as u64) as usize;
        let mut inner = self.stream.inner();
        let Source::File(file, _) = &mut inner.source else { return Ok(0) };
        file.seek(SeekFrom::Start(self.start + self.at))?;
        let read = read_some(file, &mut out[..wanted])?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(feature = "files")]
impl Seek for Section<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = at.ok_or(ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// Whether a recording begins with `head`. All of these begin with eight or more bytes that are always the same, so that sound
/// does not look like them; MP3 and AAC do not.
pub(crate) fn begins(head: &[u8]) -> bool {
    let at = |at: usize, text: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(text));
    match head.first() {
        Some(b'R' | b'B') => (at(0, b"RIFF") || at(0, b"RF64") || at(0, b"BW64")) && at(8, b"WAVE"),
        Some(b'F') => super::aiff::is_aiff(head),
        Some(b'r') => super::wave64::is_wave64(head),
        // With a first block of 34 bytes.
        Some(b'f') => at(0, b"fLaC") && (at(4, b"\0\0\0\x22") || at(4, b"\x80\0\0\x22")),
        Some(b'O') => at(0, b"OggS\0\x02\0\0\0\0\0\0\0\0"),
        Some(0) => at(0, b"\0\0\0") && at(4, b"ftyp"),
        // `EBMLVersion` is 1.
        Some(0x1a) => at(0, b"\x1a\x45\xdf\xa3") && (5..=12).any(|i| at(i, b"\x42\x86\x81\x01")),
        _ => false,
    }
}

/// Whether a recording, or a tag before one, begins with `head`: after other formats than MP3 and AAC, which may look like it.
#[cfg(feature = "files")]
pub(crate) fn follows(head: &[u8]) -> bool {
    begins(head) || is_frame(head) || super::tags::id3v2(head).is_some()
}

/// Whether [`follows`] may be true of the bytes that begin with `head`.
#[cfg(feature = "files")]
pub(crate) fn may_follow(head: &[u8]) -> bool {
    const NAMES: [&[u8]; 9] = [
        b"RIFF",
        b"RF64",
        b"BW64",
        b"FORM",
        b"riff",
        b"fLaC",
        b"OggS",
        b"\x1a\x45\xdf\xa3",
        b"ID3",
    ];
    NAMES.iter().any(|name| head.starts_with(name))
        || head.get(4..8) == Some(b"ftyp")
        || is_frame(head)
}

/// Whether a frame of MP3 or AAC may begin with `head`, with which no chunk and no tag begins.
pub(crate) fn is_frame(head: &[u8]) -> bool {
    // No layer but the third one, and no 0xff that fills up a file.
    matches!(*head, [0xff, sync, rates, ..] if sync >= 0xe0 && sync & 6 < 4 && rates < 0xf0)
}
