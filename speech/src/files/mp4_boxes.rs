//! The boxes of an MP4 file.
//!
//! Source: ISO/IEC 14496-12, section 4.2.

use super::followed::{CUT, Layout};
use crate::input::stream::{self, begins, follows, may_follow};
use std::io::{self, Read, Seek, SeekFrom};

/// The head of a box with a long size, in bytes.
const HEAD: usize = 16;
/// The maximum number of boxes of a file: fragments of a second for four days.
const BOXES: usize = 1 << 20;

/// The size of a box with its head, and the bytes of the head. `None`: it extends to the end, or it is no box.
fn size_of(head: &[u8]) -> Option<(u64, usize)> {
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
    let (size, length) = match number(head.get(..4)?) {
        1 => (number(head.get(8..HEAD)?), HEAD),
        size => (size, 8),
    };
    (size >= length as u64).then_some((size, length))
}

/// Whether the type of the box that begins with `head` has letters and digits, as all have.
pub(super) fn is_box(head: &[u8]) -> bool {
    let is_letter = |&byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b' ' | 0xa9);
    head.get(4..8).is_some_and(|kind| kind.iter().all(is_letter))
}

/// Where in a box an MP4 file is that is read front to back.
#[derive(Default)]
pub(super) struct Mp4Boxes {
    head: [u8; HEAD],
    length: usize,
    /// Bytes of the box that are still to come.
    content: u64,
    /// Whether the last box extends to the end.
    open: bool,
}

impl Layout for Mp4Boxes {
    fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.open {
            let skipped = (bytes.len() as u64).min(self.content);
            self.content -= skipped;
            bytes = &bytes[skipped as usize..];
            let Some(&byte) = bytes.first() else { break };
            (self.head[self.length], self.length) = (byte, self.length + 1);
            bytes = &bytes[1..];
            let long = self.head.starts_with(&[0, 0, 0, 1]);
            if self.length == if long { HEAD } else { 8 } {
                match size_of(&self.head[..self.length]) {
                    Some((size, head)) => self.content = size - head as u64,
                    None => self.open = true,
                }
                self.length = 0;
            }
        }
    }

    fn end(&self) -> Result<(), &'static str> {
        match self.open || (self.length == 0 && self.content == 0) {
            true => Ok(()),
            false => Err(CUT),
        }
    }
}

/// What the boxes of a file say.
#[derive(Clone, Copy, Default)]
pub(super) struct Outline {
    /// The end of the last box, after the end of a file that is cut.
    pub(super) end: u64,
    /// Whether the samples are in fragments, each of which has an index of its own.
    pub(super) fragmented: bool,
    /// The number of whole indexes; without fragments only the first one is read.
    pub(super) indexes: usize,
    /// Where another file begins; and whether there is something that begins as one, and is none.
    pub(super) next: Option<u64>,
    pub(super) other: bool,
}

/// Reads the heads of all boxes up to the end of the file, or another one; it is then at its start again.
///
/// # Errors
/// The file cannot be read.
pub(super) fn outline(file: &mut (impl Read + Seek), length: u64) -> io::Result<Outline> {
    let mut found = Outline::default();
    for _ in 0..BOXES {
        if found.end >= length {
            break;
        }
        file.seek(SeekFrom::Start(found.end))?;
        let mut head = Vec::with_capacity(stream::HEAD);
        file.by_ref().take(stream::HEAD as u64).read_to_end(&mut head)?;
        if found.end > 0 && (begins(&head) || !is_box(&head) && follows(&head)) {
            found.next = Some(found.end);
            file.seek(SeekFrom::Start(0))?;
            return Ok(found);
        }
        if found.end > 0 && !is_box(&head) && may_follow(&head) {
            found.other = true;
            break;
        }
        found.fragmented |= head.get(4..8) == Some(b"moof");
        match size_of(&head) {
            Some((size, _)) => {
                found.end = found.end.saturating_add(size);
                let whole = found.end <= length;
                found.indexes += usize::from(whole && head.get(4..8) == Some(b"moov"));
            }
            None => break,
        }
    }
    found.end = found.end.max(length);
    file.seek(SeekFrom::Start(0))?;
    Ok(found)
}
