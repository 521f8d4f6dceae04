//! Reads WAV files sample by sample, and the samples of raw and AIFF files.
//!
//! This crate has its own reader because of four defects of `hound` 3.5: it does not name an unsupported format, it
//! reads the byte that pads a chunk of odd length as the start of the next chunk's name, it skips four bytes of a
//! `fact` chunk regardless of its length, and it fails on pipes of ffmpeg, whose lengths are unknown. No allocation
//! depends on a header: samples go through one buffer of a fixed size, so a file may have any length.

use super::error::AudioError;
use super::sample_format::{Channel, Format, RawFormat, Sample};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

/// The maximum number of channels; no loudspeaker layout has more.
const CHANNELS: u16 = 64;
/// The maximum sample rate, in Hz: twice that of the fastest audio converters.
const RATE: u32 = 768_000;
/// Bytes per read.
const BUFFER: usize = 1 << 16;
/// The length that a writer leaves if it cannot seek back.
const UNKNOWN: u32 = u32::MAX;
/// The maximum number of chunks before the samples; usually there are one to five.
const CHUNKS: usize = 1000;
/// The maximum length of a chunk before the samples, in bytes; with pictures there are some megabytes.
const SKIPPED: u32 = 64 << 20;

/// An open WAV file: PCM of 8, 16, 24 or 32 bits, floats of 32 or 64 bits, A-law or mu-law. Several channels are averaged to one.
///
/// Integers are scaled to -1 to 1: they are divided by 128, 32768, 2^23 or 2^31. Floats are unchanged. Chunks without
/// samples are skipped. The length in the first twelve bytes is not checked, because many writers set it wrongly; the
/// lengths of chunks are checked against the file. If both the first length and the length of the samples are 0 or
/// 2^32 - 1, the writer could not seek back, and the samples extend to the end of the file. A file of more than 4 GiB is an
/// RF64 file (EBU Tech 3306), whose lengths are in a chunk `ds64`.
pub struct Wav<R> {
    reader: BufReader<R>,
    format: Format,
    /// Unread bytes of samples; `None` if they extend to the end.
    left: Option<u64>,
    /// The number of bytes of all samples.
    bytes: Option<u64>,
    /// Which channel is returned.
    channel: Channel,
    /// Samples per channel that were returned.
    position: u64,
    buffer: Vec<u8>,
    /// The range of `buffer` that was read but not returned.
    ready: core::ops::Range<usize>,
}

impl<R> fmt::Debug for Wav<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wav")
            .field("format", &self.format)
            .field("bytes", &self.bytes)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Wav<File> {
    /// Opens the file at `path` and reads up to its first sample.
    ///
    /// # Errors
    /// The file cannot be read, is of another kind (the error names it), or has a header that is inconsistent or
    /// contradicts the length of the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, AudioError> {
        let path = path.as_ref();
        let open = |error| AudioError::Open { path: path.to_owned(), error };
        let file = File::open(path).map_err(open)?;
        let about = file.metadata().map_err(open)?;
        if about.is_dir() {
            return Err(open(ErrorKind::IsADirectory.into()));
        }
        // A pipe has no length.
        Self::begin(file, about.is_file().then_some(about.len()))
    }
}

impl<R: Read> Wav<R> {
    /// Reads `reader` up to its first sample.
    ///
    /// # Errors
    /// As [`Wav::open`]; a chunk that is longer than the remaining data is detected when the data ends.
    pub fn new(reader: R) -> Result<Self, AudioError> {
        Self::begin(reader, None)
    }

    /// A stream of samples without a header. `length`: its bytes, if known.
    pub(super) fn raw(reader: R, raw: RawFormat, length: Option<u64>) -> Result<Self, AudioError> {
        let format = Format {
            sample: raw.encoding.into(),
            channels: check_channels(raw.channels)?,
            rate: check_rate(raw.rate)?,
        };
        Self::ready(Source::new(reader, length), format, None)
    }

    /// Selects the channel that `read` returns, which the file has.
    pub(super) fn select(&mut self, channel: Channel) {
        self.channel = channel;
    }

    pub(super) fn begin(reader: R, length: Option<u64>) -> Result<Self, AudioError> {
        let mut source = Source::new(reader, length);
        let mut head = [0; 12];
        let read = source.fill(&mut head)?;
        // RF64, a file of more than 4 GiB, has its lengths in a chunk `ds64`.
        let long = head.starts_with(b"RF64");
        if read < head.len() || !(long || head.starts_with(b"RIFF")) || &head[8..] != b"WAVE" {
            return Err(AudioError::Kind { found: kind(&head[..read]) });
        }
        let mut long_size = None;
        let whole = u32_of(&head, 4);
        let mut format = None;
        loop {
            let Some((name, size)) = source.next_chunk()? else {
                return Err(source.no_chunk(match format {
                    None => "`fmt ` and `data`",
                    Some(_) => "`data`",
                }));
            };
            let size = u32::from_le_bytes(size);
            if &name == b"data" {
                let Some(format) = format else {
                    return Err(AudioError::wav("chunks", "`fmt ` before `data`", "none"));
                };
                let unknown = whole == size && (size == 0 || size == UNKNOWN);
                let known = match long_size {
                    Some(long_size) if size == UNKNOWN => Some(long_size),
                    _ => (!unknown).then_some(u64::from(size)),
                };
                return Self::ready(source, format, known);
            }
            source.check_chunk(&name, size)?;
            // An odd length is followed by a padding byte, which some writers omit at the end of a file.
            let mut rest = u64::from(size) + u64::from(size % 2);
            if &name == b"fmt " {
                if format.is_some() {
                    return Err(AudioError::wav("chunks", "one `fmt `", "two"));
                }
                let mut fields = [0; 40];
                let fields = &mut fields[..(size as usize).min(40)];
                let read = source.fill(fields)?;
                let found = fields.len() as u64;
                rest -= found;
                format = Some(read_format(&fields[..read])?);
            } else if long && &name == b"ds64" && size >= 16 {
                let mut sizes = [0; 16];
                rest -= source.fill(&mut sizes)? as u64;
                let [low, high] = [u32_of(&sizes, 8), u32_of(&sizes, 12)].map(u64::from);
                long_size = Some(high << 32 | low);
            }
            let passed = source.skip_bytes(rest)?;
            if passed + u64::from(size % 2) < rest {
                return Err(source.truncated(&name, size));
            }
        }
    }

    pub(super) fn ready(
        source: Source<R>,
        format: Format,
        size: Option<u64>,
    ) -> Result<Self, AudioError> {
        let block = format.block();
        if let Some(size) = size {
            source.check_size(b"data", size)?;
            if !size.is_multiple_of(block as u64) {
                return Err(AudioError::wav(
                    "`data`",
                    format!("a multiple of {block} bytes, {} channels", format.channels),
                    size,
                ));
            }
        } else if let Some(remaining) = source.remaining()
            && !remaining.is_multiple_of(block as u64)
        {
            let expected = format!("a multiple of {block} bytes to the end");
            return Err(AudioError::wav("`data`, which has no length,", expected, remaining));
        }
        let bytes = size.or(source.remaining());
        Ok(Self {
            reader: source.reader,
            format,
            left: bytes,
            bytes,
            channel: Channel::Mix,
            position: 0,
            buffer: vec![0; BUFFER / block * block],
            ready: 0..0,
        })
    }

    /// Samples per second.
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.format.rate
    }

    /// Channels of the file; `read` returns one.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.format.channels
    }

    /// Samples per channel, if the file defines the length.
    #[must_use]
    pub fn samples(&self) -> Option<u64> {
        self.bytes.map(|bytes| bytes / (self.format.sample.bytes() * self.format.channels) as u64)
    }

    /// Reads the next samples into `out`. Returns the number of samples; it is less than `out.len()` only at the end.
    ///
    /// # Errors
    /// The file ends before its samples do, or a sample is not finite; the error has its index.
    pub fn read(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
        let Format { sample, channels, .. } = self.format;
        let block = sample.bytes() * channels;
        let mut written = 0;
        while written < out.len() {
            if self.ready.is_empty() && !self.refill(block)? {
                break;
            }
            let bytes = &self.buffer[self.ready.clone()];
            let space = &mut out[written..];
            let count = space.len().min(bytes.len() / block);
            for (block, out) in bytes.chunks_exact(block).zip(&mut space[..count]) {
                let mut values =
                    block.chunks_exact(sample.bytes()).map(|bytes| sample.value(bytes));
                let mean = match self.channel {
                    Channel::Mix => (values.sum::<f64>() / channels as f64) as f32,
                    Channel::Index(index) => values.nth(index).unwrap_or(f64::NAN) as f32,
                };
                if !mean.is_finite() {
                    let what = format!("sample {}", self.position);
                    return Err(AudioError::wav(what, "a finite number", mean));
                }
                *out = mean;
                self.position += 1;
            }
            self.ready.start += count * block;
            written += count;
        }
        Ok(written)
    }

    /// Reads more whole blocks, as many as there are; returns false at the end. A pipe is not waited for longer than until the
    /// first block is complete.
    fn refill(&mut self, block: usize) -> Result<bool, AudioError> {
        let space = self.buffer.len() as u64;
        let want = self.left.map_or(space, |left| left.min(space)) as usize;
        let mut read = 0;
        while read < want && (read == 0 || !read.is_multiple_of(block)) {
            match read_some(&mut self.reader, &mut self.buffer[read..want])? {
                0 => break,
                more => read += more,
            }
        }
        let partial = !read.is_multiple_of(block);
        if let Some(left) = &mut self.left {
            if (read == 0 && want > 0) || partial {
                let samples = |bytes: u64| bytes / block as u64;
                let total = samples(self.bytes.unwrap_or_default());
                let found = samples(self.bytes.unwrap_or_default() - *left + read as u64);
                return Err(AudioError::wav("`data`", format!("{total} samples"), found));
            }
            *left -= read as u64;
        } else if partial {
            let found = format!("{} at the end", read % block);
            return Err(AudioError::wav("a sample", format!("{block} bytes"), found));
        }
        self.ready = 0..read;
        Ok(read > 0)
    }
}

/// The name of a chunk, and the bytes of its size.
type ChunkHead = ([u8; 4], [u8; 4]);

/// A reader with its position, and its length if known.
pub(super) struct Source<R> {
    reader: BufReader<R>,
    length: Option<u64>,
    at: u64,
    /// The number of chunks that were begun.
    chunks: usize,
}

impl<R: Read> Source<R> {
    pub(super) fn new(reader: R, length: Option<u64>) -> Self {
        Self { reader: BufReader::new(reader), length, at: 0, chunks: 0 }
    }

    /// The name and the four bytes of the size of the next chunk; `None` at the end.
    pub(super) fn next_chunk(&mut self) -> Result<Option<ChunkHead>, AudioError> {
        if self.chunks == CHUNKS {
            let expected = format!("at most {CHUNKS} before the samples");
            return Err(AudioError::wav("chunks", expected, "more"));
        }
        self.chunks += 1;
        let (mut name, mut size) = ([0; 4], [0; 4]);
        let read = self.fill(&mut name)? + self.fill(&mut size)?;
        Ok((read == 8).then_some((name, size)))
    }

    /// The error for a file that ends before its chunk `expected`.
    pub(super) fn no_chunk(&self, expected: &str) -> AudioError {
        let found = format!("the end of the file after {} bytes", self.at);
        AudioError::wav("chunks", expected, found)
    }

    /// Checks a chunk that is not the samples.
    pub(super) fn check_chunk(&self, name: &[u8; 4], size: u32) -> Result<(), AudioError> {
        self.check_size(name, u64::from(size))?;
        if size > SKIPPED {
            let what = format!("the chunk {}", escaped_name(name));
            return Err(AudioError::wav(what, format!("at most {SKIPPED} bytes"), size));
        }
        Ok(())
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, AudioError> {
        let read = fill(&mut self.reader, bytes)?;
        self.at += read as u64;
        Ok(read)
    }

    /// Skips bytes; returns how many were skipped.
    pub(super) fn skip_bytes(&mut self, bytes: u64) -> Result<u64, AudioError> {
        let passed = io::copy(&mut self.reader.by_ref().take(bytes), &mut io::sink())
            .map_err(|error| AudioError::Read { error })?;
        self.at += passed;
        Ok(passed)
    }

    /// Checks that the remaining bytes are at least the size of a chunk.
    pub(super) fn check_size(&self, name: &[u8; 4], size: u64) -> Result<(), AudioError> {
        match self.remaining() {
            Some(remaining) if remaining < size => {
                let found = format!("{remaining} to the end of the file");
                let what = format!("the chunk {}", escaped_name(name));
                Err(AudioError::wav(what, format!("{size} bytes"), found))
            }
            _ => Ok(()),
        }
    }

    /// Bytes to the end, if known.
    fn remaining(&self) -> Option<u64> {
        self.length.map(|length| length.saturating_sub(self.at))
    }

    /// The error for data that ends inside a chunk.
    pub(super) fn truncated(&self, name: &[u8; 4], size: u32) -> AudioError {
        AudioError::wav(
            format!("the chunk {}", escaped_name(name)),
            format!("{size} bytes"),
            format!("the end of the file after {} bytes of all", self.at),
        )
    }
}

/// A chunk's name, escaped for printing.
fn escaped_name(name: &[u8; 4]) -> String {
    format!("`{}`", name.escape_ascii())
}

/// Reads until `bytes` is full or the data ends.
fn fill(reader: &mut impl Read, bytes: &mut [u8]) -> Result<usize, AudioError> {
    let mut read = 0;
    while read < bytes.len() {
        match read_some(reader, &mut bytes[read..])? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// Reads what there is; 0 bytes only at the end.
fn read_some(reader: &mut impl Read, bytes: &mut [u8]) -> Result<usize, AudioError> {
    loop {
        match reader.read(bytes) {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(AudioError::Read { error }),
        }
    }
}

fn u16_of(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_of(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Parses the first 40 bytes of a `fmt ` chunk, or all if it has fewer.
fn read_format(fields: &[u8]) -> Result<Format, AudioError> {
    const EXTENSIBLE: u16 = 0xfffe;
    if fields.len() < 16 {
        return Err(AudioError::wav("`fmt `", "at least 16 bytes", fields.len()));
    }
    let mut tag = u16_of(fields, 0);
    let (channels, rate) = (u16_of(fields, 2), u32_of(fields, 4));
    let (block, bits) = (u16_of(fields, 12), u16_of(fields, 14));
    if tag == EXTENSIBLE {
        if fields.len() < 40 {
            return Err(AudioError::wav(
                "`fmt ` of WAVE_FORMAT_EXTENSIBLE",
                "40 bytes",
                fields.len(),
            ));
        }
        // The rest of the GUID of a format, the same for all formats that have a tag.
        if &fields[26..40] != b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71" {
            let found = fields[24..40].escape_ascii();
            return Err(AudioError::wav(
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
        (1, _) => return Err(AudioError::wav("bits of a sample", "8, 16, 24 or 32", bits)),
        (3, _) => return Err(AudioError::wav("bits of a float", "32 or 64", bits)),
        (6 | 7, _) => return Err(AudioError::wav("bits of A-law or mu-law", "8", bits)),
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
            return Err(AudioError::wav(
                "the format",
                "PCM (1), floats (3), A-law (6) or mu-law (7)",
                found,
            ));
        }
    };
    let (channels, rate) = (check_channels(channels)?, check_rate(rate)?);
    if usize::from(block) != sample.bytes() * channels {
        let expected = format!("{}, {channels} channels of {bits} bits", sample.bytes() * channels);
        return Err(AudioError::wav("bytes of a block", expected, block));
    }
    Ok(Format { sample, channels, rate })
}

pub(super) fn check_channels(channels: u16) -> Result<usize, AudioError> {
    match (1..=CHANNELS).contains(&channels) {
        true => Ok(usize::from(channels)),
        false => Err(AudioError::wav("channels", format!("1 to {CHANNELS}"), channels)),
    }
}

pub(super) fn check_rate(rate: u32) -> Result<u32, AudioError> {
    match (1..=RATE).contains(&rate) {
        true => Ok(rate),
        false => Err(AudioError::wav("samples a second", format!("1 to {RATE}"), rate)),
    }
}

/// The probable kind of a file that is not a WAV file.
pub(super) fn kind(head: &[u8]) -> &'static str {
    let at = |at: usize, text: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(text));
    match head {
        [] => "an empty file",
        _ if at(0, b"RIFF") && head.len() < 12 => "the beginning of a RIFF file, cut short",
        _ if at(0, b"RIFF") && at(8, b"AVI ") => "an AVI file",
        _ if (at(0, b"RIFF") || at(0, b"RF64")) && at(8, b"WAVE") => "a WAV file",
        _ if at(0, b"RIFF") => "a RIFF file of another kind",
        _ if at(0, b"RIFX") => "a RIFX file, whose numbers begin with the highest byte",
        _ if at(0, b"RF64") || at(0, b"BW64") => "an RF64 file of another kind",
        _ if at(0, b"riff") => "a Wave64 file",
        _ if at(0, b"fLaC") => "a FLAC file",
        _ if at(0, b"OggS") => "an Ogg file (Vorbis or Opus)",
        _ if at(0, b"ID3") => "an MP3 file",
        [0xff, second, ..] if second & 0xf6 == 0xf0 => "an AAC file",
        [0xff, second, ..] if second & 0xe6 == 0xe2 => "an MP3 file",
        _ if at(4, b"ftyp") => "an MP4 or M4A file",
        _ if at(0, b"FORM") => "an AIFF file",
        _ if at(0, b"caff") => "a CAF file",
        _ if at(0, b".snd") => "an AU file",
        _ if at(0, b"\x1a\x45\xdf\xa3") => "a WebM or Matroska file",
        _ if at(0, b"\x30\x26\xb2\x75") => "a WMA file",
        _ if at(0, b"#!AMR") => "an AMR file",
        _ if at(0, b"PK\x03\x04") || at(0, b"\x1f\x8b") => "a compressed archive",
        _ if at(0, b"version http") => "a Git-LFS pointer, which `git lfs pull` replaces",
        _ if at(0, b"<") => "a web page or XML: perhaps the download was refused",
        _ => "something else",
    }
}
