//! Checks that the pages of an Ogg file are complete: `symphonia` takes a file that was cut for one that ended.
//!
//! Source: RFC 3533, section 6. The checksums of pages are checked by `symphonia`.

use std::io::{self, ErrorKind, Read};

/// Bytes of a page's head without its table of segments.
const HEAD: usize = 27;
/// The flag of the last page of a stream.
const LAST: u8 = 4;

/// Passes on the bytes of an Ogg file, and fails at its end if it is cut.
pub(super) struct OggPages<R> {
    reader: R,
    /// The head of the current page, with its table, as far as it was read.
    head: [u8; HEAD + 255],
    length: usize,
    /// Bytes of the page's content that are still to come.
    content: usize,
    /// Whether the last page was the last of its stream.
    last: bool,
}

impl<R: Read> OggPages<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, head: [0; HEAD + 255], length: 0, content: 0, last: false }
    }

    /// Bytes that the head has, as far as it is known.
    fn expected(&self) -> usize {
        if self.length < HEAD { HEAD } else { HEAD + usize::from(self.head[HEAD - 1]) }
    }

    fn follow(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let skipped = bytes.len().min(self.content);
            self.content -= skipped;
            bytes = &bytes[skipped..];
            let want = (self.expected() - self.length).min(bytes.len());
            self.head[self.length..self.length + want].copy_from_slice(&bytes[..want]);
            self.length += want;
            bytes = &bytes[want..];
            if self.length >= 4 && !self.head.starts_with(b"OggS") {
                return Err(io::Error::new(ErrorKind::InvalidData, "expected a page `OggS`"));
            }
            if self.length >= HEAD && self.length == self.expected() {
                self.last = self.head[5] & LAST != 0;
                self.content = self.head[HEAD..self.length].iter().map(|&n| usize::from(n)).sum();
                self.length = 0;
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for OggPages<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(out)?;
        self.follow(&out[..read])?;
        if read == 0 && !out.is_empty() && !(self.last && self.content == 0 && self.length == 0) {
            return Err(io::Error::new(ErrorKind::InvalidData, "the file ends too early"));
        }
        Ok(read)
    }
}
