//! Decodes compressed audio with `symphonia`, packet by packet.

use super::mp4_index::Pieces;
use super::untrusted::checked;
use crate::audio::AudioError;
use crate::audio::sample_format::Channel;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use symphonia::core::codecs::audio::well_known::CODEC_ID_AAC;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::common::Limit;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::{Hint, Probe, ProbeOptions};
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;

/// The largest text of a tag that is kept, in bytes; pictures are skipped.
const TAG: usize = 1 << 12;
/// The maximum number of packets before the first sample.
const SILENT: usize = 1000;
/// The maximum number of channels.
const CHANNELS: usize = 64;
/// The delay of an AAC decoder in samples: each frame of 1024 overlaps with the next one, and the first has no predecessor.
const AAC_DELAY: u64 = 1024;
/// The bytes of other data that may precede a file.
const SEARCHED: u32 = 1 << 15;
/// The bytes of tags, pictures and the index before the first packet, and of tags and other tracks between packets.
const BEGINNING: u64 = 64 << 20;
const BETWEEN: u64 = 4 << 20;
/// The error for an MP4 file in a pipe.
pub(super) const NEEDS_FILE: &str =
    "its index is not at its beginning, which needs a file, not a pipe";
/// The formats that are decoded, for errors.
const FORMATS: &str = "WAV, AIFF, FLAC, MP3, AAC, M4A or Ogg (Vorbis)";

/// The bytes of a source.
pub(super) enum Bytes<'s> {
    /// A file and its length.
    File(File, u64),
    /// A file whose index has the sound only, and its length.
    Pieces(Pieces<File>, u64),
    /// A source that cannot be read twice.
    Pipe(Box<dyn Read + Send + 's>),
}

impl Read for Bytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file, _) => file.read(out),
            Self::Pieces(pieces, _) => pieces.read(out),
            Self::Pipe(pipe) => pipe.read(out),
        }
    }
}

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
            (Some(_), Bytes::File(file, _)) => file.seek(to),
            (Some(_), Bytes::Pieces(pieces, _)) => pieces.seek(to),
            _ => Err(ErrorKind::NotSeekable.into()),
        }
    }
}

impl MediaSource for Media<'_> {
    fn is_seekable(&self) -> bool {
        self.seekable.is_some()
    }

    fn byte_len(&self) -> Option<u64> {
        self.seekable
    }
}

/// An open file of compressed audio, whose first samples are decoded.
pub(super) struct Decoder<'s> {
    format: Box<dyn FormatReader + 's>,
    decoder: Box<dyn AudioDecoder>,
    /// The track that is decoded, and the name of its format.
    track: u32,
    name: &'static str,
    channel: Channel,
    rate: u32,
    channels: usize,
    /// Samples per channel, if the file says how many.
    samples: Option<u64>,
    /// Samples per channel that were decoded, and how many of these are dropped at the beginning.
    decoded: u64,
    delay: u64,
    allowed: Arc<AtomicU64>,
    /// Whether it is an MP4 file from a pipe, whose samples are lost if its index follows them.
    needs_file: bool,
    /// Samples of a packet: interleaved, then of one channel from `from`.
    interleaved: Vec<f32>,
    ready: Vec<f32>,
    from: usize,
    /// Whether there was an error.
    failed: bool,
}

impl<'s> Decoder<'s> {
    /// Opens a source that begins with `head` and is probably of the format `found`.
    pub(super) fn new(
        bytes: Bytes<'s>,
        head: &[u8],
        found: &'static str,
        channel: Channel,
    ) -> Result<Self, AudioError> {
        let unknown = || AudioError::Format { expected: FORMATS, found };
        if head.is_empty() {
            return Err(unknown());
        }
        let (bytes, head) = checked(bytes, head)?;
        // The index of an MP4 file may be at its end.
        let has_index = head.get(4..8) == Some(b"ftyp");
        let seekable = match bytes {
            Bytes::File(_, length) | Bytes::Pieces(_, length) if has_index => Some(length),
            _ => None,
        };
        let allowed = Arc::new(AtomicU64::new(BEGINNING));
        let media = Media { bytes: Mutex::new(bytes), seekable, allowed: allowed.clone() };
        let stream = MediaSourceStream::new(Box::new(media), MediaSourceStreamOptions::default());
        let limit = MetadataOptions::default()
            .limit_tag_bytes(Limit::Maximum(TAG))
            .limit_visual_bytes(Limit::Maximum(0));
        // An MP3 stream may begin in the middle of a frame.
        let search = ProbeOptions { max_probe_depth: SEARCHED, ..ProbeOptions::default() };
        let mut probe = Probe::new_with_options(&search);
        symphonia::default::register_enabled_formats(&mut probe);
        let probed = guard(|| probe.probe(&Hint::new(), stream, FormatOptions::default(), limit));
        let needs_file = has_index && seekable.is_none();
        let format = probed.map_err(|error| match error {
            Error::Unsupported(_) if needs_file => AudioError::decode("isomp4", 0.0, NEEDS_FILE),
            Error::Unsupported(_) | Error::SeekError(_) if !has_index => unknown(),
            error => failure("the file", 0.0, error),
        })?;
        let name = format.format_info().short_name;
        let track = format
            .first_track_known_codec(TrackType::Audio)
            .ok_or_else(|| AudioError::decode(name, 0.0, "it has no audio that can be decoded"))?;
        let parameters = track
            .codec_params
            .as_ref()
            .and_then(|parameters| parameters.audio())
            .ok_or_else(|| AudioError::decode(name, 0.0, "its audio has no parameters"))?;
        let (track, samples) = (track.id, track.num_frames);
        let delay = if parameters.codec == CODEC_ID_AAC { AAC_DELAY } else { 0 };
        let options = AudioDecoderOptions::default().verify(true);
        let decoder =
            guard(|| symphonia::default::get_codecs().make_audio_decoder(parameters, &options))
                .map_err(|error| failure(name, 0.0, error))?;
        let mut new = Self {
            format,
            decoder,
            track,
            name,
            channel,
            rate: 0,
            channels: 0,
            samples,
            decoded: 0,
            delay,
            allowed,
            needs_file,
            interleaved: Vec::new(),
            ready: Vec::new(),
            from: 0,
            failed: false,
        };
        // The first samples tell the rate and the channels, and whether the codec is known.
        for _ in 0..SILENT {
            if !new.next()? || !new.ready.is_empty() {
                break;
            }
        }
        match new.ready.is_empty() {
            true => Err(AudioError::decode(name, 0.0, "it has no samples")),
            false => Ok(new),
        }
    }

    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    pub(super) fn channels(&self) -> usize {
        self.channels
    }

    pub(super) fn samples(&self) -> Option<u64> {
        self.samples.map(|samples| samples.saturating_sub(self.delay))
    }

    /// Reads the next samples; fewer than `out.len()` only at the end.
    pub(super) fn read(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
        let mut written = 0;
        while written < out.len() {
            if self.from == self.ready.len() && !self.next()? {
                break;
            }
            let count = (out.len() - written).min(self.ready.len() - self.from);
            out[written..written + count]
                .copy_from_slice(&self.ready[self.from..self.from + count]);
            self.from += count;
            written += count;
        }
        Ok(written)
    }

    /// The time that was decoded, in seconds.
    fn seconds(&self) -> f64 {
        self.decoded as f64 / f64::from(self.rate.max(1))
    }

    /// Decodes the next packet of the track; returns false at the end.
    fn next(&mut self) -> Result<bool, AudioError> {
        if self.failed {
            return Err(AudioError::decode(self.name, self.seconds(), "it failed before"));
        }
        // Until the packet is decoded.
        self.failed = true;
        let done = self.decode_packet();
        self.failed = done.is_err();
        done
    }

    fn decode_packet(&mut self) -> Result<bool, AudioError> {
        let (name, seconds) = (self.name, self.seconds());
        let packet = loop {
            let packet = guard(|| self.format.next_packet());
            self.allowed.store(BETWEEN, Ordering::Relaxed);
            match packet {
                Ok(Some(packet)) if packet.track_id == self.track => break packet,
                Ok(Some(_)) => (),
                Ok(None) => return self.end().map(|()| false),
                Err(error) => return Err(failure(name, seconds, error)),
            }
        };
        let buffer = guard(|| self.decoder.decode(&packet))
            .map_err(|error| failure(name, seconds, error))?;
        let (rate, channels) = (buffer.spec().rate(), buffer.spec().channels().count());
        if self.rate == 0 {
            if !(1..=CHANNELS).contains(&channels) {
                let expected = format!("1 to {CHANNELS}");
                return Err(AudioError::input("channels", expected, channels));
            }
            (self.rate, self.channels) = (rate, channels);
        }
        if (rate, channels) != (self.rate, self.channels) {
            let expected = format!("{} channels of {} Hz throughout", self.channels, self.rate);
            let found = format!("{channels} of {rate} Hz after {seconds:.2} s");
            return Err(AudioError::input("audio", expected, found));
        }
        buffer.copy_to_vec_interleaved(&mut self.interleaved);
        let frames = self.interleaved.chunks_exact(channels);
        self.ready.clear();
        self.from = 0;
        match self.channel {
            Channel::Mix => self.ready.extend(frames.map(|frame| {
                let sum: f64 = frame.iter().copied().map(f64::from).sum();
                (sum / channels as f64) as f32
            })),
            // Checked when the reader is made; before that an index that is too high reads the last one.
            Channel::Index(index) => {
                self.ready.extend(frames.map(|frame| frame[index.min(channels - 1)]));
            }
        }
        if let Some(place) = self.ready.iter().position(|sample| !sample.is_finite()) {
            let what = format!("sample {}", self.decoded + place as u64);
            return Err(AudioError::input(what, "a finite number", self.ready[place]));
        }
        if let (Some(samples), 1..) = (self.samples, self.delay) {
            // Encoders of AAC fill up their last frame.
            self.ready.truncate(samples.saturating_sub(self.decoded) as usize);
        }
        let dropped = self.delay.saturating_sub(self.decoded).min(self.ready.len() as u64);
        self.ready.drain(..dropped as usize);
        self.decoded += dropped + self.ready.len() as u64;
        Ok(true)
    }

    /// Checks at the end of the file that nothing is missing.
    fn end(&mut self) -> Result<(), AudioError> {
        if self.needs_file && self.decoded == 0 {
            return Err(AudioError::decode(self.name, 0.0, NEEDS_FILE));
        }
        if self.decoder.finalize().verify_ok == Some(false) {
            let message = "the checksum of all samples is another one";
            return Err(AudioError::decode(self.name, self.seconds(), message));
        }
        match self.samples {
            Some(expected) if self.decoded < expected => {
                let found = self.decoded;
                let message = format!("expected {expected} samples, found {found}");
                Err(AudioError::decode(self.name, self.seconds(), message))
            }
            _ => Ok(()),
        }
    }
}

/// What `call` returns. `symphonia` checks most lengths, but an arithmetic overflow in a damaged file is a panic in a build with
/// overflow checks; here it is an error. The caller does not use the reader after an error.
fn guard<T>(call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Error::DecodeError("its decoder failed")))
}

/// What an error of `symphonia` after some seconds means.
fn failure(name: &'static str, seconds: f64, error: Error) -> AudioError {
    match error {
        Error::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            AudioError::decode(name, seconds, "the file ends too early")
        }
        // An error of `OggPages`.
        Error::IoError(error) if error.kind() == ErrorKind::InvalidData => {
            AudioError::decode(name, seconds, error.to_string())
        }
        Error::IoError(error) => AudioError::Read { error },
        error => AudioError::decode(name, seconds, error.to_string()),
    }
}
