//! What is checked, or left out, before `symphonia` 0.6 reads a file: it allocates and computes by what headers say, and some
//! headers make it panic. It takes no limits: `MetadataOptions` has some, which are not read.
//!
//! Tags, comments, pictures and seek tables are left out, because nothing here needs them; of an MP4 file only the index of the
//! track that is decoded is left; a Vorbis decoder is refused if its tables need too much memory.

use super::bytes::Bytes;
use super::ebml_elements::EbmlElements;
use super::ebml_headers::EbmlHeaders;
use super::followed::{CUT, Followed};
use super::heard::Heard;
use super::mpeg_frames::MpegFrames;
use super::ogg_headers::OggHeaders;
use super::ogg_pages::OggPages;
use super::rewritten::Rewritten;
use super::{flac_blocks, mp4_index};
use crate::error::Error;
use crate::input::stream::{Section, Stream};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The bytes of a recording without what may be too much, which fail at the end if something is missing there. `head`: the first
/// bytes of the recording; `section`: all bytes of an MP4 file that is not in a pipe. `frames` gets the number of bytes of the
/// frames of a FLAC file, and `heard` what a container says of the samples that are heard.
pub(super) fn checked<'s>(
    stream: Stream<'s>,
    section: Option<Section<'s>>,
    head: &[u8],
    frames: Arc<AtomicU64>,
    heard: &Heard,
) -> Result<Bytes<'s>, Error> {
    let all = stream.clone();
    let stream = match head {
        _ if head.get(4..8) == Some(b"ftyp") => {
            return mp4_index::audio_only(stream, section, heard)
                .map_err(|error| cut("isomp4", error));
        }
        [b'O', b'g', b'g', b'S', ..] => {
            let followed = Followed::new(stream, OggPages::new());
            Stream::of_pipe(Rewritten::new(followed, OggHeaders::default(), all))
        }
        [0x1a, 0x45, 0xdf, 0xa3, ..] => {
            let followed = Followed::new(stream, EbmlElements::default());
            Stream::of_pipe(Rewritten::new(followed, EbmlHeaders::new(heard.clone()), all))
        }
        _ if head.starts_with(flac_blocks::MARKER) => {
            let found = flac_blocks::frames_only(stream, frames);
            Stream::of_pipe(found.map_err(|error| cut("flac", error))?)
        }
        // An MP3 stream may begin in the middle of a frame.
        _ => Stream::of_pipe(MpegFrames::new(stream)),
    };
    Ok(Bytes::Pipe(stream))
}

/// What an error of a check means.
fn cut(name: &'static str, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => Error::incomplete(name, 0.0, CUT),
        ErrorKind::InvalidData => Error::incomplete(name, 0.0, error.to_string()),
        _ => Error::not_read(error),
    }
}
