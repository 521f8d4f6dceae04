//! Opens a container with `symphonia`, and what it reads.

use super::bytes::Bytes;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use symphonia::core::common::Limit;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::{Hint, Probe, ProbeOptions};
use symphonia::core::formats::{FormatOptions, FormatReader};
use symphonia::core::io::{MediaSource, MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;

/// The bytes of other data that may precede a file.
const SEARCHED: u32 = 1 << 15;
/// The largest text of a tag that is kept, in bytes; pictures are skipped.
const TAG: usize = 1 << 12;

/// A source for `symphonia`. Only files that need it can seek: then the others are read once, and front to back.
struct Media<'s> {
    bytes: Mutex<Bytes<'s>>,
    seekable: Option<u64>,
    /// How many bytes may be read before the next packet: a pipe may never end.
    allowed: Arc<AtomicU64>,
}

impl<'s> Media<'s> {
    fn bytes(&mut self) -> &mut Bytes<'s> {
        self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read for Media<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes().read(out)?;
        let allowed = self.allowed.load(Ordering::Relaxed);
        if allowed < read as u64 {
            let message = "there is no audio in many megabytes";
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        self.allowed.store(allowed - read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Seek for Media<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match (self.seekable, self.bytes()) {
            // A file that is cut ends where its last box should.
            (Some(end), Bytes::Pieces(pieces, _)) => pieces.seek(match to {
                SeekFrom::End(offset) => SeekFrom::Start(end.saturating_add_signed(offset)),
                to => to,
            }),
            _ => Err(ErrorKind::NotSeekable.into()),
        }
    }
}

impl MediaSource for Media<'_> {
    fn is_seekable(&self) -> bool {
        self.seekable.is_some()
    }

    fn byte_len(&self) -> Option<u64> {
        // The end where tags are looked for.
        match &*self.bytes.lock().unwrap_or_else(PoisonError::into_inner) {
            Bytes::Pieces(_, length) => self.seekable.map(|_| *length),
            Bytes::Pipe(_) => None,
        }
    }
}

/// Opens a checked source. `end`: where the last box of an MP4 file ends.
pub(super) fn open<'s>(
    bytes: Bytes<'s>,
    end: u64,
    allowed: Arc<AtomicU64>,
) -> Result<Box<dyn FormatReader + 's>, Error> {
    // The sound of an MP4 file may be before its index.
    let seekable = matches!(bytes, Bytes::Pieces(..)).then_some(end);
    let media = Media { bytes: Mutex::new(bytes), seekable, allowed };
    let stream = MediaSourceStream::new(Box::new(media), MediaSourceStreamOptions::default());
    let limit = MetadataOptions::default()
        .limit_tag_bytes(Limit::Maximum(TAG))
        .limit_visual_bytes(Limit::Maximum(0));
    let search = ProbeOptions { max_probe_depth: SEARCHED, ..ProbeOptions::default() };
    let mut probe = Probe::new_with_options(&search);
    symphonia::default::register_enabled_formats(&mut probe);
    guard(|| probe.probe(&Hint::new(), stream, FormatOptions::default(), limit))
}

/// The error of a call that panicked.
pub(super) const PANIC: &str = "its decoder failed";

/// What `call` returns. `symphonia` checks most lengths, but an arithmetic overflow in a damaged file is a panic in a build with
/// overflow checks; here it is an error. The caller does not use the reader after it.
pub(super) fn guard<T>(call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Error::DecodeError(PANIC)))
}
