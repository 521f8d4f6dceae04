//! The format of the samples of a WAV or Wave64 file.

use super::riff_chunks::u32_of;
use super::sample_format::{Format, Sample};
use crate::error::Error;

/// The maximum number of channels; no loudspeaker layout has more.
const CHANNELS: u16 = 64;
/// The maximum sample rate, in Hz: twice that of the fastest audio converters.
const RATE: u32 = 768_000;

/// Parses the first 40 bytes of a `fmt ` chunk, or all if it has fewer.
pub(crate) fn read_format(fields: &[u8]) -> Result<Format, Error> {
    const EXTENSIBLE: u16 = 0xfffe;
    if fields.len() < 16 {
        return Err(Error::corrupt("`fmt `", "at least 16 bytes", fields.len()));
    }
    let mut tag = u16_of(fields, 0);
    let (channels, rate) = (u16_of(fields, 2), u32_of(fields, 4));
    let (block, bits) = (u16_of(fields, 12), u16_of(fields, 14));
    if tag == EXTENSIBLE {
        if fields.len() < 40 {
            return Err(Error::corrupt(
                "`fmt ` of WAVE_FORMAT_EXTENSIBLE",
                "40 bytes",
                fields.len(),
            ));
        }
        // The rest of the GUID of a format, the same for all formats that have a tag.
        if &fields[26..40] != b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71" {
            let found = fields[24..40].escape_ascii();
            return Err(Error::unsupported(
                "the format",
                "PCM (1), floats (3), A-law (6) or mu-law (7)",
                found,
            ));
        }
        tag = u16_of(fields, 24);
    }
    let sample = match (tag, bits) {
        (1, 8) => Sample::U8,
        (1, 16) => Sample::I16,
        (1, 24) => Sample::I24,
        (1, 32) => Sample::I32,
        (3, 32) => Sample::F32,
        (3, 64) => Sample::F64,
        (6, 8) => Sample::ALaw,
        (7, 8) => Sample::MuLaw,
        (1, _) => return Err(Error::unsupported("bits of a sample", "8, 16, 24 or 32", bits)),
        (3, _) => return Err(Error::unsupported("bits of a float", "32 or 64", bits)),
        (6 | 7, _) => return Err(Error::unsupported("bits of A-law or mu-law", "8", bits)),
        _ => {
            let name = match tag {
                2 => " (ADPCM)",
                0x11 => " (IMA ADPCM)",
                0x31 => " (GSM)",
                0x50 => " (MPEG)",
                0x55 => " (MP3)",
                0xff => " (AAC)",
                0xfffe => " (extensible twice)",
                _ => "",
            };
            let found = format!("{tag}{name}");
            return Err(Error::unsupported(
                "the format",
                "PCM (1), floats (3), A-law (6) or mu-law (7)",
                found,
            ));
        }
    };
    let (channels, rate) = (check_channels(channels)?, check_rate(rate)?);
    if usize::from(block) != sample.bytes() * channels {
        let expected = format!("{}, {channels} channels of {bits} bits", sample.bytes() * channels);
        return Err(Error::corrupt("bytes of a block", expected, block));
    }
    Ok(Format { sample, channels, rate })
}

pub(crate) fn check_channels(channels: u16) -> Result<usize, Error> {
    match (1..=CHANNELS).contains(&channels) {
        true => Ok(usize::from(channels)),
        false => Err(Error::unsupported("channels", format!("1 to {CHANNELS}"), channels)),
    }
}

pub(crate) fn check_rate(rate: u32) -> Result<u32, Error> {
    match (1..=RATE).contains(&rate) {
        true => Ok(rate),
        false => Err(Error::unsupported("samples a second", format!("1 to {RATE}"), rate)),
    }
}

fn u16_of(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}
