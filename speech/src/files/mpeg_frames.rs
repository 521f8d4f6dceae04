//! The frames of MP3 and AAC (ADTS) files, without the tags before, between and after them.
//!
//! Such files are joined by writing one after the other, each with its tags, in which a decoder that looks for the next frame finds
//! false ones. And they have no length: a file was cut if its last frame is not whole.
//!
//! Sources: ISO/IEC 11172-3, 2.4.1; ISO/IEC 13818-7, 6.2; id3.org, ID3v2.4 structure, 3; APEv2 specification, Hydrogenaudio.

use super::followed::CUT;
use crate::input::stream::{self, Stream, begins};
use crate::input::tags::tag;
use std::io::{self, ErrorKind, Read};

/// Bytes that decide whether a frame begins: the longest frame, the head of the next one, and some more for few reads.
const AHEAD: usize = 1 << 14;
/// The longest head of a frame, a tag or another recording, in bytes.
const HEAD: usize = stream::HEAD;
/// The bytes of other data that may precede the first frame, and that may be between frames.
const BEFORE: u64 = 1 << 15;
const BETWEEN: u64 = 4 << 20;
/// The bytes of tags between two frames: a pipe may never end.
const TAGS: u64 = 64 << 20;
/// The text of the error for a source that has no frames.
pub(super) const NO_FRAME: &str = "there is no frame in many kilobytes";

/// What the head of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    /// Bytes of the frame, with its head.
    bytes: usize,
    /// The fields that all frames of a recording have in common.
    kind: (bool, u8, u32),
}

/// The frame that begins with `head`.
fn frame(head: &[u8]) -> Option<Frame> {
    let &[0xff, b, c, d, ..] = head else { return None };
    if b & 0xf6 == 0xf0 {
        return adts(head);
    }
    let (version, layer) = (b >> 3 & 3, b >> 1 & 3);
    let (rate, scale) = (usize::from(c >> 2 & 3), usize::from(c >> 4));
    if b & 0xe0 != 0xe0 || version == 1 || layer != 1 || rate == 3 || matches!(scale, 0 | 15) {
        return None;
    }
    // In kilobits and Hz; MPEG 2 has half the rates of MPEG 1 and frames of half the samples, and MPEG 2.5 a quarter.
    let first = version == 3;
    let kilobits: [u32; 14] = match first {
        true => [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
        false => [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
    };
    let halvings = [2, 0, 1, 0][usize::from(version)];
    let rate = [44_100, 48_000, 32_000][rate] >> halvings;
    let bytes = if first { 144_000 } else { 72_000 } * kilobits[scale - 1] / rate;
    let bytes = bytes as usize + usize::from(c >> 1 & 1);
    Some(Frame { bytes, kind: (true, u8::from(d >> 6 == 3), rate) })
}

fn adts(head: &[u8]) -> Option<Frame> {
    let &[_, b, c, d, e, f, ..] = head else { return None };
    let bytes = usize::from(d & 3) << 11 | usize::from(e) << 3 | usize::from(f >> 5);
    let least = if b & 1 == 1 { 7 } else { 9 };
    let channels = (c & 1) << 2 | d >> 6;
    let kind = (false, channels, u32::from(c >> 2 & 15));
    (bytes >= least && c >> 2 & 15 < 13).then_some(Frame { bytes, kind })
}

enum Place {
    /// Between frames.
    Between,
    /// In a frame or in a tag, of which as many bytes are to come.
    Frame(usize),
    Tag(u64),
}

/// Passes on the frames of a file up to its end, or another recording, and fails there if the last one is not whole.
pub(super) struct MpegFrames<'s> {
    stream: Stream<'s>,
    place: Place,
    /// What was read and not passed on, from `from` on.
    ahead: Vec<u8>,
    from: usize,
    ended: bool,
    /// The kind of the last frame.
    last: Option<Frame>,
    /// Bytes since then that are no frame, and bytes of tags.
    other: u64,
    tags: u64,
}

impl<'s> MpegFrames<'s> {
    pub(super) fn new(stream: Stream<'s>) -> Self {
        let (ahead, from) = (Vec::with_capacity(AHEAD), 0);
        Self {
            stream,
            place: Place::Between,
            ahead,
            from,
            ended: false,
            last: None,
            other: 0,
            tags: 0,
        }
    }

    /// Reads until there are `count` bytes, or the file ends.
    fn fill(&mut self, count: usize) -> io::Result<&[u8]> {
        if self.ahead.len() - self.from < count {
            self.ahead.drain(..self.from);
            self.from = 0;
        }
        while self.ahead.len() < count && !self.ended {
            // An array is set to zeros at once, also in a build without optimization; a pipe gives a few bytes at a time.
            let mut block = [0; AHEAD];
            let read = self.stream.read(&mut block[..AHEAD - self.ahead.len()])?;
            self.ahead.extend_from_slice(&block[..read]);
            self.ended = read == 0;
        }
        Ok(&self.ahead[self.from..])
    }

    /// Gives back the beginning of another recording. Returns that there is no further frame.
    fn end_before_another(&mut self) -> bool {
        self.stream.give_back(&self.ahead[self.from..]);
        self.stream.set_next();
        self.ahead.truncate(self.from);
        self.ended = true;
        false
    }

    /// Finds out what is next; returns false at the end.
    fn next(&mut self) -> io::Result<bool> {
        loop {
            let last = self.last;
            let head = self.fill(HEAD)?;
            if head.is_empty() {
                return Ok(false);
            }
            if last.is_some() && begins(head) {
                return Ok(self.end_before_another());
            }
            if let Some(bytes) = tag(head) {
                self.tags += bytes;
                if self.tags > TAGS {
                    let message = format!("expected at most {TAGS} bytes of tags, found more");
                    return Err(io::Error::new(ErrorKind::InvalidData, message));
                }
                self.place = Place::Tag(bytes);
                return Ok(true);
            }
            if let Some(found) = frame(head) {
                let same = last.is_some_and(|last| last.kind == found.kind);
                // Other bytes look like a frame, but not like two.
                let head = self.fill(if same { HEAD } else { found.bytes + HEAD })?;
                let next = head.get(found.bytes..).unwrap_or_default();
                let sure = (next.len() < 6 && last.is_none()) || tag(next).is_some();
                if same || sure || frame(next).is_some_and(|next| next.kind == found.kind) {
                    // A decoder of MP3 reads other rates and channels, too.
                    if last.is_some_and(|last| !(same || last.kind.0 && found.kind.0)) {
                        return Ok(self.end_before_another());
                    }
                    (self.place, self.last) = (Place::Frame(found.bytes), Some(found));
                    (self.other, self.tags) = (0, 0);
                    return Ok(true);
                }
            }
            self.from += 1;
            self.other += 1;
            if self.other > if self.last.is_some() { BETWEEN } else { BEFORE } {
                return Err(io::Error::new(ErrorKind::InvalidData, NO_FRAME));
            }
        }
    }
}

impl Read for MpegFrames<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !out.is_empty() {
            match self.place {
                Place::Frame(0) | Place::Tag(0) => self.place = Place::Between,
                Place::Between => {
                    if !self.next()? {
                        let none = || io::Error::new(ErrorKind::InvalidData, NO_FRAME);
                        return self.last.map(|_| 0).ok_or_else(none);
                    }
                }
                Place::Frame(left) => {
                    let bytes = self.fill(1)?;
                    if bytes.is_empty() {
                        return Err(io::Error::new(ErrorKind::InvalidData, CUT));
                    }
                    let count = left.min(bytes.len()).min(out.len());
                    out[..count].copy_from_slice(&bytes[..count]);
                    self.from += count;
                    self.place = Place::Frame(left - count);
                    return Ok(count);
                }
                Place::Tag(left) => {
                    let count =
                        self.fill(1)?.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    if count == 0 {
                        // No sound is missing, if there is some.
                        let none = || io::Error::new(ErrorKind::InvalidData, CUT);
                        return self.last.map(|_| 0).ok_or_else(none);
                    }
                    self.from += count;
                    self.place = Place::Tag(left - count as u64);
                }
            }
        }
        Ok(0)
    }
}
