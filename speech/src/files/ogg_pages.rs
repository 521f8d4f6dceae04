//! The pages of an Ogg file.
//!
//! Source: RFC 3533, section 6. The checksums of pages are checked by `symphonia`.

use super::followed::{CUT, Layout};

/// Bytes of a page's head without its table of segments.
const HEAD: usize = 27;
/// The flag of the last page of a stream.
const LAST: u8 = 4;

/// Where in a page an Ogg file is.
pub(super) struct OggPages {
    /// The head of the current page, with its table, as far as it was read.
    head: [u8; HEAD + 255],
    length: usize,
    /// Bytes of the page's content that are still to come.
    content: usize,
    /// Whether the last page was the last of its stream.
    last: bool,
    /// Whether what follows are no pages.
    lost: bool,
}

impl OggPages {
    pub(super) fn new() -> Self {
        Self { head: [0; HEAD + 255], length: 0, content: 0, last: false, lost: false }
    }

    /// Bytes that the head has, as far as it is known.
    fn expected(&self) -> usize {
        if self.length < HEAD { HEAD } else { HEAD + usize::from(self.head[HEAD - 1]) }
    }
}

impl Layout for OggPages {
    fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.lost {
            let skipped = bytes.len().min(self.content);
            self.content -= skipped;
            bytes = &bytes[skipped..];
            let want = (self.expected() - self.length).min(bytes.len());
            self.head[self.length..self.length + want].copy_from_slice(&bytes[..want]);
            self.length += want;
            bytes = &bytes[want..];
            if self.length >= 4 && !self.head.starts_with(b"OggS") {
                self.lost = true;
                break;
            }
            if self.length >= HEAD && self.length == self.expected() {
                self.last = self.head[5] & LAST != 0;
                self.content = self.head[HEAD..self.length].iter().map(|&n| usize::from(n)).sum();
                self.length = 0;
            }
        }
    }

    fn end(&self) -> Result<(), &'static str> {
        match self.last && self.content == 0 && self.length == 0 {
            _ if self.lost => Err("expected a page `OggS`"),
            true => Ok(()),
            false => Err(CUT),
        }
    }
}
