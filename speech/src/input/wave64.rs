//! The header of a Wave64 file: a WAV file whose names of chunks have 16 bytes, and whose lengths 8.
//!
//! Source: Sony Pictures Digital, Sony Wave64 format, 2003.

use crate::error::Error;
use crate::riff_chunks::{Layout, Source};
use crate::wav::Wav;
use crate::wav_format::read_format;
use std::io::Read;

/// The ends of the names `riff`, and of the others.
const RIFF: &[u8; 16] = b"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\0\0";
const OTHER: &[u8; 12] = b"\xf3\xac\xd3\x11\x8c\xd1\0\xc0\x4f\x8e\xdb\x8a";
/// Bytes of a chunk's name and length, which the length counts.
const HEAD: u64 = 24;

/// Whether a file begins as a Wave64 file.
pub(super) fn is_wave64(head: &[u8]) -> bool {
    head.starts_with(RIFF) && head.get(28..40) == Some(OTHER)
}

/// Reads up to the first sample. `length`: the bytes of the file, if known.
pub(super) fn open<R: Read>(reader: R, length: Option<u64>) -> Result<Wav<R>, Error> {
    let mut source = Source::new(reader, length);
    source.fill(&mut [0; 40])?;
    let mut format = None;
    loop {
        // The name, whose end is the same for all chunks, and the length.
        let Some((name, _)) = source.next_chunk()? else {
            let expected = if format.is_none() { "`fmt ` and `data`" } else { "`data`" };
            return Err(source.no_chunk(expected));
        };
        let mut rest = [0; 16];
        if source.fill(&mut rest)? < rest.len() {
            return Err(source.no_chunk("`data`"));
        }
        let size = u64::from_le_bytes([8, 9, 10, 11, 12, 13, 14, 15].map(|at| rest[at]));
        if &name == b"data" {
            let Some(format) = format else {
                return Err(Error::corrupt("chunks", "`fmt ` before `data`", "none"));
            };
            // A length without that of the head is one of a file that was not ended.
            let open = size <= HEAD || source.is_placeholder(size, 0)?;
            let wav = Wav::ready(source, format, (!open).then(|| size - HEAD), "Wave64")?;
            return Ok(wav.followed_by(size.wrapping_neg() % 8, Layout::Wave64));
        }
        let content = size.checked_sub(HEAD).and_then(|size| u32::try_from(size).ok());
        let Some(content) = content else {
            return Err(Error::corrupt("the length of a chunk", "24 or more bytes", size));
        };
        source.check_chunk(&name, content)?;
        // Chunks begin at multiples of 8 bytes.
        let mut left = u64::from(content).next_multiple_of(8);
        if &name == b"fmt " {
            let mut fields = [0; 40];
            let fields = &mut fields[..(content as usize).min(40)];
            left -= fields.len() as u64;
            let read = source.fill(fields)?;
            format = Some(read_format(&fields[..read])?);
        }
        if source.skip_bytes(left)? < left {
            return Err(source.truncated(&name, content));
        }
    }
}
