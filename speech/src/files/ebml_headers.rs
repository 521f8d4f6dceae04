//! Checks the headers of a Matroska or WebM file, and leaves out what the sound does not need, before a decoder sees them.
//!
//! `symphonia` 0.6 takes some hundred bytes for each track, tag, chapter, cue and attachment, without limits. What is left out becomes
//! an element `Void` of the same length, so that all lengths stay. Sources: RFC 8794, sections 4 to 6; RFC 9559, section 5.

use super::bytes::{fill, invalid};
use super::heard::Heard;
use super::rewritten::{NOT_READ, Part, Parts, is_another};
use super::vorbis_setup;
use crate::input::stream::may_follow;
use std::io::{self, BufRead, BufReader, Read};

/// The elements whose children follow, and those that are read as a whole.
const SEGMENT: u64 = 0x1853_8067;
const CLUSTER: u64 = 0x1f43_b675;
const BLOCK_GROUP: u64 = 0xa0;
const EBML: u64 = 0x1a45_dfa3;
const INFO: u64 = 0x1549_a966;
const TRACKS: u64 = 0x1654_ae6b;
const TRACK: u64 = 0xae;
/// The parts of a track: its number, UID, type, codec, that one's private bytes, delay and pre-roll, the duration of a frame,
/// and the parameters of sound.
const PARTS: [u64; 9] =
    [NUMBER, 0x73c5, 0x83, CODEC, CODEC_PRIVATE, DELAY, 0x56bb, 0x0023_e383, AUDIO];
const NUMBER: u64 = 0xd7;
const DELAY: u64 = 0x56aa;
const CODEC: u64 = 0x86;
const CODEC_PRIVATE: u64 = 0x63a2;
const AUDIO: u64 = 0xe1;
/// Elements of a segment that are left out: positions, tags, chapters, cues and attachments.
const LEFT_OUT: [u64; 5] = [0x114d_9b74, 0x1254_c367, 0x1043_a770, 0x1c53_bb6b, 0x1941_a469];
/// Elements with packets.
const SIMPLE_BLOCK: u64 = 0xa3;
const BLOCK: u64 = 0xa1;
/// The part of a block that is not heard.
const PADDING: u64 = 0x75a2;
/// An element that says nothing.
const VOID: u8 = 0xec;
/// The bytes of a header, of the index of all tracks, and of a block; most tracks.
const SMALL: u64 = 64 << 10;
const INDEX: u64 = 1 << 20;
const PACKET: u64 = 4 << 20;
const TRACK_COUNT: usize = 256;
/// The bytes of the head of a block with lacing: the track's number, the time, flags, and the number of frames.
const BLOCK_HEAD: usize = 12;
/// The flags of a block whose frames have one size.
const LACING: u8 = 6;
const ONE_SIZE: u8 = 4;
/// The longest name and length of an element.
const NAME: usize = 4;
const LENGTH: usize = 8;

/// The head of an element: its bytes, its name, and its length if that is known.
struct Head {
    bytes: Vec<u8>,
    name: u64,
    length: Option<u64>,
}

impl Head {
    /// Reads a head; `None` at the end.
    fn read_from(reader: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        for most in [NAME, LENGTH] {
            let mut first = [0];
            if fill(reader, &mut first)? == 0 {
                return if bytes.is_empty() { Ok(None) } else { Err(cut()) };
            }
            let width = first[0].leading_zeros() as usize + 1;
            if width > most {
                return Err(invalid(format!(
                    "expected an element, found the byte {:#x}",
                    first[0]
                )));
            }
            let mut rest = [0; LENGTH];
            if fill(reader, &mut rest[..width - 1])? < width - 1 {
                return Err(cut());
            }
            bytes.push(first[0]);
            bytes.extend(&rest[..width - 1]);
        }
        let name = bytes[0].leading_zeros() as usize + 1;
        let mask = u64::MAX >> (64 - 7 * (bytes.len() - name));
        let length = Some(unsigned(&bytes[name..]) & mask).filter(|&length| length != mask);
        Ok(Some(Self { name: unsigned(&bytes[..name]), length, bytes }))
    }

    /// The length, which must be known.
    fn length(&self) -> io::Result<u64> {
        self.length.ok_or_else(|| self.wrong("a length", "none"))
    }

    fn check(&self, most: u64) -> io::Result<u64> {
        let length = self.length()?;
        let expected = || self.wrong(&format!("at most {most} bytes"), &length.to_string());
        (length <= most).then_some(length).ok_or_else(expected)
    }

    fn wrong(&self, expected: &str, found: &str) -> io::Error {
        invalid(format!("an element {:x}: expected {expected}, found {found}", self.name))
    }

    /// The head of `Void` of as many bytes and the same length.
    fn void(&self, length: u64) -> Vec<u8> {
        let mut bytes = self.bytes.len();
        let mut head = Vec::new();
        // An empty one first, if a length of 8 bytes is too short.
        while bytes > 1 + LENGTH {
            head.extend([VOID, 0x80]);
            bytes -= 2;
        }
        let width = bytes - 1;
        let value = length | 1 << (7 * width);
        head.push(VOID);
        head.extend(&value.to_be_bytes()[LENGTH - width..]);
        head
    }
}

fn cut() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// The elements of a Matroska file.
pub(super) struct EbmlHeaders {
    /// Bytes that were read, and the ends of the elements whose children are read, outermost first.
    at: u64,
    parents: Vec<(u64, u64)>,
    heard: Heard,
    /// The numbers of the tracks, and how many frames of each were passed on.
    tracks: Vec<(u64, u64)>,
    /// The track of the last block, and the numbers of its first and its last frame.
    block: Option<(u64, [u64; 2])>,
    /// The error after what was passed on.
    failed: Option<io::Error>,
}

impl EbmlHeaders {
    /// `heard` gets the delays of tracks and the paddings of blocks.
    pub(super) fn new(heard: Heard) -> Self {
        let (parents, tracks) = (Vec::new(), Vec::new());
        Self { at: 0, parents, heard, tracks, block: None, failed: None }
    }

    /// Reads the index of all tracks, and leaves in it what is needed.
    fn read_tracks(&mut self, reader: &mut impl Read, head: &Head) -> io::Result<Vec<u8>> {
        let mut content = vec![0; head.check(INDEX)? as usize];
        if fill(reader, &mut content)? < content.len() {
            return Err(cut());
        }
        for (number, delay) in check_tracks(&mut content)? {
            self.tracks.push((number, 0));
            if let Some(delay) = delay {
                self.heard.add_delay(number, delay);
            }
        }
        Ok(content)
    }

    /// Another recording that begins with `head`, where an element is expected.
    fn another(&self, reader: &mut impl Read, mut head: Vec<u8>) -> io::Result<Part> {
        match is_another(reader, &mut head)? {
            true => Ok(Part::Another(head)),
            false => Err(invalid(NOT_READ)),
        }
    }

    /// Counts the frames of a block that is passed on.
    fn count(&mut self, first: &[u8]) {
        let place = |&(number, _, _): &(u64, u8, u64)| {
            self.tracks.iter().position(|&(track, _)| track == number)
        };
        let found = block_of(first);
        self.block = found.as_ref().and_then(place).map(|place| {
            let (track, frames) = &mut self.tracks[place];
            let first = *frames;
            *frames += found.map_or(0, |(_, _, frames)| frames);
            (*track, [first, *frames - 1])
        });
    }
}

impl Parts for EbmlHeaders {
    /// Reads the head of the next element, and of some its content.
    fn next(&mut self, reader: &mut BufReader<impl Read>) -> io::Result<Part> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        // No name of an element begins so, but an MP4 file and a frame of MP3 do.
        if self.at > 0 && matches!(reader.fill_buf()?.first(), Some(0 | 0xff)) {
            let mut head = vec![0; LENGTH];
            let count = fill(reader, &mut head)?;
            head.truncate(count);
            return self.another(reader, head);
        }
        let Some(head) = Head::read_from(reader)? else { return Ok(Part::End) };
        while self.parents.last().is_some_and(|&(_, end)| end <= self.at) {
            self.parents.pop();
        }
        if head.name == EBML && self.at > 0 && self.parents.is_empty() {
            return Ok(Part::Another(head.bytes));
        }
        // No element has a name that begins as another format.
        if self.at > 0 && head.name != EBML && may_follow(&head.bytes) {
            return self.another(reader, head.bytes);
        }
        let begin = self.at + head.bytes.len() as u64;
        let end = head.length.map_or(begin, |length| begin.saturating_add(length));
        // A decoder would go on inside of the element.
        if self.parents.last().is_some_and(|&(_, last)| end > last) {
            return Err(head.wrong("an end in its parent", "one after it"));
        }
        self.at = begin;
        let (left, out) = match head.name {
            SEGMENT | CLUSTER | BLOCK_GROUP => {
                // One without a length ends where the next one of its kind begins.
                let known = head.length.map(|_| (head.name, end));
                if head.name == SEGMENT {
                    self.parents.clear();
                }
                self.block = None;
                self.parents.extend(known);
                return Ok(Part::Bytes(head.bytes, 0));
            }
            EBML | INFO => (head.check(SMALL)?, head.bytes),
            TRACKS => {
                // A decoder that gets no head says nothing of an error.
                let tracks = self.read_tracks(reader, &head);
                let mut out = head.bytes;
                match tracks {
                    Ok(content) => out.extend(content),
                    Err(error) => self.failed = Some(error),
                }
                (0, out)
            }
            SIMPLE_BLOCK | BLOCK => {
                let length = head.length()?;
                let mut first = [0; BLOCK_HEAD];
                let count = length.min(BLOCK_HEAD as u64) as usize;
                if fill(reader, &mut first[..count])? < count {
                    return Err(cut());
                }
                let kept = length <= PACKET && !is_of_nothing(&first[..count], length);
                if kept {
                    self.count(&first[..count]);
                }
                let mut out = if kept { head.bytes } else { head.void(length) };
                out.extend(&first[..count]);
                (length - count as u64, out)
            }
            PADDING => {
                let mut content = vec![0; head.check(LENGTH as u64)? as usize];
                if fill(reader, &mut content)? < content.len() {
                    return Err(cut());
                }
                if let Some((track, [first, last])) = self.block {
                    let padding = signed(&content);
                    let frame = if padding < 0 { first } else { last };
                    self.heard.add_padding(track, frame, padding);
                }
                (0, [head.bytes, content].concat())
            }
            name => {
                let left = head.length()?;
                let left_out = LEFT_OUT.contains(&name);
                (left, if left_out { head.void(left) } else { head.bytes })
            }
        };
        self.at = end;
        Ok(Part::Bytes(out, left))
    }
}

/// The track's number, the flags and the number of frames of a block that begins with these bytes.
fn block_of(first: &[u8]) -> Option<(u64, u8, u64)> {
    let width = first.first()?.leading_zeros() as usize + 1;
    let number = unsigned(first.get(..width)?) & (u64::MAX >> (64 - 7 * width.min(9)));
    // After two bytes of time.
    let flags = *first.get(width + 2)?;
    let more = if flags & LACING == 0 { 0 } else { u64::from(*first.get(width + 3)?) };
    Some((number, flags, more + 1))
}

/// Whether a block has many frames of no bytes.
fn is_of_nothing(first: &[u8], length: u64) -> bool {
    let Some(&number) = first.first() else { return false };
    // Two bytes of time are between the track's number and the flags.
    let at = number.leading_zeros() as usize + 1 + 2;
    match first.get(at..at + 2) {
        Some(&[flags, _]) if flags & LACING == ONE_SIZE => length <= at as u64 + 2,
        _ => false,
    }
}

/// The number in at most eight bytes.
fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn signed(bytes: &[u8]) -> i64 {
    let first = bytes.first().map_or(0, |&byte| i64::from(byte.cast_signed()));
    bytes.iter().skip(1).fold(first, |number, &byte| number << 8 | i64::from(byte))
}

/// Checks the content of the index of all tracks, and leaves out other parts of tracks than those that are needed. Returns the number
/// and the delay of each.
fn check_tracks(content: &mut [u8]) -> io::Result<Vec<(u64, Option<u64>)>> {
    let mut tracks = Vec::new();
    each_element(content, &mut |head, track| {
        if head.name != TRACK {
            return Ok(false);
        }
        if tracks.len() == TRACK_COUNT {
            return Err(invalid(format!("expected at most {TRACK_COUNT} tracks, found more")));
        }
        let (mut is_vorbis, mut setup, mut parts) = (false, Vec::new(), [0; PARTS.len()]);
        let (mut number, mut delay) = (0, None);
        each_element(track, &mut |head, part| {
            let Some(place) = PARTS.iter().position(|&name| name == head.name) else {
                return Ok(false);
            };
            parts[place] += 1;
            if parts[place] > 1 {
                return Err(head.wrong("one in a track", "two"));
            }
            match head.name {
                NUMBER => number = unsigned(part),
                DELAY => delay = Some(unsigned(part)).filter(|&delay| delay > 0),
                CODEC => is_vorbis = part.starts_with(b"A_VORBIS"),
                CODEC_PRIVATE => setup = part.to_vec(),
                _ => (),
            }
            Ok(true)
        })?;
        if is_vorbis {
            check_vorbis(&setup)?;
        }
        tracks.push((number, delay));
        Ok(true)
    })?;
    Ok(tracks)
}

/// Calls `each` with the heads and the contents of the elements in `content`, which become `Void` if it returns false.
fn each_element(
    content: &mut [u8],
    each: &mut dyn FnMut(&Head, &mut [u8]) -> io::Result<bool>,
) -> io::Result<()> {
    let mut at = 0;
    while at < content.len() {
        let Some(head) = Head::read_from(&mut &content[at..])? else { return Ok(()) };
        let (length, begin) = (head.length()?, at + head.bytes.len());
        let end = usize::try_from(length).ok().and_then(|length| begin.checked_add(length));
        let Some(part) = end.and_then(|end| content.get_mut(begin..end)) else {
            return Err(head.wrong("an end in its parent", "one after it"));
        };
        if !each(&head, part)? {
            content[at..begin].copy_from_slice(&head.void(length));
        }
        at = begin + length as usize;
    }
    Ok(())
}

/// Checks the headers of Vorbis: their number less one, the lengths of all but the last, then the headers.
fn check_vorbis(headers: &[u8]) -> io::Result<()> {
    let wrong = || invalid("a track of Vorbis: expected its headers");
    let (&count, mut rest) = headers.split_first().ok_or_else(wrong)?;
    let mut sizes = Vec::new();
    while sizes.len() < usize::from(count) {
        let full = rest.iter().take_while(|&&byte| byte == 0xff).count();
        let &last = rest.get(full).ok_or_else(wrong)?;
        sizes.push(0xff * full + usize::from(last));
        rest = &rest[full + 1..];
    }
    for size in sizes {
        let (header, after) = rest.split_at_checked(size).ok_or_else(wrong)?;
        check_header(header)?;
        rest = after;
    }
    check_header(rest)
}

fn check_header(header: &[u8]) -> io::Result<()> {
    // The type of a setup header.
    match header {
        [5, ..] => vorbis_setup::check(header).map_err(invalid),
        _ => Ok(()),
    }
}
