//! Leaves of the index of an MP4 file what the sound needs: one track, and times in a run or two.
//!
//! `symphonia` 0.6 looks up each packet in the times of all tracks from the first one on: an hour of film with a variable frame
//! rate takes 24 s to open. Tags and pictures are left out. What stays has its place, and so has all sound: the rest of the index
//! is an atom `free`. Source: ISO/IEC 14496-12:2022, section 8.

use super::bytes::{Bytes, NEEDS_FILE, fill, invalid};
use super::followed::Followed;
use super::heard::Heard;
use super::mp4_atoms::{ATOMS, Atom, Cut, atom, content, each_atom, each_entry, find, number};
use super::mp4_boxes::Mp4Boxes;
use super::mp4_edits::read_edits;
use super::mp4_fragments::{Extended, Mp4Fragments};
use super::rewritten::Rewritten;
use crate::input::stream::{Section, Stream};
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;

/// The bytes of a pipe up to the sound: its index is held in memory.
const BEFORE_SOUND: u64 = 8 << 20;
/// The bytes of an atom that is no table.
const SMALL: u64 = 64 << 10;
/// The bytes of a packet.
const PACKET: u64 = 4 << 20;
/// The memory of tables apart from that of the file. While a table grows it takes three times its bytes, and those of a pipe
/// are in memory, too.
const TABLES: u64 = 8 << 20;
const GROWTH: u64 = 4;
/// Errors of files without an index or without sound.
const NO_INDEX: &str = "it has no index: the recording was not ended, or the file is cut";
const NO_SOUND: &str = "it has no audio that can be decoded";
/// The types of sound that may be decoded.
const SOUND: [&[u8; 4]; 13] = [
    b"mp4a", b"alac", b".mp3", b"Opus", b"fLaC", b"sowt", b"twos", b"lpcm", b"in24", b"in32",
    b"fl32", b"fl64", b"raw ",
];

/// A part of a file: new bytes, or a range of the original.
enum Piece {
    New(Vec<u8>),
    Original(Range<u64>),
    /// Zeros.
    Free(u64),
}

impl Piece {
    fn whole(atom: Atom) -> Self {
        Self::Original(atom.start..atom.end)
    }

    fn length(&self) -> u64 {
        match self {
            Self::New(bytes) => bytes.len() as u64,
            Self::Original(range) => range.end - range.start,
            Self::Free(count) => *count,
        }
    }
}

/// A source with other pieces in place of some.
pub(super) struct Pieces<S> {
    source: S,
    /// Each with the place after it.
    pieces: Vec<(u64, Piece)>,
    at: u64,
}

impl<S> Pieces<S> {
    fn new(source: S, pieces: Vec<Piece>) -> Self {
        let mut end = 0;
        let pieces = pieces.into_iter().map(|piece| {
            end += piece.length();
            (end, piece)
        });
        Self { pieces: pieces.collect(), source, at: 0 }
    }
}

impl<S: Read + Seek> Read for Pieces<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let place = self.pieces.partition_point(|&(end, _)| end <= self.at);
        let Some((end, piece)) = self.pieces.get(place) else { return Ok(0) };
        let count = (end - self.at).min(out.len() as u64) as usize;
        let inside = piece.length() - (end - self.at);
        let read = match piece {
            Piece::New(bytes) => {
                out[..count].copy_from_slice(&bytes[inside as usize..inside as usize + count]);
                count
            }
            Piece::Original(range) => {
                self.source.seek(SeekFrom::Start(range.start + inside))?;
                self.source.read(&mut out[..count])?
            }
            Piece::Free(_) => {
                out[..count].fill(0);
                count
            }
        };
        self.at += read as u64;
        Ok(read)
    }
}

impl<S> Seek for Pieces<S> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let length = self.pieces.last().map_or(0, |&(end, _)| end);
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = at.ok_or_else(|| invalid("expected a place in the file"))?;
        Ok(self.at)
    }
}

/// The same file with the index of its sound. `section`: its bytes, if it is not in a pipe. `heard` gets the edits of the track, and
/// where its fragments begin.
pub(super) fn audio_only<'s>(
    stream: Stream<'s>,
    section: Option<Section<'s>>,
    heard: &Heard,
) -> io::Result<Bytes<'s>> {
    if let Some(mut section) = section {
        let length = section.length();
        let (pieces, extended) = pieces(&mut BufReader::new(&mut section), length, heard)?;
        let pieces = Pieces::new(section, pieces);
        if extended.is_none() {
            return Ok(Bytes::Pieces(Box::new(pieces), length));
        }
        // Fragments are read front to back.
        let followed = Followed::new(pieces, Mp4Boxes::default());
        let whole = Rewritten::new(followed, Mp4Fragments::new(extended), stream);
        return Ok(Bytes::Pipe(Stream::of_pipe(whole)));
    }
    let mut pipe = Followed::new(stream.clone(), Mp4Boxes::default());
    let before = read_up_to_sound(&mut pipe)?;
    let length = before.len() as u64;
    let mut source = Cursor::new(before);
    let (pieces, extended) = pieces(&mut source, length, heard).map_err(|error| {
        let missing = error.to_string() == NO_INDEX;
        if missing { invalid(NEEDS_FILE) } else { error }
    })?;
    let whole = Pieces::new(source, pieces).chain(pipe);
    let whole = Rewritten::new(whole, Mp4Fragments::new(extended), stream);
    Ok(Bytes::Pipe(Stream::of_pipe(whole)))
}

/// Reads the atoms of a pipe before its sound, and the head of the sound.
fn read_up_to_sound(pipe: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut before = Vec::new();
    for _ in 0..ATOMS {
        let at = before.len();
        let mut head = [0; 16];
        let mut length = fill(pipe, &mut head[..8])?;
        if head[..4] == [0, 0, 0, 1] && length == 8 {
            length += fill(pipe, &mut head[8..])?;
        }
        before.extend_from_slice(&head[..length]);
        if length < 8 || is_sound(&head[4..8]) {
            return Ok(before);
        }
        let atom = atom(&head[..length], at as u64, u64::MAX, Cut::Refused)?;
        if atom.end > BEFORE_SOUND {
            let message = format!("{BEFORE_SOUND} bytes before its sound, which needs a file");
            return Err(invalid(format!("expected at most {message}, not a pipe")));
        }
        let wanted = atom.length();
        before.reserve_exact(wanted as usize);
        if pipe.by_ref().take(wanted).read_to_end(&mut before)? as u64 != wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Err(invalid(format!("expected at most {ATOMS} atoms before its sound")))
}

fn is_sound(kind: &[u8]) -> bool {
    matches!(kind, b"mdat" | b"moof")
}

/// The pieces of a file of `length` bytes, of which those up to the sound are there, and the track that has fragments.
fn pieces(
    source: &mut (impl Read + Seek),
    length: u64,
    heard: &Heard,
) -> io::Result<(Vec<Piece>, Option<Extended>)> {
    // The first index, and what else `symphonia` would read up to the sound.
    let (mut index, mut others): (Option<Atom>, Vec<Atom>) = (None, Vec::new());
    let mut sound_first = false;
    each_atom(source, 0..length, Cut::Allowed, &mut |atom| {
        match &atom.kind {
            b"mdat" | b"moof" => {
                sound_first |= index.is_none();
                return Ok(index.is_none());
            }
            b"ftyp" => check_small(atom)?,
            b"moov" if index.is_none() => index = Some(atom),
            b"moov" | b"meta" | b"udta" => others.push(atom),
            _ => (),
        }
        Ok(true)
    })?;
    let Some(index) = index.filter(|index| index.end <= length) else {
        return Err(invalid(NO_INDEX));
    };
    let (sound, extended) = movie(source, index, (length, !sound_first), heard)?;
    let mut replaced = vec![(index, sound)];
    replaced.extend(others.into_iter().map(|atom| (atom, Vec::new())));
    replaced.sort_by_key(|(atom, _)| atom.start);
    let (mut pieces, mut at) = (Vec::new(), 0);
    for (atom, kept) in replaced {
        pieces.push(Piece::Original(at..atom.start));
        let (size, used) = (atom.end.min(length) - atom.start, length_of(&kept));
        // The parts that stay are at most as long as they were, and an atom that goes has a head of 8 bytes.
        let Some(free) = size.checked_sub(used).filter(|&free| free == 0 || free >= 8) else {
            return Err(invalid("an index: expected parts that fit into it"));
        };
        pieces.extend(kept);
        at = atom.start + size;
        if free > 0 {
            let head = head_of(*b"free", free);
            let rest = free - head.len() as u64;
            pieces.extend([Piece::New(head), Piece::Free(rest)]);
        }
    }
    pieces.push(Piece::Original(at..length));
    pieces.retain(|piece| piece.length() > 0);
    Ok((pieces, extended))
}

fn length_of(pieces: &[Piece]) -> u64 {
    pieces.iter().map(Piece::length).sum()
}

/// The head of an atom of this size, head included.
fn head_of(kind: [u8; 4], size: u64) -> Vec<u8> {
    let mut head = u32::try_from(size).unwrap_or(1).to_be_bytes().to_vec();
    head.extend(kind);
    if u32::try_from(size).is_err() {
        head.extend(size.to_be_bytes());
    }
    head
}

/// An atom with these parts.
fn atom_of(kind: &[u8; 4], parts: Vec<Piece>) -> Vec<Piece> {
    let mut all = vec![Piece::New(head_of(*kind, length_of(&parts) + 8))];
    all.extend(parts);
    all
}

fn check_small(atom: Atom) -> io::Result<()> {
    if atom.length() <= SMALL {
        return Ok(());
    }
    let (kind, length) = (atom.kind.escape_ascii(), atom.length());
    Err(invalid(format!("an atom `{kind}`: expected at most {SMALL} bytes, found {length}")))
}

/// The index `moov` with the first track of sound, and what it says of fragments, which follow an index
/// that is `first`. `length`: the bytes of the file.
fn movie(
    source: &mut (impl Read + Seek),
    index: Atom,
    (length, first): (u64, bool),
    heard: &Heard,
) -> io::Result<(Vec<Piece>, Option<Extended>)> {
    let (mut parts, mut head, mut extends) = (Vec::new(), None, None);
    let mut tracks = Vec::new();
    each_atom(source, index.range(), Cut::Refused, &mut |atom| {
        match &atom.kind {
            b"mvhd" => {
                check_small(atom)?;
                parts.push(Piece::whole(atom));
                head = Some(atom);
            }
            b"mvex" if first => extends = Some(atom),
            b"trak" => tracks.push(atom),
            _ => (),
        }
        Ok(true)
    })?;
    // One that may be decoded, else one that a decoder names.
    let mut chosen: Option<(Track, bool)> = None;
    for track in tracks {
        if let Some(track) = Track::read_from(source, track)? {
            let known = SOUND.contains(&&track.kind);
            if known || track.is_sound && chosen.is_none() {
                chosen = Some((track, known));
            }
        }
        if chosen.as_ref().is_some_and(|&(_, known)| known) {
            break;
        }
    }
    let Some((track, _)) = chosen else { return Err(invalid(NO_SOUND)) };
    let (track_parts, ticks) = track.parts(source, length, extends.is_some())?;
    parts.extend(track_parts);
    if let (Some(edits), Some(head), Some(media)) = (track.edits, head, track.media[0]) {
        let ticks = ticks.filter(|_| extends.is_none());
        if let Some(edits) = read_edits(source, edits, [head, media], ticks)? {
            heard.set_edits(edits);
        }
    }
    let mut extended = None;
    let before = ticks.unwrap_or(0);
    if let Some(extends) = extends {
        let mut kept = Vec::new();
        let mut runs = Vec::new();
        each_atom(source, extends.range(), Cut::Refused, &mut |atom| {
            runs.extend((&atom.kind == b"trex").then_some(atom));
            Ok(true)
        })?;
        for run in runs {
            let fields: [u8; 20] = content(source, run)?;
            if number(&fields[4..]) == track.id && extended.is_none() {
                extended = Some(Extended { track: track.id, size: number(&fields[16..]) });
                check_small(run)?;
                kept.push(Piece::whole(run));
            }
        }
        parts.extend(atom_of(b"mvex", kept));
        if extended.is_some() {
            heard.set_before_fragments(before);
        }
    }
    Ok((atom_of(b"moov", parts), extended))
}

/// The atoms of a track.
struct Track {
    id: u32,
    /// Whether it says that it is sound, and the type of its first description.
    is_sound: bool,
    kind: [u8; 4],
    /// `tkhd`; `edts`; `mdhd`, `hdlr`; `smhd`; `stsd`.
    head: Atom,
    edits: Option<Atom>,
    media: [Option<Atom>; 2],
    header: Option<Atom>,
    description: Atom,
    times: Option<Atom>,
    sizes: Option<Atom>,
    /// `stsc`, `stco`, `co64`.
    chunks: [Option<Atom>; 3],
}

impl Track {
    /// `None` if it has no description.
    fn read_from(source: &mut (impl Read + Seek), track: Atom) -> io::Result<Option<Self>> {
        let [head, edits, media] = find(source, track.range(), [b"tkhd", b"edts", b"mdia"])?;
        let (Some(head), Some(media)) = (head, media) else { return Ok(None) };
        let media = find(source, media.range(), [b"mdhd", b"hdlr", b"minf"])?;
        let [media_head, handler, Some(information)] = media else { return Ok(None) };
        let [header, tables] = find(source, information.range(), [b"smhd", b"stbl"])?;
        let Some(tables) = tables else { return Ok(None) };
        let kinds = [b"stsd", b"stts", b"stsz", b"stsc", b"stco", b"co64"];
        let [description, times, sizes, chunks @ ..] = find(source, tables.range(), kinds)?;
        let Some(description) = description else { return Ok(None) };
        let fields: [u8; 24] = content(source, head)?;
        let id = number(&fields[if fields[0] == 1 { 20 } else { 12 }..]);
        let is_sound = match handler {
            Some(handler) => content::<12>(source, handler)?[8..] == *b"soun",
            None => false,
        };
        let [.., a, b, c, d] = content::<16>(source, description)?;
        Ok(Some(Self {
            id,
            is_sound,
            kind: [a, b, c, d],
            head,
            edits,
            media: [media_head, handler],
            header,
            description,
            times,
            sizes,
            chunks,
        }))
    }

    /// The track, with its times in at most two runs, and the ticks of all its packets. `length`: the bytes of the file.
    /// Before fragments each packet must have a time: `symphonia` subtracts numbers of packets.
    fn parts(
        &self,
        source: &mut (impl Read + Seek),
        length: u64,
        is_fragmented: bool,
    ) -> io::Result<(Vec<Piece>, Option<u64>)> {
        let whole = |atoms: &[Option<Atom>]| -> Vec<Piece> {
            atoms.iter().flatten().copied().map(Piece::whole).collect()
        };
        let small = [
            &[Some(self.head), self.edits][..],
            &self.media,
            &[self.header, Some(self.description)],
        ];
        small.concat().into_iter().flatten().try_for_each(check_small)?;
        let packets = match self.sizes {
            Some(sizes) => check_sizes(source, sizes)?,
            None => 0,
        };
        // An entry of `stsc` takes 16 bytes instead of 12.
        let tables = [&self.chunks[..], &[self.sizes]].concat();
        let bytes: u64 = tables.iter().flatten().map(|table| table.length()).sum();
        let most = (TABLES + length) / GROWTH;
        if bytes > most {
            let message = format!("expected at most {most} bytes of tables, found {bytes}");
            return Err(invalid(format!("an index: {message}")));
        }
        let mut table = vec![Piece::whole(self.description)];
        let (mut ticks, mut timed) = (None, 0);
        if let Some(times) = self.times {
            let (times, count, sum) = runs(source, times)?;
            table.push(times);
            timed = count;
            ticks = Some(sum).filter(|&ticks| ticks > 0);
        }
        if is_fragmented && timed < u64::from(packets) {
            let message = format!("expected times of {packets} packets, found {timed}");
            return Err(invalid(format!("an index before fragments: {message}")));
        }
        table.extend(whole(&tables));
        let mut information = whole(&[self.header]);
        information.extend(atom_of(b"stbl", table));
        let mut media = whole(&self.media);
        media.extend(atom_of(b"minf", information));
        let mut track = vec![Piece::whole(self.head)];
        track.extend(atom_of(b"mdia", media));
        Ok((atom_of(b"trak", track), ticks))
    }
}

/// Checks the sizes of packets, and returns their number.
fn check_sizes(source: &mut (impl Read + Seek), table: Atom) -> io::Result<u32> {
    let fields: [u8; 12] = content(source, table)?;
    let check = |size: u32| match u64::from(size) <= PACKET {
        true => Ok(()),
        false => Err(invalid(format!("a packet: expected at most {PACKET} bytes, found {size}"))),
    };
    let count = number(&fields[8..]);
    match number(&fields[4..]) {
        0 => each_entry::<4>(source, table, (12, count), &mut |size| check(number(size)))?,
        size => check(size)?,
    }
    Ok(count)
}

/// The times of packets: the same number of packets and the same time, in at most two runs. Packets are read in their order, so
/// that only the sum counts. The number and the sum are returned, too.
fn runs(source: &mut (impl Read + Seek), table: Atom) -> io::Result<(Piece, u64, u64)> {
    let fields: [u8; 8] = content(source, table)?;
    let entries = number(&fields[4..]);
    let (mut count, mut time) = (0_u64, 0_u64);
    each_entry::<8>(source, table, (8, entries), &mut |entry| {
        let (packets, length) = (u64::from(number(entry)), u64::from(number(&entry[4..])));
        count += packets;
        let sum = packets.checked_mul(length).and_then(|more| time.checked_add(more));
        time = sum.ok_or_else(|| invalid("an atom `stts`: expected fewer samples"))?;
        Ok(())
    })?;
    // `symphonia` adds the number of a packet and that of a run as 32-bit numbers.
    let most = u64::from(u32::MAX / 2);
    if count > most {
        return Err(invalid(format!(
            "an atom `stts`: expected at most {most} packets, found {count}"
        )));
    }
    if entries <= 2 {
        return Ok((Piece::whole(table), count, time));
    }
    let (each, rest) = (time.checked_div(count).unwrap_or(0), time.checked_rem(count).unwrap_or(0));
    let mut new = head_of(*b"stts", 8 + 8 + 16);
    for field in [0, 2, count - rest, each, rest, each + 1] {
        let field = u32::try_from(field).map_err(|_| invalid("an atom `stts`: a long packet"))?;
        new.extend(field.to_be_bytes());
    }
    Ok((Piece::New(new), count, time))
}
