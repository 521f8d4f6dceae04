//! Reads audio of any format and sample rate as one channel of 16 kHz.

mod aiff;
mod chunks;
pub(crate) mod resampler;
mod source;
pub(crate) mod stream;
pub(crate) mod tags;
mod wave64;

pub use resampler::Resampler;
pub use source::InputOptions;

use super::incomplete::Incomplete;
use crate::error::Error;
use source::{Source, skip_tags};
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use stream::Stream;

/// The sample rate of speech models, in Hz.
const RATE: u32 = 16_000;
/// Samples of a block at the rate of the source, at most; and how many blocks there are in a second, at least, so that a pipe of
/// a low rate is not waited for longer.
const BLOCK: usize = 8192;
const BLOCKS_PER_SECOND: usize = 20;
/// The maximum number of recordings in a source.
const RECORDINGS: usize = 1000;

/// Reads audio as f32 samples, one channel, 16 kHz, block by block: any length in the same memory.
///
/// Formats: WAV, AIFF and Wave64 (PCM, floats, A-law and mu-law; also RF64), and raw samples. With the feature `files` also
/// FLAC, MP3, AAC (LC), M4A and MP4 (AAC, ALAC, Opus; also in fragments), Ogg (Vorbis, Opus, FLAC), and WebM and Matroska. The
/// format is found by the content, not by the name. Several channels are averaged, or one is selected. Other rates are
/// converted by [`Resampler`]. Lengths that a recorder or a pipe left open are read to the end. Files that were joined by writing
/// one after the other are read one after the other, each with its rate and channels. A file that ends before its header says, or that is damaged, gives an error after the
/// samples before the damage; [`AudioReader::read_present`] goes on with what there is.
///
/// ```
/// use simdformer_speech::{AudioReader, InputOptions};
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
    stream: Stream<'s>,
    options: InputOptions,
    /// The current recording.
    source: Source<'s>,
    /// The number of recordings until now, the seconds before the current one, and those that were read.
    recordings: usize,
    before: f64,
    seconds: f64,
    /// The first place where sound is missing.
    incomplete: Option<Incomplete>,
    /// `None` if the source has the rate already.
    resampler: Option<Resampler>,
    /// Samples at the source's rate.
    block: Vec<f32>,
    ended: bool,
    /// The rate after the samples of the current one.
    next_rate: Option<u32>,
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
    pub fn open(path: impl AsRef<Path>, options: InputOptions) -> Result<Self, Error> {
        let path = path.as_ref();
        let open = |error| Error::unreadable(path, error);
        let file = File::open(path).map_err(open)?;
        let about = file.metadata().map_err(open)?;
        if about.is_dir() {
            return Err(open(ErrorKind::IsADirectory.into()));
        }
        if !about.is_file() {
            // A pipe has no length.
            return Self::new(file, options);
        }
        Self::begin(Stream::of_file(file, about.len()), options)
    }
}

impl<'s> AudioReader<'s> {
    /// Reads `reader`, which may be a pipe, up to its first sample.
    ///
    /// # Errors
    /// As [`AudioReader::open`]. An MP4 file whose index is at its end needs a file.
    pub fn new(reader: impl Read + Send + 's, options: InputOptions) -> Result<Self, Error> {
        Self::begin(Stream::of_pipe(reader), options)
    }

    fn begin(stream: Stream<'s>, options: InputOptions) -> Result<Self, Error> {
        let source = Source::open(&stream, options)?;
        let mut new = Self {
            stream,
            options,
            incomplete: source.incomplete().cloned(),
            source,
            recordings: 1,
            before: 0.0,
            seconds: 0.0,
            resampler: None,
            block: Vec::new(),
            ended: false,
            next_rate: None,
        };
        new.set_rate(new.source.rate())?;
        Ok(new)
    }

    /// Counts the samples that were read from the source, and remembers where it says that sound is missing.
    fn count(&mut self, read: usize) {
        self.seconds += read as f64 / f64::from(self.source.rate());
        if let (None, Some(found)) = (&self.incomplete, self.source.incomplete()) {
            let seconds = self.before + found.seconds;
            self.incomplete = Some(Incomplete { seconds, ..found.clone() });
        }
    }

    /// Whether samples of another rate, or another recording, follow those of the source. Then it gives these.
    fn follow(&mut self) -> Result<bool, Error> {
        if self.source.change_rate() {
            return Ok(true);
        }
        match self.open_next() {
            Ok(Some(source)) => {
                (self.source, self.before) = (source, self.seconds);
                self.count(0);
                Ok(true)
            }
            Ok(None) => {
                self.count(0);
                Ok(false)
            }
            Err(error @ Error::Io { .. }) => Err(error),
            Err(error) => {
                let message = format!("what follows cannot be read: {error}");
                let (format, seconds) = (self.source.name(), self.seconds);
                self.incomplete.get_or_insert(Incomplete { format, seconds, message });
                Ok(false)
            }
        }
    }

    fn open_next(&mut self) -> Result<Option<Source<'s>>, Error> {
        if self.options.single {
            return Ok(None);
        }
        if let Some(source) = self.source.end(&self.stream)? {
            return Ok(Some(source));
        }
        if !self.stream.begin_next().map_err(Error::not_read)? {
            return Ok(None);
        }
        skip_tags(&self.stream)?;
        if self.stream.peek().map_err(Error::not_read)?.is_empty() {
            return Ok(None);
        }
        self.recordings += 1;
        if self.recordings > RECORDINGS {
            let expected = format!("at most {RECORDINGS}");
            return Err(Error::unsupported("recordings in a source", expected, "more"));
        }
        Source::open(&self.stream, self.options).map(Some)
    }

    /// Prepares for samples of a rate.
    fn set_rate(&mut self, rate: u32) -> Result<(), Error> {
        let most = (rate as usize / BLOCKS_PER_SECOND).clamp(1, BLOCK);
        self.resampler = if rate == RATE { None } else { Some(Resampler::new(rate, RATE)?) };
        self.block.resize(if self.resampler.is_some() { most } else { 0 }, 0.0);
        Ok(())
    }

    /// Samples per second of what is read: 16,000.
    #[must_use]
    pub fn rate(&self) -> u32 {
        RATE
    }

    /// Samples per second of the recording that is read.
    #[must_use]
    pub fn source_rate(&self) -> u32 {
        self.source.rate()
    }

    /// Channels of the recording that is read.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.source.channels()
    }

    /// How many samples there are at [`Self::rate`], if the source says how many it has. In joined files, those of the first one.
    #[must_use]
    pub fn samples(&self) -> Option<u64> {
        let (from, to) = (u128::from(self.source.rate()), u128::from(RATE));
        let samples = (u128::from(self.source.samples()?) * to).div_ceil(from);
        u64::try_from(samples).ok()
    }

    /// Where sound is missing, because the file is cut or damaged: the first place up to where it was read.
    #[must_use]
    pub fn incomplete(&self) -> Option<&Incomplete> {
        self.incomplete.as_ref()
    }

    /// Reads the next samples, -1 to 1, into `out`. Returns their number; it is less than `out.len()` only at the end. From a pipe
    /// of raw samples, WAV or AIFF at most 50 ms more are read than are returned; a compressed format is read in larger blocks.
    ///
    /// # Errors
    /// The source cannot be read on, is damaged, or ends before its samples do.
    pub fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        let read = self.read_present(out)?;
        match self.incomplete() {
            Some(incomplete) => Err(incomplete.clone().into()),
            None => Ok(read),
        }
    }

    /// As [`Self::read`], but reads on where sound is missing, to the end of what there is: [`Self::incomplete`] says where the
    /// first such place is, and must be asked at the end.
    ///
    /// # Errors
    /// The source cannot be read on.
    pub fn read_present(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        let mut written = 0;
        while written < out.len() && !(self.ended && self.resampler.is_none()) {
            if let Some(resampler) = &mut self.resampler {
                let count = resampler.read(&mut out[written..]);
                written += count;
                if count > 0 {
                    continue;
                }
                if let Some(rate) = self.next_rate.take() {
                    self.set_rate(rate)?;
                    continue;
                }
                if self.ended {
                    break;
                }
                let read = self.source.read(&mut self.block)?;
                resampler.push(&self.block[..read]);
                let ended = read < self.block.len();
                if ended {
                    resampler.finish();
                }
                self.count(read);
                if ended {
                    match self.follow()? {
                        true => self.next_rate = Some(self.source.rate()),
                        false => self.ended = true,
                    }
                }
            } else {
                let read = self.source.read(&mut out[written..])?;
                written += read;
                self.count(read);
                if written < out.len() {
                    match self.follow()? {
                        true => self.set_rate(self.source.rate())?,
                        false => self.ended = true,
                    }
                }
            }
        }
        Ok(written)
    }
}

#[cfg(feature = "files")]
#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::Channel;
    use std::fs;
    use std::path::PathBuf;

    /// All samples at 16 kHz, or an error.
    fn all(audio: Result<AudioReader<'_>, Error>) -> Result<Vec<f32>, Error> {
        let (mut audio, mut samples, mut next) = (audio?, Vec::new(), [0.0; 1 << 12]);
        loop {
            let read = audio.read_present(&mut next)?;
            samples.extend(&next[..read]);
            if read < next.len() {
                return Ok(samples);
            }
        }
    }

    /// Samples of one rate, as the decoder gives them: those of each channel.
    struct Part {
        rate: u32,
        channels: Vec<Vec<f32>>,
    }

    /// The recordings in a file, one after the other.
    fn decoded(path: &Path) -> Result<Vec<Part>, Error> {
        let mut parts: Vec<Part> = Vec::new();
        let (mut index, mut count) = (0, 1);
        while index < count {
            let file = File::open(path).unwrap();
            let length = file.metadata().unwrap().len();
            let stream = Stream::of_file(file, length);
            let options =
                InputOptions { channel: Channel::Index(index), ..InputOptions::default() };
            let mut source = Source::open(&stream, options)?;
            count = source.channels();
            let mut number = 0;
            loop {
                let rate = source.rate();
                let (mut samples, mut next) = (Vec::new(), [0.0; 1 << 12]);
                loop {
                    let read = source.read(&mut next)?;
                    samples.extend(&next[..read]);
                    if read < next.len() {
                        break;
                    }
                }
                if index == 0 {
                    parts.push(Part { rate, channels: Vec::new() });
                }
                parts[number].channels.push(samples);
                number += 1;
                if !source.change_rate() {
                    source = match source.end(&stream)? {
                        Some(more) => more,
                        None if stream.begin_next().unwrap() => Source::open(&stream, options)?,
                        None => break,
                    };
                }
            }
            index += 1;
        }
        Ok(parts)
    }

    /// A WAV file of floats, or of 16 bits.
    fn wav(part: &Part, floats: bool) -> Vec<u8> {
        let Part { rate, channels } = part;
        let (tag, bytes) = if floats { (3_u16, 4) } else { (1, 2) };
        let block = bytes * channels.len() as u16;
        let mut data = Vec::new();
        for frame in 0..channels[0].len() {
            for channel in channels {
                match floats {
                    true => data.extend(channel[frame].to_le_bytes()),
                    false => {
                        let value = (f64::from(channel[frame]) * 32768.0).round();
                        data.extend((value.clamp(-32768.0, 32767.0) as i16).to_le_bytes());
                    }
                }
            }
        }
        let mut file = b"RIFF".to_vec();
        file.extend((36 + data.len() as u32).to_le_bytes());
        file.extend(b"WAVEfmt \x10\0\0\0");
        file.extend([tag.to_le_bytes(), (channels.len() as u16).to_le_bytes()].concat());
        file.extend([rate.to_le_bytes(), (rate * u32::from(block)).to_le_bytes()].concat());
        file.extend([block.to_le_bytes(), (8 * bytes).to_le_bytes()].concat());
        file.extend(b"data");
        file.extend((data.len() as u32).to_le_bytes());
        file.extend(data);
        file
    }

    /// Checks that a file has the samples of a WAV of what its decoder gives: the same bits for floats. Returns whether it has sound.
    /// `out`: a folder for the WAV.
    fn check(path: &Path, out: Option<&Path>) -> bool {
        let Ok(parts) = decoded(path) else { return false };
        let name = path.display();
        // Recordings that were joined are joined WAV files.
        let [floats, rounded] = [true, false]
            .map(|floats| parts.iter().flat_map(|part| wav(part, floats)).collect::<Vec<u8>>());
        if let Some(out) = out {
            let name = format!("{}.wav", path.file_name().unwrap().to_string_lossy());
            fs::write(out.join(name), &floats).unwrap();
        }
        let mix = (Channel::Mix, all(AudioReader::open(path, InputOptions::default())).unwrap());
        // One channel is its own mean.
        let count = parts[0].channels.len();
        let indexes = (0..count).filter(|_| count > 1).map(Channel::Index);
        let others = indexes.map(|channel| {
            let options = InputOptions { channel, ..InputOptions::default() };
            (channel, all(AudioReader::open(path, options)).unwrap())
        });
        let found: Vec<(Channel, Vec<f32>)> = [mix].into_iter().chain(others).collect();
        for (channel, found) in &found {
            let options = InputOptions { channel: *channel, ..InputOptions::default() };
            let expected = all(AudioReader::new(&floats[..], options)).unwrap();
            assert!(*found == expected, "{name}, {channel:?}: other samples than those of its WAV");
        }
        // Each sample is rounded by half a step, and the filter adds up some of them.
        let rounded = all(AudioReader::new(&rounded[..], InputOptions::default())).unwrap();
        let found = &found[0].1;
        let peak = found.iter().fold(0_f32, |peak, sample| peak.max(sample.abs()));
        assert_eq!(rounded.len(), found.len(), "{name}");
        for (a, b) in rounded.iter().zip(found) {
            assert!((a - b).abs() < 3.0 / 32768.0 || peak > 0.9, "{name}: {a} and {b}");
        }
        !found.is_empty()
    }

    /// A file of any container, codec, rate and number of channels is read as the WAV of the same samples.
    #[test]
    fn files_are_read_as_wav_of_their_samples() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/tests/golden/audio");
        let mut count = 0;
        for entry in fs::read_dir(place).unwrap() {
            let path = entry.unwrap().path();
            assert!(check(&path, None), "{}", path.display());
            count += 1;
        }
        assert!(count >= 35, "{count}");
    }

    /// The same for the folder `SOUND_MATRIX`. The WAV files are written into the folder `SOUND_WAVS`.
    #[test]
    #[ignore = "needs the files that `golden/sound_matrix.py` writes with ffmpeg"]
    #[allow(clippy::print_stdout, reason = "the number of files is the result of this test")]
    fn matrix_is_read_as_wav_of_its_samples() {
        let out = std::env::var_os("SOUND_WAVS").map(PathBuf::from);
        let (mut count, mut others) = (0, 0);
        for entry in fs::read_dir(std::env::var_os("SOUND_MATRIX").unwrap()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && path.extension().is_some_and(|extension| extension != "tsv") {
                match check(&path, out.as_deref()) {
                    true => count += 1,
                    false => others += 1,
                }
            }
        }
        println!("{count} files, and {others} without sound");
    }
}
