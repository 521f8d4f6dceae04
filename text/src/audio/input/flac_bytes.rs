//! The frames of a FLAC file without the ID3v1 tag at its end, which `symphonia` takes for a part of the last frame; and how many
//! bytes they have, because `symphonia` passes over frames that are cut or damaged.
//!
//! Source: id3.org, ID3v1.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of a tag.
const TAG: usize = 128;
/// Bytes per read.
const BLOCK: usize = 1 << 14;

/// Passes on the frames without the tag.
pub(super) struct FlacBytes<R> {
    reader: R,
    /// What was read and not passed on, from `from` on; the last bytes may be the tag.
    ahead: Vec<u8>,
    from: usize,
    ended: bool,
    /// Bytes of frames that were passed on.
    frames: Arc<AtomicU64>,
}

impl<R: Read> FlacBytes<R> {
    /// `frames` gets the number of bytes of frames.
    pub(super) fn new(reader: R, frames: Arc<AtomicU64>) -> Self {
        Self { reader, ahead: Vec::new(), from: 0, ended: false, frames }
    }
}

impl<R: Read> Read for FlacBytes<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.ended && self.ahead.len() - self.from <= TAG {
            self.ahead.drain(..self.from);
            self.from = 0;
            let at = self.ahead.len();
            self.ahead.resize(at + BLOCK, 0);
            let read = self.reader.read(&mut self.ahead[at..]);
            self.ahead.truncate(at + *read.as_ref().unwrap_or(&0));
            self.ended = read? == 0;
            let tag = self.ahead.len().saturating_sub(TAG);
            if self.ended && self.ahead[tag..].starts_with(b"TAG") {
                self.ahead.truncate(tag);
            }
        }
        let kept = if self.ended { 0 } else { TAG };
        let ready = &self.ahead[self.from..self.ahead.len() - kept];
        let count = ready.len().min(out.len());
        out[..count].copy_from_slice(&ready[..count]);
        self.frames.fetch_add(count as u64, Ordering::Relaxed);
        self.from += count;
        Ok(count)
    }
}
