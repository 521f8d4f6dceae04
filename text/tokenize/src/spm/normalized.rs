//! Normalized text: its characters, which may be invalid UTF-8, and where each of its bytes comes from.

use std::ops::Range;

/// The character for a space, at which pieces are split.
pub(super) const SPACE: &str = "\u{2581}";

/// The length of the first character of `text`, from its first byte, at most the length of `text`.
pub(super) fn character_len(text: &[u8]) -> usize {
    let len = match text.first() {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        _ => 1,
    };
    len.min(text.len())
}

/// Receives normalized text.
pub(super) trait Sink {
    fn bytes(&self) -> &[u8];
    /// Appends a byte for the character of the source that begins at `origin`.
    fn push(&mut self, byte: u8, origin: usize);
    fn extend(&mut self, bytes: &[u8], origin: usize);
    fn truncate(&mut self, len: usize);
}

impl Sink for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn push(&mut self, byte: u8, _: usize) {
        self.push(byte);
    }

    fn extend(&mut self, bytes: &[u8], _: usize) {
        self.extend_from_slice(bytes);
    }

    fn truncate(&mut self, len: usize) {
        self.truncate(len);
    }
}

/// Normalized text, with the origin of each byte.
#[derive(Debug, Default)]
pub(super) struct Traced {
    bytes: Vec<u8>,
    /// A text has less than 4 GiB.
    origins: Vec<u32>,
}

impl Sink for Traced {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn push(&mut self, byte: u8, origin: usize) {
        self.extend(&[byte], origin);
    }

    fn extend(&mut self, bytes: &[u8], origin: usize) {
        self.bytes.extend_from_slice(bytes);
        self.origins.resize(self.bytes.len(), origin as u32);
    }

    fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.origins.truncate(len);
    }
}

impl Traced {
    /// The bytes of a source of `len` bytes that became `range`: whole characters, or what one rule replaces. Spaces at its
    /// ends do not count, because a rule may add them; a range of spaces has none.
    pub(super) fn span(&self, mut range: Range<usize>, len: usize) -> Range<usize> {
        while let Some(rest) = self.bytes.get(range.clone()).and_then(without_space) {
            range.start = range.end - rest;
        }
        while self.bytes.get(range.clone()).is_some_and(|part| part.ends_with(SPACE.as_bytes())) {
            range.end -= SPACE.len();
        }
        let origin = |at: usize| self.origins.get(at).copied().unwrap_or(len as u32);
        let start = origin(range.start);
        if range.is_empty() {
            return start as usize..start as usize;
        }
        let last = origin(range.end - 1);
        let after = self.origins.get(range.end..).unwrap_or_default();
        let end = after.iter().copied().find(|&origin| origin > last).unwrap_or(len as u32);
        start as usize..end.max(start) as usize
    }
}

/// The length of `part` without the space that it begins with.
fn without_space(part: &[u8]) -> Option<usize> {
    part.strip_prefix(SPACE.as_bytes()).map(<[u8]>::len)
}
