//! What is checked, or left out, before `symphonia` 0.6 reads a file: it allocates and computes by what headers say, and some
//! headers make it panic. It takes no limits: `MetadataOptions` has some, which are not read.
//!
//! Tags, comments, pictures and seek tables are left out, because nothing here needs them; of an MP4 file only the index of the
//! track that is decoded is left; a Vorbis decoder is refused if its tables need too much memory.

use super::bytes::Bytes;
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
