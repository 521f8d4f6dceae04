//! The header of an AIFF or AIFF-C file; its samples are read as those of a WAV file.
//!
//! Own code, because `symphonia` 0.6 allocates by what the header says: 150 MB for a file of 20 kB.
//! Source: Apple, Audio Interchange File Format AIFF-C, draft of 1991-08-26.

use crate::error::Error;
use crate::riff_chunks::{Layout, Source};
use crate::sample_format::{Format, Sample};
use crate::wav::Wav;
use crate::wav_format::{check_channels, check_rate};
use std::io::Read;

/// Whether a file begins as an AIFF file.
pub(super) fn is_aiff(head: &[u8]) -> bool {
    head.starts_with(b"FORM") && matches!(head.get(8..12), Some(b"AIFF" | b"AIFC"))
}

/// Reads up to the first sample. `length`: the bytes of the file, if known.
pub(super) fn open<R: Read>(reader: R, length: Option<u64>) -> Result<Wav<R>, Error> {
    let mut source = Source::new(reader, length);
    source.fill(&mut [0; 12])?;
    let mut format = None;
    loop {
        let Some((name, size)) = source.next_chunk()? else {
            let expected = if format.is_none() { "`COMM` and `SSND`" } else { "`SSND`" };
            return Err(source.no_chunk(expected));
        };
        let size = u32::from_be_bytes(size);
        if &name == b"SSND" {
            let Some((format, frames)) = format else {
                return Err(Error::corrupt("chunks", "`COMM` before `SSND`", "none"));
            };
            let mut fields = [0; 8];
            if source.fill(&mut fields)? < fields.len() {
                return Err(source.truncated(&name, size));
            }
            let offset = u64::from(u32_of(&fields, 0));
            let (frames, block) = (u64::from(frames), Format::block(&format) as u64);
            // A writer that cannot seek back leaves no numbers.
            let open = size == 0 || source.is_placeholder(u64::from(size).max(1), 0)?;
            let space = u64::from(size).saturating_sub(8 + offset);
            let bytes = match frames {
                _ if open => None,
                0 => Some(space / block * block),
                frames if frames * block <= space => Some(frames * block),
                frames => {
                    let expected =
                        format!("{} bytes of {frames} samples", frames * block + offset + 8);
                    return Err(Error::corrupt("the chunk `SSND`", expected, size));
                }
            };
            if source.skip_bytes(offset)? < offset {
                return Err(source.truncated(&name, size));
            }
            // The chunk may have more bytes than samples.
            let gap = space - bytes.unwrap_or(space) + u64::from(size % 2);
            let wav = Wav::ready(source, format, bytes, "AIFF")?;
            return Ok(wav.followed_by(gap, Layout::Aiff));
        }
        source.check_chunk(&name, size)?;
        let mut rest = u64::from(size) + u64::from(size % 2);
        if &name == b"COMM" {
            if format.is_some() {
                return Err(Error::corrupt("chunks", "one `COMM`", "two"));
            }
            let mut fields = [0; 22];
            let fields = &mut fields[..(size as usize).min(22)];
            rest -= fields.len() as u64;
            let read = source.fill(fields)?;
            format = Some(read_common(&fields[..read])?);
        }
        if source.skip_bytes(rest)? + u64::from(size % 2) < rest {
            return Err(source.truncated(&name, size));
        }
    }
}

fn u16_of(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_of(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The format and the samples per channel of the first 22 bytes of `COMM`.
fn read_common(fields: &[u8]) -> Result<(Format, u32), Error> {
    if fields.len() < 18 {
        return Err(Error::corrupt("`COMM`", "at least 18 bytes", fields.len()));
    }
    let (channels, frames, bits) = (u16_of(fields, 0), u32_of(fields, 2), u16_of(fields, 6));
    // An extended float: sign and exponent, then 64 bits of the significand.
    let exponent = i32::from(u16_of(fields, 8));
    let significand =
        (f64::from(u32_of(fields, 10))) * 2f64.powi(32) + f64::from(u32_of(fields, 14));
    let rate = significand * 2f64.powi(exponent - 16_383 - 63);
    let rate = if rate.fract() == 0.0 && rate <= f64::from(u32::MAX) { rate as u32 } else { 0 };
    let kind = fields.get(18..22).unwrap_or(b"NONE");
    let sample = match (kind, bits) {
        (b"NONE" | b"twos", 1..=8) => Sample::I8,
        (b"NONE" | b"twos", 9..=16) => Sample::I16Be,
        (b"NONE" | b"twos", 17..=24) => Sample::I24Be,
        (b"NONE" | b"twos", 25..=32) => Sample::I32Be,
        (b"sowt", 9..=16) => Sample::I16,
        (b"fl32" | b"FL32", _) => Sample::F32Be,
        (b"fl64" | b"FL64", _) => Sample::F64Be,
        (b"alaw" | b"ALAW", _) => Sample::ALaw,
        (b"ulaw" | b"ULAW", _) => Sample::MuLaw,
        (b"NONE" | b"twos" | b"sowt", _) => {
            return Err(Error::unsupported("bits of a sample", "1 to 32", bits));
        }
        _ => {
            let expected = "NONE, twos, sowt, fl32, fl64, alaw or ulaw";
            return Err(Error::unsupported("the compression", expected, kind.escape_ascii()));
        }
    };
    let (channels, rate) = (check_channels(channels)?, check_rate(rate)?);
    Ok((Format { sample, channels, rate }, frames))
}
