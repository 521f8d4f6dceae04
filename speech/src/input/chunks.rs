//! What follows the samples of a WAV, AIFF or Wave64 file: other chunks, tags, more samples, or another recording.

use super::stream::{Stream, begins, is_frame};
use super::tags;
use crate::error::Error;
use crate::riff_chunks::{After, check_after};

/// The bytes of a chunk's name and length.
const CHUNK_HEAD: u64 = 8;

/// Passes over the chunks and tags after the samples, up to the end, other samples or another recording, which is the next one of
/// `stream` then. Returns the bytes of the other samples.
pub(super) fn pass(stream: &Stream<'_>, after: After) -> Result<Option<u64>, Error> {
    let (mut gap, mut passed) = (after.gap, 0_u64);
    for chunks in 0.. {
        let head = stream.peek().map_err(Error::not_read)?;
        if begins(&head) || gap == 0 && is_frame(&head) {
            stream.set_next();
            return Ok(None);
        }
        // Some writers leave out the bytes of a gap.
        if gap > 0 {
            stream.skip(core::mem::take(&mut gap)).map_err(Error::not_read)?;
            continue;
        }
        let Some(bytes) = tags::id3v2(&head).or_else(|| after.chunk(&head)) else {
            return Ok(None);
        };
        if let Some(size) = after.samples(&head) {
            stream.skip(CHUNK_HEAD).map_err(Error::not_read)?;
            return Ok(Some(size));
        }
        passed = passed.saturating_add(bytes);
        check_after(chunks, passed)?;
        stream.skip(bytes).map_err(Error::not_read)?;
    }
    Ok(None)
}
