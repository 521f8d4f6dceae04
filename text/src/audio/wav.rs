//! Reads WAV files sample by sample, and the samples of raw and AIFF files.
//!
//! This crate has its own reader because of four defects of `hound` 3.5: it does not name an unsupported format, it
//! reads the byte that pads a chunk of odd length as the start of the next chunk's name, it skips four bytes of a
//! `fact` chunk regardless of its length, and it fails on pipes of ffmpeg, whose lengths are unknown. No allocation
//! depends on a header: samples go through one buffer of a fixed size, so a file may have any length.

use super::error::{AudioError, Incomplete};
use super::sample_format::{Channel, Format, RawFormat, Sample};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// The maximum number of channels; no loudspeaker layout has more.
const CHANNELS: u16 = 64;
/// The maximum sample rate, in Hz: twice that of the fastest audio converters.
const RATE: u32 = 768_000;
/// Bytes per read.
const BUFFER: usize = 1 << 16;
/// The length of an RF64 chunk whose true one is in `ds64`.
const LONG: u32 = u32::MAX;
/// The name of samples without a header.
const RAW: &str = "raw samples";
/// The maximum number of chunks before the samples; usually there are one to five.
const CHUNKS: usize = 1000;
/// The maximum length of a chunk before the samples, in bytes; with pictures there are some megabytes.
const SKIPPED: u32 = 64 << 20;

/// An open WAV file: PCM of 8, 16, 24 or 32 bits, floats of 32 or 64 bits, A-law or mu-law. Several channels are averaged to one.
///
/// Integers are scaled to -1 to 1: they are divided by 128, 32768, 2^23 or 2^31. Floats are unchanged. Chunks without
/// samples are skipped. The length in the first twelve bytes is not checked, because many writers set it wrongly; the
/// lengths of chunks are checked against the file. If the length of the samples is 0, or near 2^31 or 2^32 and the file is
/// shorter, the writer could not seek back or was killed, and the samples extend to the end of the file. A file of more than
/// 4 GiB is an RF64 file (EBU Tech 3306), whose lengths are in a chunk `ds64`.
pub struct Wav<R> {
    reader: BufReader<R>,
    format: Format,
    /// The name of the file's format.
    name: &'static str,
    /// Unread bytes of samples; `None` if they extend to the end.
    left: Option<u64>,
    /// The number of bytes of all samples: as the header says, and as many of them as the file has, if its length is known.
    bytes: Option<u64>,
    present: Option<u64>,
    /// Which channel is returned.
    channel: Channel,
    /// Samples per channel that were returned.
    position: u64,
    buffer: Vec<u8>,
    /// The range of `buffer` that was read but not returned.
    ready: core::ops::Range<usize>,
    /// Where the samples end too early.
    incomplete: Option<Incomplete>,
    /// What is after the samples.
    after: After,
}

/// What is after the samples of a file.
#[derive(Clone, Copy)]
pub(super) struct After {
    /// Bytes before the next chunk.
    pub(super) gap: u64,
    layout: Layout,
}

/// How the chunks of a file begin.
#[derive(Clone, Copy)]
pub(super) enum Layout {
    /// A name and a length, whose lowest byte is the first; odd ones are followed by a byte.
    Wav,
    /// A name and a length, whose highest byte is the first.
    Aiff,
    /// A name of 16 bytes, and a length that counts its head; chunks begin at multiples of 8 bytes.
    Wave64,
}

impl After {
    /// The bytes of the chunk that begins with `head`, with its head and what fills it up. `None` if it is none.
    pub(super) fn chunk(&self, head: &[u8]) -> Option<u64> {
        let name = head.get(..4)?;
        let is_name = name.iter().all(|&byte| byte.is_ascii_graphic() || byte == b' ');
        let length = |at: usize| head.get(at..at + 4)?.try_into().ok();
        let bytes = match self.layout {
            Layout::Wav => 8 + u64::from(u32::from_le_bytes(length(4)?)),
            Layout::Aiff => 8 + u64::from(u32::from_be_bytes(length(4)?)),
            Layout::Wave64 => u64::from_le_bytes(head.get(16..24)?.try_into().ok()?),
        };
        let multiple = if matches!(self.layout, Layout::Wave64) { 8 } else { 2 };
        (is_name && bytes >= 8).then(|| bytes.checked_next_multiple_of(multiple)).flatten()
    }

    /// The bytes of samples of the chunk that begins with `head`, if it has more of them.
    pub(super) fn samples(&self, head: &[u8]) -> Option<u64> {
        let is_wav = matches!(self.layout, Layout::Wav) && head.starts_with(b"data");
        is_wav.then(|| u64::from(u32_of(head, 4)))
    }
}

/// Checks the chunks after the samples and their bytes: a pipe may never end.
pub(super) fn check_after(chunks: usize, bytes: u64) -> Result<(), AudioError> {
    if chunks >= CHUNKS || bytes > u64::from(SKIPPED) {
        let expected = format!("at most {CHUNKS} of {SKIPPED} bytes after the samples");
        return Err(AudioError::wav("chunks", expected, "more"));
    }
    Ok(())
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
    /// The file cannot be read, is of another kind (the error names it), has an inconsistent header, or ends in it.
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
    /// As [`Wav::open`].
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
        Self::ready(Source::new(reader, length), format, None, RAW)
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
        let long = head.starts_with(b"RF64") || head.starts_with(b"BW64");
        if read < head.len() || !(long || head.starts_with(b"RIFF")) || &head[8..] != b"WAVE" {
            return Err(AudioError::Kind { found: kind(&head[..read]) });
        }
        let (mut long_size, mut whole_size) = (None, 0);
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
                let size = match long_size {
                    _ if long && size == LONG => long_size.unwrap_or_default(),
                    _ => u64::from(size),
                };
                let end = if long { whole_size } else { u64::from(whole) }.saturating_add(8);
                let known = !source.is_placeholder(size, end)?;
                return Self::ready(source, format, known.then_some(size), "WAV");
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
                let size =
                    |at| u64::from(u32_of(&sizes, at + 4)) << 32 | u64::from(u32_of(&sizes, at));
                (whole_size, long_size) = (size(0), Some(size(8)));
            }
            let passed = source.skip_bytes(rest)?;
            if passed + u64::from(size % 2) < rest {
                return Err(source.truncated(&name, size));
            }
        }
    }

    /// The samples that begin here: `size` bytes, or all to the end.
    pub(super) fn ready(
        source: Source<R>,
        format: Format,
        size: Option<u64>,
        name: &'static str,
    ) -> Result<Self, AudioError> {
        let block = format.block();
        if let Some(size) = size
            && !size.is_multiple_of(block as u64)
        {
            return Err(AudioError::wav(
                "`data`",
                format!("a multiple of {block} bytes, {} channels", format.channels),
                size,
            ));
        }
        let remaining = source.remaining();
        let present =
            size.map_or(remaining, |size| Some(remaining.map_or(size, |rest| rest.min(size))));
        Ok(Self {
            reader: source.reader,
            format,
            name,
            left: size,
            bytes: size,
            present,
            channel: Channel::Mix,
            position: 0,
            buffer: vec![0; BUFFER / block * block],
            ready: 0..0,
            incomplete: None,
            after: After { gap: size.unwrap_or_default() % 2, layout: Layout::Wav },
        })
    }

    /// Says what is after the samples, if that is not as in a WAV file.
    pub(super) fn followed_by(mut self, gap: u64, layout: Layout) -> Self {
        self.after = After { gap, layout };
        self
    }

    /// At the end of samples whose length is known: what was read after them, and what is there.
    pub(super) fn after(&mut self) -> Option<(Vec<u8>, After)> {
        if self.left != Some(0) || self.incomplete.is_some() {
            return None;
        }
        let unread = self.reader.buffer().to_vec();
        self.reader.consume(unread.len());
        Some((unread, self.after))
    }

    /// A reader of other samples of the same format: `size` bytes.
    pub(super) fn with_more<S: Read>(
        &self,
        reader: S,
        length: Option<u64>,
        size: u64,
    ) -> Result<Wav<S>, AudioError> {
        let mut more = Wav::ready(Source::new(reader, length), self.format, Some(size), self.name)?;
        more.channel = self.channel;
        Ok(more)
    }

    /// The name of the format.
    pub(super) fn name(&self) -> &'static str {
        self.name
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

    /// Samples per channel, if the file defines the length: as many of them as it has.
    #[must_use]
    pub fn samples(&self) -> Option<u64> {
        self.present.map(|bytes| bytes / self.format.block() as u64)
    }

    /// Where the samples end too early, once they were read up to there.
    #[must_use]
    pub fn incomplete(&self) -> Option<&Incomplete> {
        self.incomplete.as_ref()
    }

    /// Reads the next samples into `out`. Returns the number of samples; it is less than `out.len()` only at the end.
    ///
    /// # Errors
    /// The file ends before its samples do, or a sample is not finite; the error has its index.
    pub fn read(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
        let read = self.read_present(out)?;
        match &self.incomplete {
            Some(incomplete) => Err(incomplete.clone().into()),
            None => Ok(read),
        }
    }

    /// As [`Self::read`], but a file that is cut ends where it is cut: [`Self::incomplete`] says where.
    pub(super) fn read_present(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
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
        let whole = read / block * block;
        let missing = match self.left {
            // A pipe may end anywhere, and a recorder that is killed in a sample; only raw samples may have another size.
            None if whole < read && self.name == RAW => {
                Some(format!("a sample: expected {block} bytes, found {} at the end", read - whole))
            }
            Some(left) if want > 0 && (read == 0 || whole < read) => {
                let samples = |bytes: u64| bytes / block as u64;
                let total = self.bytes.unwrap_or_default();
                let found = samples(total - left + read as u64);
                let expected = samples(total);
                Some(format!("the file ends too early: expected {expected} samples, found {found}"))
            }
            _ => None,
        };
        if let Some(message) = missing {
            let seconds =
                (self.position + (whole / block) as u64) as f64 / f64::from(self.format.rate);
            self.incomplete = Some(Incomplete { format: self.name, seconds, message });
            self.left = Some(whole as u64);
        }
        if let Some(left) = &mut self.left {
            *left -= whole as u64;
        }
        self.ready = 0..whole;
        Ok(whole > 0)
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

    /// Whether the length of the samples, which begin here, is one that a writer leaves if it cannot seek back, or until it does:
    /// 0, or one near 2^31, 2^32 or 2^63 in a shorter file. `end`: where the file ends, as its head says.
    pub(super) fn is_placeholder(&mut self, size: u64, end: u64) -> Result<bool, AudioError> {
        let near = |power: u32, size: u64| size.abs_diff(1 << power) <= 1 << 16;
        let shorter = self.remaining().is_none_or(|remaining| remaining < size);
        if size != 0 {
            return Ok(
                shorter && (near(31, size) || near(32, size) || size >= (1 << 63) - (1 << 16))
            );
        }
        // No samples: other chunks follow, or nothing.
        let next = self.reader.fill_buf().map_err(|error| AudioError::Read { error })?;
        let chunk = next.len() >= 8
            && next[..4].iter().all(|&byte| byte.is_ascii_graphic() || byte == b' ')
            && self.at + 8 + u64::from(u32_of(next, 4)) <= end.saturating_add(1);
        Ok(!next.is_empty() && !chunk)
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
pub(super) fn read_format(fields: &[u8]) -> Result<Format, AudioError> {
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
        _ if (at(0, b"RIFF") || at(0, b"RF64") || at(0, b"BW64")) && at(8, b"WAVE") => "a WAV file",
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
