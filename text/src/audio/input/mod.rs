//! Reads audio of any format and sample rate as one channel of 16 kHz.

mod aiff;
#[cfg(feature = "audio-files")]
mod decoder;
#[cfg(feature = "audio-files")]
mod flac_blocks;
#[cfg(feature = "audio-files")]
mod mp4_index;
#[cfg(feature = "audio-files")]
mod ogg_headers;
#[cfg(feature = "audio-files")]
mod ogg_pages;
mod resampler;
#[cfg(feature = "audio-files")]
mod untrusted;
#[cfg(feature = "audio-files")]
mod vorbis_setup;

pub use resampler::Resampler;

use super::error::AudioError;
use super::sample_format::{Channel, RawFormat};
use super::wav::{Wav, kind};
use std::fmt;
use std::fs::File;
use std::io::{Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// The sample rate of speech models, in Hz.
const RATE: u32 = 16_000;
/// Samples of a block at the rate of the source, at most; and how many blocks there are in a second, at least, so that a pipe of
/// a low rate is not waited for longer.
const BLOCK: usize = 8192;
const BLOCKS_PER_SECOND: usize = 20;
/// The bytes that decide which format a source has.
const HEAD: u64 = 64;

/// How an [`AudioReader`] reads its source.
#[derive(Clone, Copy, Debug, Default)]
pub struct InputOptions {
    /// Which of several channels is read.
    pub channel: Channel,
    /// The format of a source without a header; `None` if the source says what it is.
    pub raw: Option<RawFormat>,
}

type Input<'s> = Box<dyn Read + Send + 's>;

enum Source<'s> {
    Wav(Wav<Input<'s>>),
    #[cfg(feature = "audio-files")]
    Decoder(Box<decoder::Decoder<'s>>),
}

impl Source<'_> {
    fn rate(&self) -> u32 {
        match self {
            Self::Wav(wav) => wav.rate(),
            #[cfg(feature = "audio-files")]
            Self::Decoder(decoder) => decoder.rate(),
        }
    }

    fn channels(&self) -> usize {
        match self {
            Self::Wav(wav) => wav.channels(),
            #[cfg(feature = "audio-files")]
            Self::Decoder(decoder) => decoder.channels(),
        }
    }

    fn samples(&self) -> Option<u64> {
        match self {
            Self::Wav(wav) => wav.samples(),
            #[cfg(feature = "audio-files")]
            Self::Decoder(decoder) => decoder.samples(),
        }
    }

    fn read(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
        match self {
            Self::Wav(wav) => wav.read(out),
            #[cfg(feature = "audio-files")]
            Self::Decoder(decoder) => decoder.read(out),
        }
    }
}

/// Reads audio as f32 samples, one channel, 16 kHz, block by block: any length in the same memory.
///
/// Formats: WAV and AIFF (PCM, floats, A-law and mu-law; also RF64), and raw samples. With the feature `audio-files` also FLAC,
/// MP3, AAC (LC), M4A (AAC and ALAC), and Ogg with Vorbis. The format is found by the content, not by the name. Several
/// channels are averaged, or one is selected. Other rates are converted by [`Resampler`]. A file that ends before its header
/// says, or that is damaged, gives an error after the samples before the damage.
///
/// ```
/// use simdformer_text::audio::{AudioReader, InputOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut file = b"RIFF\x2c\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x08\0\0\0".to_vec();
/// # file.extend([0, 0, 0, 0x40, 0, 0xc0, 0xff, 0x7f]);
/// let mut audio = AudioReader::new(&file[..], InputOptions::default())?; // or `AudioReader::open(path, ...)`
/// let mut block = vec![0.0; 16_000];
/// let read = audio.read(&mut block)?;
/// assert_eq!(block[..read], [0.0, 0.5, -0.5, 32767.0 / 32768.0]);
/// # Ok(()) }
/// ```
pub struct AudioReader<'s> {
    source: Source<'s>,
    /// `None` if the source has the rate already.
    resampler: Option<Resampler>,
    /// Samples at the source's rate.
    block: Vec<f32>,
    ended: bool,
}

impl fmt::Debug for AudioReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AudioReader")
            .field("rate", &self.source.rate())
            .field("channels", &self.source.channels())
            .field("samples", &self.source.samples())
            .finish_non_exhaustive()
    }
}

impl AudioReader<'static> {
    /// Opens the file or the named pipe at `path` and reads up to its first sample.
    ///
    /// # Errors
    /// The file cannot be read, has another format (the error names it), or has an inconsistent header.
    pub fn open(path: impl AsRef<Path>, options: InputOptions) -> Result<Self, AudioError> {
        let path = path.as_ref();
        let open = |error| AudioError::Open { path: path.to_owned(), error };
        let mut file = File::open(path).map_err(open)?;
        let about = file.metadata().map_err(open)?;
        if about.is_dir() {
            return Err(open(ErrorKind::IsADirectory.into()));
        }
        if !about.is_file() {
            // A pipe has no length.
            return Self::new(file, options);
        }
        let length = Some(about.len());
        if let Some(raw) = options.raw {
            let file: Input<'static> = Box::new(file);
            return Self::begin(Source::Wav(Wav::raw(file, raw, length)?), options);
        }
        let mut head = Vec::new();
        (&file).take(HEAD).read_to_end(&mut head).map_err(open)?;
        file.seek(SeekFrom::Start(0)).map_err(open)?;
        if is_wav(&head) || aiff::is_aiff(&head) {
            return Self::uncompressed(Box::new(file), length, &head, options);
        }
        #[cfg(feature = "audio-files")]
        return Self::decode(decoder::Bytes::File(file, about.len()), &head, options);
        #[cfg(not(feature = "audio-files"))]
        Err(AudioError::Kind { found: kind(&head) })
    }
}

impl<'s> AudioReader<'s> {
    /// Reads `reader`, which may be a pipe, up to its first sample.
    ///
    /// # Errors
    /// As [`AudioReader::open`]. An MP4 file whose index is at its end needs a file.
    pub fn new(reader: impl Read + Send + 's, options: InputOptions) -> Result<Self, AudioError> {
        let mut reader: Input<'s> = Box::new(reader);
        if let Some(raw) = options.raw {
            return Self::begin(Source::Wav(Wav::raw(reader, raw, None)?), options);
        }
        let mut head = Vec::new();
        let read = |error| AudioError::Read { error };
        reader.by_ref().take(HEAD).read_to_end(&mut head).map_err(read)?;
        let whole: Input<'s> = Box::new(Cursor::new(head.clone()).chain(reader));
        if is_wav(&head) || aiff::is_aiff(&head) {
            return Self::uncompressed(whole, None, &head, options);
        }
        #[cfg(feature = "audio-files")]
        return Self::decode(decoder::Bytes::Pipe(whole), &head, options);
        #[cfg(not(feature = "audio-files"))]
        Err(AudioError::Kind { found: kind(&head) })
    }

    fn uncompressed(
        reader: Input<'s>,
        length: Option<u64>,
        head: &[u8],
        options: InputOptions,
    ) -> Result<Self, AudioError> {
        let wav = match aiff::is_aiff(head) {
            true => aiff::open(reader, length)?,
            false => Wav::begin(reader, length)?,
        };
        Self::begin(Source::Wav(wav), options)
    }

    #[cfg(feature = "audio-files")]
    fn decode(
        bytes: decoder::Bytes<'s>,
        head: &[u8],
        options: InputOptions,
    ) -> Result<Self, AudioError> {
        let decoder = decoder::Decoder::new(bytes, head, kind(head), options.channel)?;
        Self::begin(Source::Decoder(Box::new(decoder)), options)
    }

    fn begin(mut source: Source<'s>, options: InputOptions) -> Result<Self, AudioError> {
        if let Channel::Index(index) = options.channel {
            let channels = source.channels();
            if index >= channels {
                let expected = format!("0 to {}", channels - 1);
                return Err(AudioError::input("the channel", expected, index));
            }
        }
        match &mut source {
            Source::Wav(wav) => wav.select(options.channel),
            // It has selected the channel.
            #[cfg(feature = "audio-files")]
            Source::Decoder(_) => (),
        }
        let resampler = match source.rate() {
            RATE => None,
            rate => Some(Resampler::new(rate, RATE)?),
        };
        let most = (source.rate() as usize / BLOCKS_PER_SECOND).clamp(1, BLOCK);
        let block = vec![0.0; if resampler.is_some() { most } else { 0 }];
        Ok(Self { source, resampler, block, ended: false })
    }

    /// Samples per second of what is read: 16,000.
    #[must_use]
    pub fn rate(&self) -> u32 {
        RATE
    }

    /// Samples per second of the source.
    #[must_use]
    pub fn source_rate(&self) -> u32 {
        self.source.rate()
    }

    /// Channels of the source.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.source.channels()
    }

    /// How many samples there are at [`Self::rate`], if the source says how many it has.
    #[must_use]
    pub fn samples(&self) -> Option<u64> {
        let (from, to) = (u128::from(self.source.rate()), u128::from(RATE));
        let samples = (u128::from(self.source.samples()?) * to).div_ceil(from);
        u64::try_from(samples).ok()
    }

    /// Reads the next samples, -1 to 1, into `out`. Returns their number; it is less than `out.len()` only at the end. From a pipe
    /// of raw samples, WAV or AIFF at most 50 ms more are read than are returned; a compressed format is read in larger blocks.
    ///
    /// # Errors
    /// The source cannot be read on, is damaged, or ends before its samples do.
    pub fn read(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
        let Some(resampler) = &mut self.resampler else { return self.source.read(out) };
        let mut written = 0;
        while written < out.len() {
            let count = resampler.read(&mut out[written..]);
            written += count;
            if count > 0 {
                continue;
            }
            if self.ended {
                break;
            }
            let read = self.source.read(&mut self.block)?;
            resampler.push(&self.block[..read]);
            if read < self.block.len() {
                resampler.finish();
                self.ended = true;
            }
        }
        Ok(written)
    }
}

/// Whether it is a WAV file, or the beginning of one.
fn is_wav(head: &[u8]) -> bool {
    (head.starts_with(b"RIFF") || head.starts_with(b"RF64"))
        && head.get(8..12).is_none_or(|kind| kind == b"WAVE")
}
