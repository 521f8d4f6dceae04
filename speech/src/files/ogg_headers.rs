//! Checks the headers of the streams of an Ogg file, and empties their comments, before a decoder sees them.
//!
//! `symphonia` 0.6 takes a hundred bytes for each comment of seven, takes a header wherever it comes, and keeps a stream for each
//! first page. Sources: RFC 3533; Vorbis I specification, section 4.2; RFC 7845, section 5.2.

use super::bytes::{fill, invalid};
use super::rewritten::{Part, Parts, is_another};
use super::vorbis_setup;
use std::collections::BTreeMap;
use std::io::{self, BufReader, ErrorKind, Read};

/// Bytes of a page's head without its table of segments, and the most segments.
const HEAD: usize = 27;
const SEGMENTS: usize = 255;
/// Flags of a page: its first packet began on an earlier page; it is the first page of a stream.
const CONTINUED: u8 = 1;
const FIRST: u8 = 2;
/// The most bytes that are no page, or damaged ones, before a page that is whole: a pipe may never end.
const BETWEEN: u64 = 4 << 20;
/// Most streams that begin together.
const STREAMS: usize = 16;
/// The bytes of a packet: of a setup header, so that it is one page, of comments with pictures, and of another one.
const SETUP: usize = 65_000;
const COMMENTS: u64 = 256 << 20;
const PACKET: u64 = 1 << 20;
/// The memory of the metadata of a FLAC stream, and that of a byte of comments and of other metadata.
const METADATA: u64 = 8 << 20;
const COMMENT_BYTE: u64 = 20;
const OTHER_BYTE: u64 = 3;
/// Comments that say nothing. Those of FLAC are a block of metadata.
const VORBIS_COMMENT: &[u8] = b"\x03vorbis\0\0\0\0\0\0\0\0\x01";
const OPUS_COMMENT: &[u8] = b"OpusTags\0\0\0\0\0\0\0\0";
/// What packets begin with: a header of Vorbis, and the frames of FLAC.
const VORBIS_HEADER: u8 = 1;
const FLAC_FRAME: u8 = 0xff;
const FLAC_COMMENT: u8 = 4;

/// What a stream has.
#[derive(Clone, Copy, PartialEq)]
enum Codec {
    Vorbis,
    Opus,
    Flac,
    /// One that is not decoded.
    Other,
}

/// A stream of packets.
struct Stream {
    codec: Codec,
    /// Headers that are complete.
    headers: usize,
    /// The first byte of the current packet, its bytes so far, and what is kept of it if it is a header.
    kind: u8,
    length: u64,
    header: Vec<u8>,
    /// The memory that metadata of FLAC may still take.
    most: u64,
}

impl Stream {
    fn is_header(&self) -> bool {
        match self.codec {
            Codec::Vorbis => self.headers < 3,
            Codec::Opus => self.headers < 2,
            Codec::Flac | Codec::Other => false,
        }
    }
}

/// The pages of an Ogg file.
#[derive(Default)]
pub(super) struct OggHeaders {
    streams: BTreeMap<u32, Stream>,
    /// Whether a page was read, and whether the last one was the first of its stream.
    begun: bool,
    beginning: bool,
    /// Whether a page was left out because it is damaged.
    damaged: bool,
    /// Bytes since the last page that was whole.
    passed: u64,
}

impl Parts for OggHeaders {
    /// Reads a page, and returns what is kept of it.
    fn next(&mut self, reader: &mut BufReader<impl Read>) -> io::Result<Part> {
        let mut page = vec![0; HEAD];
        let read = fill(reader, &mut page)?;
        if read == 0 {
            return self.end();
        }
        // Only after a page that is whole: sound looks like frames, too.
        if self.begun && self.passed == 0 && !page.starts_with(b"OggS") {
            let mut head = page[..read].to_vec();
            if is_another(reader, &mut head)? {
                return Ok(Part::Another(head));
            }
            // Bytes that were read to find it out are passed over.
            self.pass(head.len().saturating_sub(read))?;
        }
        if read < HEAD {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // Other bytes are passed over, which `OggPages` notes.
        while !page.starts_with(b"OggS") {
            page.rotate_left(1);
            self.pass(1)?;
            if fill(reader, &mut page[HEAD - 1..])? == 0 {
                return self.end();
            }
        }
        let segments = usize::from(page[HEAD - 1]);
        page.resize(HEAD + segments, 0);
        reader.read_exact(&mut page[HEAD..])?;
        let content: usize = page[HEAD..].iter().map(|&length| usize::from(length)).sum();
        let body = page.len();
        page.resize(body + content, 0);
        reader.read_exact(&mut page[body..])?;
        Ok(Part::Bytes(self.check_page(page, segments)?, 0))
    }
}

impl OggHeaders {
    fn end(&mut self) -> io::Result<Part> {
        match core::mem::take(&mut self.damaged) {
            true => Err(invalid("the checksum of a page is another one")),
            false => Ok(Part::End),
        }
    }

    /// Counts bytes that are passed over.
    fn pass(&mut self, bytes: usize) -> io::Result<()> {
        self.passed += bytes as u64;
        if self.passed > BETWEEN {
            return Err(invalid(format!("expected a page `OggS` in {BETWEEN} bytes, found none")));
        }
        Ok(())
    }

    /// Returns what is kept of a page.
    fn check_page(&mut self, page: Vec<u8>, segments: usize) -> io::Result<Vec<u8>> {
        let (flags, body) = (page[5], HEAD + segments);
        // A decoder would look for pages inside of it.
        if checksum(&page) != u32::from_le_bytes([page[22], page[23], page[24], page[25]]) {
            self.damaged = true;
            self.pass(page.len())?;
            return Ok(Vec::new());
        }
        (self.passed, self.begun) = (0, true);
        let serial = u32::from_le_bytes([page[14], page[15], page[16], page[17]]);
        let first = flags & FIRST != 0;
        if first {
            if !self.beginning {
                self.streams.clear();
            }
            let content = &page[body..];
            let codec = match content {
                [VORBIS_HEADER, rest @ ..] if rest.starts_with(b"vorbis") => Codec::Vorbis,
                _ if content.starts_with(b"OpusHead") => Codec::Opus,
                _ if content.starts_with(b"\x7fFLAC") => Codec::Flac,
                _ => Codec::Other,
            };
            let stream = Stream {
                codec,
                headers: 0,
                kind: 0,
                length: 0,
                header: Vec::new(),
                most: METADATA,
            };
            self.streams.insert(serial, stream);
            if self.streams.len() > STREAMS {
                return Err(invalid(format!("expected at most {STREAMS} streams, found more")));
            }
        }
        self.beginning = first;
        // A page of a stream that has not begun is not decoded, either.
        let Some(stream) = self.streams.get_mut(&serial).filter(|s| s.codec != Codec::Other) else {
            return Ok(page);
        };
        let mut out = Vec::new();
        let has_header = stream.is_header();
        if flags & CONTINUED == 0 {
            (stream.length, stream.header) = (0, Vec::new());
        }
        let mut at = body;
        for segment in 0..segments {
            let length = usize::from(page[HEAD + segment]);
            let bytes = &page[at..at + length];
            let is_header = stream.is_header();
            stream.take(bytes, is_header)?;
            at += length;
            if length == SEGMENTS {
                continue;
            }
            // The packet ends here.
            stream.length = 0;
            if !is_header {
                continue;
            }
            let header = core::mem::take(&mut stream.header);
            stream.headers += 1;
            let kept = match (stream.codec, stream.headers) {
                (Codec::Vorbis, 2) if header.starts_with(b"\x03vorbis") => VORBIS_COMMENT,
                (Codec::Vorbis, 3) if header.starts_with(b"\x05vorbis") => {
                    vorbis_setup::check(&header).map_err(invalid)?;
                    &header
                }
                (Codec::Opus, 2) if header.starts_with(b"OpusTags") => OPUS_COMMENT,
                (Codec::Vorbis | Codec::Opus, 1) => &header,
                (_, number) => return Err(invalid(format!("header {number} is another one"))),
            };
            let flags = if stream.headers == 1 { flags & FIRST } else { 0 };
            out.extend(page_of(&page, flags, kept));
            if !stream.is_header() && segment + 1 < segments {
                // Packets after the last header.
                let table = page[HEAD + segment + 1..body].to_vec();
                for length in &table {
                    let length = usize::from(*length);
                    stream.take(&page[at..at + length], false)?;
                    at += length;
                    stream.length = if length < SEGMENTS { 0 } else { stream.length };
                }
                let flags_of_rest = page[5] & !(CONTINUED | FIRST);
                let rest =
                    page.len() - table.iter().map(|&length| usize::from(length)).sum::<usize>();
                out.extend(page_with(&page, flags_of_rest, &table, &page[rest..]));
                return Ok(out);
            }
        }
        Ok(if has_header { out } else { page })
    }
}

impl Stream {
    /// Takes the next bytes of a packet.
    fn take(&mut self, bytes: &[u8], is_header: bool) -> io::Result<()> {
        let begins = self.length == 0;
        self.length += bytes.len() as u64;
        if is_header {
            let comments = matches!((self.codec, self.headers), (Codec::Vorbis | Codec::Opus, 1));
            let most = if comments { COMMENTS } else { SETUP as u64 };
            if self.length > most {
                return Err(invalid(format!(
                    "a header: expected at most {most} bytes, found more"
                )));
            }
            let kept = if comments { VORBIS_COMMENT.len() } else { SETUP };
            let free = kept.saturating_sub(self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..free]);
            return Ok(());
        }
        if self.length > PACKET {
            return Err(invalid(format!("a packet: expected at most {PACKET} bytes, found more")));
        }
        if let (true, Some(&kind)) = (begins, bytes.first()) {
            self.kind = kind;
        }
        match self.codec {
            Codec::Vorbis if self.kind & VORBIS_HEADER != 0 => {
                Err(invalid("a header among the packets of sound"))
            }
            Codec::Flac if self.kind != FLAC_FRAME => {
                let comment = self.kind & 0x7f == FLAC_COMMENT;
                let byte = if comment { COMMENT_BYTE } else { OTHER_BYTE };
                let left = self.most.checked_sub(byte * bytes.len() as u64);
                self.most = left.ok_or_else(|| invalid("there are many megabytes of metadata"))?;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A page with one whole packet, otherwise as `page`.
fn page_of(page: &[u8], flags: u8, packet: &[u8]) -> Vec<u8> {
    let mut table = vec![SEGMENTS as u8; packet.len() / SEGMENTS];
    table.push((packet.len() % SEGMENTS) as u8);
    page_with(page, flags, &table, packet)
}

/// A page with this content, otherwise as `page`.
fn page_with(page: &[u8], flags: u8, table: &[u8], content: &[u8]) -> Vec<u8> {
    let mut new = page[..HEAD].to_vec();
    (new[5], new[HEAD - 1]) = (flags, table.len() as u8);
    new.extend_from_slice(table);
    new.extend_from_slice(content);
    let sum = checksum(&new);
    new[22..26].copy_from_slice(&sum.to_le_bytes());
    new
}

/// What a byte contributes to a checksum, which begins with the highest bit.
const CHECKSUMS: [u32; 256] = {
    const POLYNOMIAL: u32 = 0x04c1_1db7;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = ((byte as u32) << 24, 0);
        while bit < 8 {
            sum = sum << 1 ^ if sum >> 31 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// The checksum of a page, whose own field counts as zeros.
fn checksum(page: &[u8]) -> u32 {
    let (head, rest) = page.split_at(page.len().min(22));
    let content = rest.get(4..).unwrap_or_default();
    let zeros = &[0; 4][..rest.len().min(4)];
    [head, zeros, content]
        .into_iter()
        .flatten()
        .fold(0, |sum, &byte| sum << 8 ^ CHECKSUMS[usize::from((sum >> 24) as u8 ^ byte)])
}
