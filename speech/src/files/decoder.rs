//! Decodes compressed audio with `symphonia`, packet by packet.

use super::bytes::{Bytes, NEEDS_FILE};
use super::followed::CUT;
use super::heard::{Edits, Heard, keep_heard, samples_in};
use super::media::{PANIC, guard, open};
use super::mp4_boxes::{Outline, outline};
use super::mpeg_frames::NO_FRAME;
use super::opus::Opus;
use super::rewritten::NOT_READ;
use super::untrusted::checked;
use crate::error::Error;
use crate::file_kind::other_format;
use crate::incomplete::Incomplete;
use crate::input::resampler::RATES;
use crate::input::stream::{Section, Stream};
use crate::sample_format::Channel;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use symphonia::core::codecs::audio::well_known::{CODEC_ID_AAC, CODEC_ID_MP3, CODEC_ID_OPUS};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::{FormatReader, Track, TrackType};

/// The maximum number of packets before the first sample, also of damaged ones.
const SILENT: usize = 1000;
/// The maximum number of channels.
const CHANNELS: usize = 64;
/// The delay of an AAC decoder in samples: each frame of 1024 overlaps with the next one, and the first has no predecessor.
const AAC_DELAY: u64 = 1024;
/// Samples of a packet of Opus, at most.
const OPUS_PACKET: u64 = 5760;
/// Samples of a frame of MP3, at most.
const MP3_FRAME: u64 = 1152;
/// The ticks of a second of Matroska.
const NANOSECONDS: u64 = 1_000_000_000;
/// The bytes of tags, pictures and the index before the first packet, and of tags and other tracks between packets.
const BEGINNING: u64 = 64 << 20;
const BETWEEN: u64 = 4 << 20;
/// The error for an MP4 file with another one after it.
const ANOTHER: &str = "another recording follows, which is not read";
/// The formats that are decoded, for errors.
const FORMATS: &str = "WAV, AIFF, FLAC, MP3, AAC, M4A, Ogg, WebM or Matroska (with Vorbis, Opus, AAC, MP3, FLAC or PCM)";

/// What turns packets into samples.
enum Codec {
    Symphonia(Box<dyn AudioDecoder>),
    Opus(Box<Opus>),
}

/// What is not heard of the samples of a packet: the padding of a Matroska file, at the end or, if it is negative, at the beginning;
/// and the last samples.
#[derive(Clone, Copy)]
struct Unheard {
    nanoseconds: i64,
    last: u64,
}

/// An open file of compressed audio, whose first samples are decoded.
///
/// Sound that cannot be read is passed over: [`Decoder::incomplete`] says where. An error is one of reading, or there is no sound.
pub(crate) struct Decoder<'s> {
    format: Box<dyn FormatReader + 's>,
    /// What `format` reads, if that is read front to back.
    pipe: Option<Stream<'s>>,
    codec: Codec,
    parameters: AudioCodecParameters,
    /// The track that is decoded, and the name of its format.
    track: u32,
    name: &'static str,
    channel: Channel,
    rate: u32,
    channels: usize,
    /// The rate of the samples in `ready`, if it is not that of those before.
    next_rate: Option<u32>,
    /// Samples per channel, if the file says how many.
    samples: Option<u64>,
    /// Samples per channel that were decoded and are heard, and how many of the next ones that the decoder gives are not heard.
    decoded: u64,
    delay: u64,
    /// What the container says of the samples that are heard: the delay in nanoseconds, or edits, until the rate is known; then the
    /// ranges that are left; samples and packets of the track before the next packet.
    heard: Heard,
    nanoseconds: Option<u64>,
    edits: Option<Edits>,
    ranges: Option<VecDeque<Range<u64>>>,
    position: u64,
    packets: u64,
    /// Seconds before the samples of this rate.
    before: f64,
    /// Decoded after the last sample that the file says it has: dropped at the end, because encoders fill up their last frame, or
    /// sound, if there are more than `hold`: then another recording was joined, or fragments follow. Those have sound from the ticks
    /// `before_fragments` on, which no such number counts.
    held: Vec<f32>,
    before_fragments: Option<u64>,
    hold: Option<u64>,
    allowed: Arc<AtomicU64>,
    /// Bytes of frames of a FLAC file that were read, and of its packets.
    frame_bytes: Arc<AtomicU64>,
    packet_bytes: u64,
    /// Whether it is an MP4 file from a pipe, whose samples are lost if its index follows them.
    needs_file: bool,
    outline: Outline,
    length: u64,
    /// Samples of a packet: interleaved, then of one channel from `from`.
    interleaved: Vec<f32>,
    ready: Vec<f32>,
    from: usize,
    ended: bool,
    /// Whether there was an error.
    failed: bool,
    /// The first place where sound is missing.
    incomplete: Option<Incomplete>,
}

/// The decoder for the parameters of a track of the format `name`.
fn make_codec(name: &'static str, parameters: &AudioCodecParameters) -> Result<Codec, Error> {
    if parameters.codec == CODEC_ID_OPUS {
        let head = parameters.extra_data.as_deref().unwrap_or_default();
        let opus =
            Opus::new(head, name == "isomp4").map_err(|what| Error::incomplete(name, 0.0, what))?;
        return Ok(Codec::Opus(Box::new(opus)));
    }
    // `symphonia` would trim joined files of MP3 to the length of the first one.
    let options = AudioDecoderOptions::default().verify(true).gapless(name != "mp3");
    let decoder =
        guard(|| symphonia::default::get_codecs().make_audio_decoder(parameters, &options))
            .map_err(|error| failure(name, 0.0, error))?;
    Ok(Codec::Symphonia(decoder))
}

/// The first track of audio, and its parameters.
fn audio_track<'f>(
    format: &'f dyn FormatReader,
    name: &'static str,
) -> Result<(&'f Track, AudioCodecParameters), Error> {
    let track = format
        .first_track_known_codec(TrackType::Audio)
        .ok_or_else(|| Error::incomplete(name, 0.0, "it has no audio that can be decoded"))?;
    let parameters = track.codec_params.as_ref().and_then(|parameters| parameters.audio());
    let parameters =
        parameters.ok_or_else(|| Error::incomplete(name, 0.0, "its audio has no parameters"))?;
    Ok((track, parameters.clone()))
}

impl<'s> Decoder<'s> {
    /// Opens a recording that begins with `head` and is probably of the format `kind`.
    pub(crate) fn new(
        stream: Stream<'s>,
        head: &[u8],
        kind: &'static str,
        channel: Channel,
    ) -> Result<Self, Error> {
        let unknown = || other_format(FORMATS, kind);
        if head.is_empty() {
            return Err(unknown());
        }
        let is_mp4 = head.get(4..8) == Some(b"ftyp");
        let mut section = if is_mp4 { stream.section() } else { None };
        let mut found = Outline::default();
        if let Some(section) = &mut section {
            let length = section.length();
            found = outline(section, length).map_err(Error::not_read)?;
            if let Some(next) = found.next {
                section.end_at(next);
            }
        }
        let (outline, length) = (found, section.as_ref().map_or(0, Section::length));
        let needs_file = is_mp4 && section.is_none();
        let allowed = Arc::new(AtomicU64::new(BEGINNING));
        let frame_bytes = Arc::new(AtomicU64::new(0));
        let heard = Heard::default();
        let bytes = checked(stream, section, head, frame_bytes.clone(), &heard)?;
        let pipe = if let Bytes::Pipe(pipe) = &bytes { Some(pipe.clone()) } else { None };
        let format = open(bytes, outline.end, allowed.clone()).map_err(|error| match error {
            SymphoniaError::Unsupported(_) | SymphoniaError::SeekError(_) if !is_mp4 => unknown(),
            SymphoniaError::IoError(error) if error.to_string() == NO_FRAME => unknown(),
            error => failure("the file", 0.0, error),
        })?;
        let name = format.format_info().short_name;
        let (track, parameters) = audio_track(&*format, name)?;
        let codec = make_codec(name, &parameters)?;
        let (edits, nanoseconds) = (heard.take_edits(), heard.choose(u64::from(track.id)));
        let is_aac = parameters.codec == CODEC_ID_AAC;
        let skip = if let Codec::Opus(opus) = &codec { opus.skip() } else { 0 };
        let (delay, hold) = match name {
            "mp3" => {
                let padding = u64::from(track.padding.unwrap_or_default());
                (u64::from(track.delay.unwrap_or_default()), Some(padding + MP3_FRAME))
            }
            _ if is_aac => (AAC_DELAY, Some(2 * AAC_DELAY)),
            _ if parameters.codec == CODEC_ID_MP3 => (0, Some(2 * MP3_FRAME)),
            _ if parameters.codec == CODEC_ID_OPUS => (skip, Some(OPUS_PACKET)),
            _ => (0, None),
        };
        let dropped = if is_aac { AAC_DELAY } else { skip };
        let samples = track.num_frames.map(|samples| samples.saturating_sub(dropped));
        let mut new = Self {
            track: track.id,
            codec,
            name,
            channel,
            rate: 0,
            channels: 0,
            next_rate: None,
            samples: samples.filter(|&samples| samples > 0),
            decoded: 0,
            delay,
            before_fragments: heard.before_fragments(),
            heard,
            // That of Opus is in its header.
            nanoseconds: nanoseconds.filter(|_| parameters.codec != CODEC_ID_OPUS),
            parameters,
            edits,
            ranges: None,
            position: 0,
            packets: 0,
            before: 0.0,
            held: Vec::new(),
            hold,
            allowed,
            frame_bytes,
            packet_bytes: 0,
            needs_file,
            outline,
            length,
            interleaved: Vec::new(),
            ready: Vec::new(),
            from: 0,
            ended: false,
            failed: false,
            incomplete: None,
            format,
            pipe,
        };
        // The first samples tell the rate and the channels, and whether the codec is known. Before those that are heard may be any
        // number of others.
        let mut silent = 0;
        while silent < SILENT && new.ready.is_empty() && new.next()? {
            silent += usize::from(new.rate == 0);
        }
        match (new.ready.is_empty(), new.incomplete.take()) {
            (true, Some(incomplete)) => Err(incomplete.into()),
            (true, None) if new.needs_file => Err(Error::incomplete(name, 0.0, NEEDS_FILE)),
            (true, None) => Err(Error::incomplete(name, 0.0, "it has no samples")),
            (false, incomplete) => Ok(Self { incomplete, ..new }),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn rate(&self) -> u32 {
        self.rate
    }

    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    pub(crate) fn samples(&self) -> Option<u64> {
        self.samples.filter(|_| self.before_fragments.is_none())
    }

    pub(crate) fn incomplete(&self) -> Option<&Incomplete> {
        self.incomplete.as_ref()
    }

    /// Whether the samples that follow have another rate, which is the rate then.
    pub(crate) fn change_rate(&mut self) -> bool {
        let Some(rate) = self.next_rate.take() else { return false };
        let ready = self.ready.len() as u64;
        self.before += (self.decoded - ready) as f64 / f64::from(self.rate.max(1));
        (self.decoded, self.rate) = (ready, rate);
        true
    }

    /// Reads up to the end of the recording: some formats end after the last sample, where others have more. Errors there, other
    /// than of reading, are none of the sound.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        match self.pipe.take().map_or(Ok(()), |pipe| pipe.skip(BETWEEN)) {
            Err(error)
                if error.kind() != ErrorKind::UnexpectedEof
                    && error.kind() != ErrorKind::InvalidData =>
            {
                Err(Error::not_read(error))
            }
            Err(error) if error.to_string() == NOT_READ => {
                self.miss(NOT_READ.into());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads the next samples; fewer than `out.len()` only at the end, or before samples of another rate.
    pub(crate) fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        let mut written = 0;
        while written < out.len() && self.next_rate.is_none() {
            if self.from == self.ready.len() {
                if !self.next()? {
                    break;
                }
                continue;
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
        self.before + self.decoded as f64 / f64::from(self.rate.max(1))
    }

    /// Remembers that sound is missing.
    fn miss(&mut self, message: String) {
        let (format, seconds) = (self.name, self.seconds());
        self.incomplete.get_or_insert(Incomplete { format, seconds, message });
    }

    /// Decodes the next packet of the track; returns false at the end.
    fn next(&mut self) -> Result<bool, Error> {
        if self.failed {
            return Err(Error::incomplete(self.name, self.seconds(), "it failed before"));
        }
        if self.ended {
            return Ok(false);
        }
        // Until the packet is decoded.
        self.failed = true;
        let done = self.decode_packet();
        self.failed = done.is_err();
        self.ended = !matches!(done, Ok(true));
        done
    }

    fn decode_packet(&mut self) -> Result<bool, Error> {
        self.ready.clear();
        self.from = 0;
        let packet = loop {
            let packet = guard(|| self.format.next_packet());
            self.allowed.store(BETWEEN, Ordering::Relaxed);
            match packet {
                Ok(Some(packet)) if packet.track_id == self.track => break packet,
                Ok(Some(_)) => (),
                Ok(None) => return Ok(self.end()),
                // Another recording was joined.
                Err(SymphoniaError::ResetRequired) => {
                    if let Err(error) = self.begin_stream() {
                        self.miss(error.to_string());
                        return Ok(false);
                    }
                }
                // `EbmlElements` says if the file is cut.
                Err(SymphoniaError::IoError(error))
                    if self.name == "matroska" && error.kind() == ErrorKind::UnexpectedEof =>
                {
                    return Ok(self.end());
                }
                Err(error) => {
                    self.miss(describe(error)?);
                    return Ok(false);
                }
            }
        };
        let (data, trim) = (&packet.data[..], packet.trim_end.get());
        self.packet_bytes += data.len() as u64;
        let padding = self.heard.take_padding(self.packets);
        self.packets += 1;
        let ticks = packet.pts.get().cast_unsigned();
        if self.before_fragments.is_some_and(|before| ticks >= before) {
            self.hold = self.hold.map(|_| 0);
        }
        let (mut rate, mut channels) = (0, 0);
        // A joined MP3 file may have other channels, which need a new decoder.
        for attempt in 0..2 {
            let interleaved = &mut self.interleaved;
            let decoded = match &mut self.codec {
                Codec::Symphonia(decoder) => guard(|| {
                    let buffer = decoder.decode(&packet)?;
                    (rate, channels) = (buffer.spec().rate(), buffer.spec().channels().count());
                    buffer.copy_to_vec_interleaved(interleaved);
                    Ok(())
                }),
                Codec::Opus(opus) => guard(|| {
                    (rate, channels) = (opus.rate(), opus.channels());
                    interleaved.clear();
                    let samples = opus.decode(data);
                    interleaved.extend(
                        samples.map_err(|error| SymphoniaError::DecodeError(error.message()))?,
                    );
                    Ok(())
                }),
            };
            match decoded {
                Ok(()) => break,
                Err(SymphoniaError::DecodeError(_)) if self.name == "mp3" && attempt == 0 => {
                    self.codec = make_codec(self.name, &self.parameters)?;
                }
                Err(error) => {
                    let panicked = matches!(error, SymphoniaError::DecodeError(PANIC));
                    self.miss(describe(error)?);
                    // The other packets may be whole.
                    return Ok(!panicked);
                }
            }
        }
        let unheard = Unheard {
            nanoseconds: padding,
            // The other decoders leave them out.
            last: if matches!(self.codec, Codec::Opus(_)) { trim } else { 0 },
        };
        self.take_samples(rate, channels, unheard)
    }

    /// Drops the samples of the packet that are not heard. The delay and the paddings count samples that the decoder gives: one that
    /// both leave out counts for both.
    fn drop_unheard(&mut self, rate: u32, channels: usize, unheard: Unheard) {
        let all = (self.interleaved.len() / channels) as u64;
        let padding = samples_in(unheard.nanoseconds.unsigned_abs(), NANOSECONDS, rate);
        let (first, last) = match unheard.nanoseconds < 0 {
            true => (padding, unheard.last),
            false => (0, padding.max(unheard.last)),
        };
        let end = all.saturating_sub(last);
        let begin = self.delay.max(first).min(end);
        self.delay = self.delay.saturating_sub(all);
        self.interleaved.truncate(end as usize * channels);
        self.interleaved.drain(..begin as usize * channels);
    }

    /// Finds out which samples are heard, when the rate is known.
    fn begin_heard(&mut self) {
        if let Some(nanoseconds) = self.nanoseconds.take() {
            self.delay = samples_in(nanoseconds, NANOSECONDS, self.rate);
        }
        let Some(edits) = self.edits.take() else { return };
        let samples = |ticks| match ticks {
            u64::MAX => u64::MAX,
            ticks => samples_in(ticks, edits.ticks.into(), self.rate),
        };
        let length = edits.length.map(samples);
        let ranges = edits.heard.iter().map(|range| samples(range.start)..samples(range.end));
        let ranges: VecDeque<Range<u64>> = ranges.collect();
        self.samples = length.map(|length| {
            let heard = |range: &Range<u64>| range.end.min(length).saturating_sub(range.start);
            ranges.iter().map(heard).sum()
        });
        (self.delay, self.ranges) = (0, Some(ranges));
    }

    /// Takes the decoded samples of a packet.
    fn take_samples(
        &mut self,
        rate: u32,
        channels: usize,
        unheard: Unheard,
    ) -> Result<bool, Error> {
        if self.rate == 0 {
            if !(1..=CHANNELS).contains(&channels) {
                let expected = format!("1 to {CHANNELS}");
                return Err(Error::unsupported("channels", expected, channels));
            }
            (self.rate, self.channels) = (rate, channels);
            self.begin_heard();
        }
        let lacks = matches!(self.channel, Channel::Index(index) if index >= channels);
        let other = (rate, channels) != (self.rate, self.channels);
        if other && (lacks || channels == 0 || !RATES.contains(&rate)) {
            let (first, expected) = (self.rate, self.channels);
            self.miss(format!(
                "expected {expected} channels of {first} Hz throughout, found {channels} of {rate} Hz"
            ));
            return Ok(false);
        }
        if rate != self.rate {
            (self.next_rate, self.samples, self.ranges) = (Some(rate), None, None);
            self.held.clear();
        }
        self.drop_unheard(rate, channels, unheard);
        let frames = self.interleaved.chunks_exact(channels);
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
            return Err(Error::corrupt(what, "a finite number", self.ready[place]));
        }
        let position = self.position;
        self.position += self.ready.len() as u64;
        if let Some(ranges) = &mut self.ranges {
            keep_heard(&mut self.ready, position, ranges);
        }
        if let (Some(samples), Some(hold)) = (self.samples, self.hold) {
            let rest = samples.saturating_sub(self.decoded).min(self.ready.len() as u64);
            self.held.extend(self.ready.drain(rest as usize..));
            if self.held.len() as u64 > hold {
                self.ready.append(&mut self.held);
                self.samples = None;
            }
        }
        self.decoded += self.ready.len() as u64;
        Ok(true)
    }

    /// Begins to decode the track of a joined recording.
    fn begin_stream(&mut self) -> Result<(), Error> {
        let (track, parameters) = audio_track(&*self.format, self.name)?;
        self.track = track.id;
        self.codec = make_codec(self.name, &parameters)?;
        (self.parameters, self.samples) = (parameters, None);
        if let Codec::Opus(opus) = &self.codec {
            self.delay = opus.skip();
        }
        Ok(())
    }

    /// Checks at the end of the file that nothing is missing. Returns that there is no further packet.
    fn end(&mut self) -> bool {
        let checked = match &mut self.codec {
            Codec::Symphonia(decoder) => decoder.finalize().verify_ok,
            Codec::Opus(_) => None,
        };
        let frame = self.hold.map_or(0, |_| MP3_FRAME);
        match self.samples {
            // Some encoders count the frame of the header, too.
            Some(expected) if self.decoded + frame < expected => {
                self.miss(format!("{CUT}: expected {expected} samples, found {}", self.decoded));
            }
            _ if self.name == "flac"
                && self.frame_bytes.load(Ordering::Relaxed) > self.packet_bytes =>
            {
                self.miss("frames are cut or damaged".into());
            }
            _ if checked == Some(false) => {
                self.miss("the checksum of all samples is another one".into());
            }
            _ if self.outline.fragmented && self.outline.end > self.length => self.miss(CUT.into()),
            _ if !self.outline.fragmented && self.outline.indexes > 1 => self.miss(ANOTHER.into()),
            _ if self.outline.other => self.miss(NOT_READ.into()),
            _ => (),
        }
        false
    }
}

/// What an error of `symphonia` says of the file.
///
/// # Errors
/// It says that the source could not be read.
fn describe(error: SymphoniaError) -> Result<String, Error> {
    match error {
        SymphoniaError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Ok(CUT.into())
        }
        // An error of the layout of a container.
        SymphoniaError::IoError(error) if error.kind() == ErrorKind::InvalidData => {
            Ok(error.to_string())
        }
        SymphoniaError::IoError(error) => Err(Error::not_read(error)),
        error => Ok(error.to_string()),
    }
}

/// What an error of `symphonia` after some seconds means.
fn failure(name: &'static str, seconds: f64, error: SymphoniaError) -> Error {
    describe(error).map_or_else(|error| error, |what| Error::incomplete(name, seconds, what))
}
