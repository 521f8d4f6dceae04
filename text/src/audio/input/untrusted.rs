//! What is checked, or left out, before `symphonia` 0.6 reads a file: it allocates and computes by what headers say, and some
//! headers make it panic. It takes no limits: `MetadataOptions` has some, which are not read.
//!
//! Tags, comments, pictures and seek tables are left out, because nothing here needs them; of an MP4 file only the index of the
//! track that is decoded is left; a Vorbis decoder is refused if its tables need too much memory.

use super::decoder::Bytes;
use super::ogg_headers::OggHeaders;
use super::ogg_pages::OggPages;
use super::{flac_blocks, mp4_index};
use crate::audio::AudioError;
use std::io::{self, Cursor, ErrorKind, Read};

/// Bytes that a call of the system reads.
const BLOCK: usize = 1 << 14;
/// The head of an ID3v2 tag, and the flag of a tag that has a foot.
const TAG_HEAD: usize = 10;
const HAS_FOOT: u8 = 0x10;
/// The bytes of tags before the first frame: pictures have some megabytes.
const TAGS: u64 = 256 << 20;

/// The bytes of a file without what may be too much, and their first ones. `head`: the first bytes of the file.
pub(super) fn checked<'s>(
    mut bytes: Bytes<'s>,
    head: &[u8],
) -> Result<(Bytes<'s>, Vec<u8>), AudioError> {
    let mut head = head.to_vec();
    let mut skipped = 0;
    while head.starts_with(b"ID3") && head.len() >= TAG_HEAD {
        let tag = tag_bytes(&head);
        skipped += tag;
        let wanted = head.len();
        let mut rest = match skipped > TAGS {
            true => Err(invalid("there is no audio in many megabytes")),
            false => skip(&mut bytes, tag).map(|()| bytes),
        }
        .map_err(|error| cut("mp3", error))?;
        head.clear();
        let read = rest.by_ref().take(wanted as u64).read_to_end(&mut head);
        read.map_err(|error| AudioError::Read { error })?;
        bytes = Bytes::Pipe(Box::new(Cursor::new(head.clone()).chain(rest)));
    }
    let bytes = if head.starts_with(flac_blocks::MARKER) {
        let frames = flac_blocks::frames_only(bytes).map_err(|error| cut("flac", error))?;
        Bytes::Pipe(Box::new(frames))
    } else if head.starts_with(b"OggS") {
        Bytes::Pipe(Box::new(OggHeaders::new(OggPages::new(bytes))))
    } else if head.get(4..8) == Some(b"ftyp") {
        mp4_index::audio_only(bytes).map_err(|error| cut("isomp4", error))?
    } else {
        bytes
    };
    Ok((bytes, head))
}

/// The bytes of an ID3v2 tag, with its head and its foot.
fn tag_bytes(head: &[u8]) -> u64 {
    let size = head[6..TAG_HEAD].iter().fold(0, |size, &byte| size << 7 | u64::from(byte & 0x7f));
    let foot = if head[5] & HAS_FOOT != 0 { TAG_HEAD } else { 0 };
    size + (TAG_HEAD + foot) as u64
}

/// What an error of a check means.
fn cut(name: &'static str, error: io::Error) -> AudioError {
    match error.kind() {
        ErrorKind::UnexpectedEof => AudioError::decode(name, 0.0, "the file ends too early"),
        ErrorKind::InvalidData => AudioError::decode(name, 0.0, error.to_string()),
        _ => AudioError::Read { error },
    }
}

pub(super) fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message.into())
}

/// Reads `count` bytes and forgets them.
pub(super) fn skip(reader: &mut impl Read, mut count: u64) -> io::Result<()> {
    let mut block = [0; BLOCK];
    while count > 0 {
        let wanted = count.min(BLOCK as u64) as usize;
        match reader.read(&mut block[..wanted]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => count -= read as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads until `out` is full or the source ends, and returns the number of bytes.
pub(super) fn fill(reader: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < out.len() {
        match reader.read(&mut out[count..]) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
