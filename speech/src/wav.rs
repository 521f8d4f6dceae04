//! Reads WAV files sample by sample, and the samples of raw and AIFF files.
//!
//! This crate has its own reader because of four defects of `hound` 3.5: it does not name an unsupported format, it
//! reads the byte that pads a chunk of odd length as the start of the next chunk's name, it skips four bytes of a
//! `fact` chunk regardless of its length, and it fails on pipes of ffmpeg, whose lengths are unknown. No allocation
//! depends on a header: samples go through one buffer of a fixed size, so a file may have any length.

use super::file_kind::{kind, other_format};
use super::incomplete::Incomplete;
use super::riff_chunks::{After, Layout, Source, read_some, u32_of};
use super::sample_format::{Channel, Format, RawFormat};
use super::wav_format::{check_channels, check_rate, read_format};
use crate::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// Bytes per read.
const BUFFER: usize = 1 << 16;
/// The length of an RF64 chunk whose true one is in `ds64`.
const LONG: u32 = u32::MAX;
/// The name of samples without a header.
const RAW: &str = "raw samples";

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
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let open = |error| Error::unreadable(path, error);
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
    pub fn new(reader: R) -> Result<Self, Error> {
        Self::begin(reader, None)
    }

    /// A stream of samples without a header. `length`: its bytes, if known.
    pub(crate) fn raw(reader: R, raw: RawFormat, length: Option<u64>) -> Result<Self, Error> {
        let format = Format {
            sample: raw.encoding.into(),
            channels: check_channels(raw.channels)?,
            rate: check_rate(raw.rate)?,
        };
        Self::ready(Source::new(reader, length), format, None, RAW)
    }

    /// Selects the channel that `read` returns, which the file has.
    pub(crate) fn select(&mut self, channel: Channel) {
        self.channel = channel;
    }

    pub(crate) fn begin(reader: R, length: Option<u64>) -> Result<Self, Error> {
        let mut source = Source::new(reader, length);
        let mut head = [0; 12];
        let read = source.fill(&mut head)?;
        // RF64, a file of more than 4 GiB, has its lengths in a chunk `ds64`.
        let long = head.starts_with(b"RF64") || head.starts_with(b"BW64");
        if read < head.len() || !(long || head.starts_with(b"RIFF")) || &head[8..] != b"WAVE" {
            return Err(other_format("a WAV file", kind(&head[..read])));
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
                    return Err(Error::corrupt("chunks", "`fmt ` before `data`", "none"));
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
                    return Err(Error::corrupt("chunks", "one `fmt `", "two"));
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
    pub(crate) fn ready(
        source: Source<R>,
        format: Format,
        size: Option<u64>,
        name: &'static str,
    ) -> Result<Self, Error> {
        let block = format.block();
        if let Some(size) = size
            && !size.is_multiple_of(block as u64)
        {
            return Err(Error::corrupt(
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
            after: After::new(size.unwrap_or_default() % 2, Layout::Wav),
        })
    }

    /// Says what is after the samples, if that is not as in a WAV file.
    pub(crate) fn followed_by(mut self, gap: u64, layout: Layout) -> Self {
        self.after = After::new(gap, layout);
        self
    }

    /// At the end of samples whose length is known: what was read after them, and what is there.
    pub(crate) fn after(&mut self) -> Option<(Vec<u8>, After)> {
        if self.left != Some(0) || self.incomplete.is_some() {
            return None;
        }
        let unread = self.reader.buffer().to_vec();
        self.reader.consume(unread.len());
        Some((unread, self.after))
    }

    /// A reader of other samples of the same format: `size` bytes.
    pub(crate) fn with_more<S: Read>(
        &self,
        reader: S,
        length: Option<u64>,
        size: u64,
    ) -> Result<Wav<S>, Error> {
        let mut more = Wav::ready(Source::new(reader, length), self.format, Some(size), self.name)?;
        more.channel = self.channel;
        Ok(more)
    }

    /// The name of the format.
    pub(crate) fn name(&self) -> &'static str {
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
    pub fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        let read = self.read_present(out)?;
        match &self.incomplete {
            Some(incomplete) => Err(incomplete.clone().into()),
            None => Ok(read),
        }
    }

    /// As [`Self::read`], but a file that is cut ends where it is cut: [`Self::incomplete`] says where.
    pub(crate) fn read_present(&mut self, out: &mut [f32]) -> Result<usize, Error> {
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
                    return Err(Error::corrupt(what, "a finite number", mean));
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
    fn refill(&mut self, block: usize) -> Result<bool, Error> {
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
