//! Checks the fragments of an MP4 file before a decoder sees them, and finds its end, where another file begins.
//!
//! `symphonia` 0.6 keeps the index of each fragment, adds up its entries for each packet, and believes its numbers of packets. What
//! is of other tracks, or has no packets, becomes an atom `free` of the same length. Source: ISO/IEC 14496-12:2022, section 8.8.

use super::bytes::{fill, invalid};
use super::mp4_boxes::is_box;
use super::rewritten::{NOT_READ, Part, Parts, is_another};
use crate::input::stream::may_follow;
use std::io::{self, BufReader, Read};

/// The bytes of the index of a fragment, and of a packet.
const INDEX: u64 = 1 << 20;
const PACKET: u32 = 4 << 20;
/// Most runs of packets of a fragment, and packets of a run that have a duration each: about ten minutes.
const RUNS: usize = 256;
const DURATIONS: u32 = 1 << 15;
/// Most packets of a file.
const PACKETS: u64 = 1 << 30;
/// The memory of the indexes of all fragments apart from that of the file, and that of one.
const MEMORY: u64 = 8 << 20;
const FRAGMENT: u64 = 1024;
/// Fields of `tfhd` and `trun`, by their flags.
const OFFSET: u32 = 1;
const DESCRIPTION: u32 = 2;
const DEFAULT_DURATION: u32 = 8;
const DEFAULT_SIZE: u32 = 0x10;
const FIRST_FLAGS: u32 = 4;
const DURATION: u32 = 0x100;
const SIZE: u32 = 0x200;
const EACH: u32 = 0xf00;

/// The track whose packets are in fragments, and the size of those without another one.
#[derive(Clone, Copy)]
pub(super) struct Extended {
    pub(super) track: u32,
    pub(super) size: u32,
}

/// The atoms of a file.
pub(super) struct Mp4Fragments {
    /// `None` if it has no fragments.
    extended: Option<Extended>,
    /// Bytes, fragments and packets until now.
    at: u64,
    fragments: u64,
    packets: u64,
}

impl Parts for Mp4Fragments {
    /// Reads the head of the next atom, and a fragment's index as a whole.
    fn next(&mut self, reader: &mut BufReader<impl Read>) -> io::Result<Part> {
        let mut head = vec![0; 8];
        match fill(reader, &mut head)? {
            0 => return Ok(Part::End),
            8 => (),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        if self.at > 0 && &head[4..8] == b"ftyp" {
            return Ok(Part::Another(head));
        }
        if self.at > 0 && !is_box(&head) && may_follow(&head) {
            return match is_another(reader, &mut head)? {
                true => Ok(Part::Another(head)),
                false => Err(invalid(NOT_READ)),
            };
        }
        let mut size = u64::from(number(&head, 0)?);
        if size == 1 {
            head.resize(16, 0);
            reader.read_exact(&mut head[8..])?;
            size = u64::from(number(&head, 8)?) << 32 | u64::from(number(&head, 12)?);
        }
        // One of no size extends to the end.
        let length = match size {
            0 => Some(u64::MAX - self.at),
            size => size.checked_sub(head.len() as u64),
        };
        let length = length.ok_or_else(|| invalid(format!("an atom of {size} bytes")))?;
        let mut left = length;
        if let (b"moof", Some(extended)) = (&head[4..8], self.extended) {
            if length > INDEX {
                let expected = format!("expected at most {INDEX} bytes, found {length}");
                return Err(invalid(format!("an atom `moof`: {expected}")));
            }
            let mut content = vec![0; length as usize];
            reader.read_exact(&mut content)?;
            if !self.check_fragment(&mut content, extended)? {
                head[4..8].copy_from_slice(b"free");
            }
            head.extend(content);
            left = 0;
        }
        self.at = self.at.saturating_add(size);
        Ok(Part::Bytes(head, left))
    }
}

impl Mp4Fragments {
    pub(super) fn new(extended: Option<Extended>) -> Self {
        Self { extended, at: 0, fragments: 0, packets: 0 }
    }

    /// Checks the index of a fragment; returns whether it has packets of the track.
    fn check_fragment(&mut self, content: &mut [u8], extended: Extended) -> io::Result<bool> {
        let (mut found, mut packets) = (0, 0);
        each_atom(content, &mut |kind, traf| {
            match kind {
                b"mfhd" => return Ok(true),
                b"traf" => (),
                _ => return Ok(false),
            }
            let (mut head, mut runs) = (None, Vec::new());
            each_atom(traf, &mut |kind, part| {
                match kind {
                    b"tfhd" if head.is_none() => head = Some(track_head(part)?),
                    b"trun" => runs.push(part.to_vec()),
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            let Some((track, size)) = head.filter(|&(track, _)| track == extended.track) else {
                return Ok(false);
            };
            found += 1;
            if found > 1 || runs.len() > RUNS {
                let count = runs.len();
                return Err(invalid(format!(
                    "a fragment: expected one part of track {track} of at most {RUNS} runs, found {found} and {count}"
                )));
            }
            for run in &runs {
                packets += u64::from(check_run(run, size.unwrap_or(extended.size))?);
            }
            Ok(true)
        })?;
        if packets == 0 {
            return Ok(false);
        }
        (self.fragments, self.packets) = (self.fragments + 1, self.packets + packets);
        if self.packets > PACKETS {
            return Err(invalid(format!("fragments: expected at most {PACKETS} packets")));
        }
        let most = (MEMORY + self.at) / FRAGMENT;
        if self.fragments > most {
            return Err(invalid(format!("expected at most {most} fragments in so few bytes")));
        }
        Ok(true)
    }
}

/// The number at a place.
fn number(bytes: &[u8], at: usize) -> io::Result<u32> {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map(u32::from_be_bytes).ok_or_else(|| invalid("a fragment: an atom is too short"))
}

/// The track of a `tfhd`, and the size of its packets, if it has one.
fn track_head(content: &[u8]) -> io::Result<(u32, Option<u32>)> {
    let (flags, track) = (number(content, 0)?, number(content, 4)?);
    let mut at = 8;
    for (flag, bytes) in [(OFFSET, 8), (DESCRIPTION, 4), (DEFAULT_DURATION, 4)] {
        at += if flags & flag != 0 { bytes } else { 0 };
    }
    if flags & OFFSET != 0 && number(content, 8)? >> 30 != 0 {
        return Err(invalid("a fragment: expected a place in the file"));
    }
    let size = (flags & DEFAULT_SIZE != 0).then(|| number(content, at)).transpose()?;
    Ok((track, size))
}

/// Checks a run, and returns how many packets it has. `size`: of packets without another one.
fn check_run(content: &[u8], size: u32) -> io::Result<u32> {
    let (flags, count) = (number(content, 0)?, number(content, 4)?);
    let head = [OFFSET, FIRST_FLAGS].iter().filter(|&&flag| flags & flag != 0).count();
    // The sound follows the index: a decoder subtracts without a check.
    if flags & OFFSET != 0 && number(content, 8)? >> 31 != 0 {
        return Err(invalid("a run: expected sound after its index"));
    }
    // `symphonia` takes flags of the first packet for those of the run.
    let first = if flags & OFFSET != 0 { 12 } else { 8 };
    let others = (FIRST_FLAGS | SIZE) & !flags | FIRST_FLAGS;
    if flags & FIRST_FLAGS != 0 && number(content, first)? & others != 0 {
        return Err(invalid("a run: expected no priority of its first packet"));
    }
    let fields = (flags & EACH).count_ones() as usize;
    let entries = content.get(8 + 4 * head..).unwrap_or_default();
    if entries.len() as u64 / 4 < u64::from(count) * fields as u64 {
        let (expected, found) = (4 * u64::from(count) * fields as u64, entries.len());
        return Err(invalid(format!("a run: expected {expected} bytes, found {found}")));
    }
    if flags & DURATION != 0 && count > DURATIONS {
        let expected = format!("expected at most {DURATIONS} packets with durations");
        return Err(invalid(format!("a run: {expected}, found {count}")));
    }
    let check = |size: u32, least: u32| match (least..=PACKET).contains(&size) {
        true => Ok(()),
        false => {
            Err(invalid(format!("a packet: expected {least} to {PACKET} bytes, found {size}")))
        }
    };
    if flags & SIZE == 0 {
        if count > 0 {
            check(size, 1)?;
        }
        return Ok(count);
    }
    let before = if flags & DURATION != 0 { 4 } else { 0 };
    for entry in entries.chunks_exact(4 * fields).take(count as usize) {
        check(number(entry, before)?, 0)?;
    }
    Ok(count)
}

/// Takes the type and the content of an atom; returns whether it stays.
type Each<'e> = &'e mut dyn FnMut(&[u8; 4], &mut [u8]) -> io::Result<bool>;

/// Calls `each` with the types and contents of the atoms in `content`, which become `free` if it returns false.
fn each_atom(content: &mut [u8], each: Each<'_>) -> io::Result<()> {
    let mut rest = content;
    while rest.len() >= 8 {
        let size = number(rest, 0)? as usize;
        if !(8..=rest.len()).contains(&size) {
            let expected = format!("expected 8 to {} bytes, found {size}", rest.len());
            return Err(invalid(format!("an atom of a fragment: {expected}")));
        }
        let (atom, after) = rest.split_at_mut(size);
        let kind = [atom[4], atom[5], atom[6], atom[7]];
        if !each(&kind, &mut atom[8..])? {
            atom[4..8].copy_from_slice(b"free");
        }
        rest = after;
    }
    Ok(())
}
