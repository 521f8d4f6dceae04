//! What is checked, or left out, before `symphonia` 0.6 reads a file: it allocates and computes by what headers say, and some
//! headers make it panic. It takes no limits: `MetadataOptions` has some, which are not read.
//!
//! Tags, comments, pictures and seek tables are left out, because nothing here needs them; of an MP4 file only the index of the
//! track that is decoded is left; a Vorbis decoder is refused if its tables need too much memory.

use super::decoder::Bytes;
use super::ebml_elements::EbmlElements;
use super::ebml_headers::EbmlHeaders;
use super::followed::{CUT, Followed};
use super::mp4_boxes::Mp4Boxes;
use super::mpeg_frames::MpegFrames;
use super::ogg_headers::OggHeaders;
use super::ogg_pages::OggPages;
use super::{flac_blocks, mp4_index};
use crate::audio::AudioError;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bytes that a call of the system reads.
const BLOCK: usize = 1 << 14;

/// The bytes of a source without what may be too much, which fail at the end if something is missing there. `head`: the first bytes
/// of the source. `frames` gets the number of bytes of the frames of a FLAC file.
pub(super) fn checked<'s>(
    bytes: Bytes<'s>,
    head: &[u8],
    frames: Arc<AtomicU64>,
) -> Result<Bytes<'s>, AudioError> {
    let reader: Box<dyn Read + Send + 's> = match bytes {
        bytes if head.get(4..8) == Some(b"ftyp") => {
            let bytes = match bytes {
                bytes @ Bytes::File(..) => bytes,
                bytes => Bytes::Pipe(Box::new(Followed::new(bytes, Mp4Boxes::default()))),
            };
            return mp4_index::audio_only(bytes).map_err(|error| cut("isomp4", error));
        }
        bytes if head.starts_with(b"OggS") => {
            Box::new(OggHeaders::new(Followed::new(bytes, OggPages::new())))
        }
        bytes if head.starts_with(b"\x1a\x45\xdf\xa3") => {
            Box::new(EbmlHeaders::new(Followed::new(bytes, EbmlElements::default())))
        }
        bytes if head.starts_with(flac_blocks::MARKER) => {
            let found = flac_blocks::frames_only(bytes, frames);
            Box::new(found.map_err(|error| cut("flac", error))?)
        }
        // An MP3 stream may begin in the middle of a frame.
        bytes => Box::new(MpegFrames::new(bytes)),
    };
    Ok(Bytes::Pipe(reader))
}

/// What an error of a check means.
fn cut(name: &'static str, error: io::Error) -> AudioError {
    match error.kind() {
        ErrorKind::UnexpectedEof => AudioError::decode(name, 0.0, CUT),
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
