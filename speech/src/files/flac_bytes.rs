//! The frames of a FLAC file, up to the end or another recording, without the ID3v1 tag at their end, which `symphonia` takes for a
//! part of the last frame; and how many bytes they have, because `symphonia` passes over frames that are cut or damaged.
//!
//! Source: id3.org, ID3v1.

use crate::input::stream::{HEAD, Stream, begins, is_frame};
use crate::input::tags::id3v2;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of a tag.
const TAG: usize = 128;
/// Bytes per read.
const BLOCK: usize = 1 << 14;
/// The longest ID3v2 tag between two recordings.
const LONGEST: u64 = 1 << 20;

/// Passes on the frames without the tag.
pub(super) struct FlacBytes<'s> {
    stream: Stream<'s>,
    /// What was read and not passed on, from `from` on; the last bytes may be the tag.
    ahead: Vec<u8>,
    from: usize,
    /// Up to here, no other recording begins.
    searched: usize,
    ended: bool,
    /// Bytes of frames that were passed on.
    frames: Arc<AtomicU64>,
}

impl<'s> FlacBytes<'s> {
    /// `frames` gets the number of bytes of frames.
    pub(super) fn new(stream: Stream<'s>, frames: Arc<AtomicU64>) -> Self {
        Self { stream, ahead: Vec::new(), from: 0, searched: 0, ended: false, frames }
    }

    /// Reads more, until there are as many bytes or the source ends.
    fn fill(&mut self, count: usize) -> io::Result<()> {
        while !self.ended && self.ahead.len() < count {
            let at = self.ahead.len();
            self.ahead.resize(at + BLOCK, 0);
            let read = self.stream.read(&mut self.ahead[at..]);
            self.ahead.truncate(at + *read.as_ref().unwrap_or(&0));
            self.ended = read? == 0;
        }
        Ok(())
    }

    /// Searches what was read for another recording, with tags before it, and gives it back.
    fn search(&mut self) -> io::Result<()> {
        loop {
            let end = self.ahead.len().saturating_sub(if self.ended { 0 } else { HEAD });
            let ahead = self.ahead.get(self.searched..end).unwrap_or_default();
            // Most bytes begin nothing.
            let first = |&byte: &u8| {
                matches!(byte, b'R' | b'B' | b'F' | b'r' | b'f' | b'O' | b'I' | 0 | 0x1a)
            };
            let Some(found) = ahead.iter().position(first) else {
                self.searched = end.max(self.searched);
                return Ok(());
            };
            self.searched += found;
            let head = &self.ahead[self.searched..];
            let head = &head[..head.len().min(HEAD)];
            // A tag may stand before a recording, but anywhere in sound, too.
            let tag = id3v2(head).filter(|&bytes| head[3] <= 4 && bytes <= LONGEST);
            let tag = tag.map_or(0, |bytes| bytes as usize);
            if tag > 0 {
                self.fill(self.searched + tag + HEAD)?;
            }
            let next = self.ahead.get(self.searched + tag..).unwrap_or_default();
            if begins(next) || tag > 0 && is_frame(next) {
                self.stream.give_back(&self.ahead[self.searched..]);
                self.stream.set_next();
                self.ahead.truncate(self.searched);
                self.ended = true;
                return Ok(());
            }
            self.searched += 1;
        }
    }
}

impl Read for FlacBytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.ended && self.ahead.len() - self.from <= TAG + HEAD {
            self.ahead.drain(..self.from);
            self.searched = self.searched.saturating_sub(self.from);
            self.from = 0;
            self.fill(self.ahead.len() + 1)?;
            self.search()?;
            let tag = self.ahead.len().saturating_sub(TAG);
            if self.ended && self.ahead[tag..].starts_with(b"TAG") {
                self.ahead.truncate(tag);
            }
        }
        let kept = if self.ended { 0 } else { TAG + HEAD };
        let ready = &self.ahead[self.from..self.ahead.len() - kept];
        let count = ready.len().min(out.len());
        out[..count].copy_from_slice(&ready[..count]);
        self.frames.fetch_add(count as u64, Ordering::Relaxed);
        self.from += count;
        Ok(count)
    }
}
