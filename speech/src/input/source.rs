//! A recording of any format: what it has, and its samples at their own rate.

use super::stream::Stream;
use super::{aiff, chunks, tags, wave64};
use crate::error::Error;
use crate::file_kind::kind;
#[cfg(feature = "files")]
use crate::files::Decoder;
use crate::incomplete::Incomplete;
use crate::sample_format::{Channel, RawFormat};
use crate::wav::Wav;

/// The maximum number of tags before a source, and of their bytes; with pictures there are some megabytes.
const TAGS: usize = 8;
const TAG_BYTES: u64 = 64 << 20;

/// How an [`AudioReader`](super::AudioReader) reads its source.
#[derive(Clone, Copy, Debug, Default)]
pub struct InputOptions {
    /// Which of several channels is read.
    pub channel: Channel,
    /// The format of a source without a header; `None` if the source says what it is.
    pub raw: Option<RawFormat>,
    /// Whether the source is one recording. Of WAV, AIFF and Wave64 reading ends after the samples whose number is in the header
    /// (0 is what a recorder leaves that was killed),
    /// so that a writer who keeps a pipe or a connection open is not waited for. By default what follows is read, too, up to
    /// the end of the source.
    pub single: bool,
}

/// A recording.
pub(super) enum Source<'s> {
    Wav(Box<Wav<Stream<'s>>>),
    #[cfg(feature = "files")]
    Decoder(Box<Decoder<'s>>),
}

impl<'s> Source<'s> {
    /// Opens the recording that `stream` begins with.
    pub(super) fn open(stream: &Stream<'s>, options: InputOptions) -> Result<Self, Error> {
        let mut source = if let Some(raw) = options.raw {
            Self::Wav(Box::new(Wav::raw(stream.clone(), raw, stream.remaining())?))
        } else {
            skip_tags(stream)?;
            Self::of_format(stream, &stream.peek().map_err(Error::not_read)?, options)?
        };
        if let Channel::Index(index) = options.channel {
            let channels = source.channels();
            if index >= channels {
                let expected = format!("0 to {}", channels - 1);
                return Err(Error::unsupported("the channel", expected, index));
            }
        }
        match &mut source {
            Self::Wav(wav) => wav.select(options.channel),
            // It has selected the channel.
            #[cfg(feature = "files")]
            Self::Decoder(_) => (),
        }
        Ok(source)
    }

    #[cfg_attr(
        not(feature = "files"),
        expect(unused_variables, reason = "only the decoder takes options")
    )]
    fn of_format(stream: &Stream<'s>, head: &[u8], options: InputOptions) -> Result<Self, Error> {
        let (reader, length) = (stream.clone(), stream.remaining());
        Ok(Self::Wav(Box::new(match head {
            _ if aiff::is_aiff(head) => aiff::open(reader, length)?,
            _ if wave64::is_wave64(head) => wave64::open(reader, length)?,
            _ if is_wav(head) => Wav::begin(reader, length)?,
            #[cfg(feature = "files")]
            _ => {
                let decoder = Decoder::new(reader, head, kind(head), options.channel)?;
                return Ok(Self::Decoder(Box::new(decoder)));
            }
            #[cfg(not(feature = "files"))]
            _ => return Err(crate::file_kind::other_format("a WAV file", kind(head))),
        })))
    }

    /// At the end of the samples: opens those that follow in the same file, or finds out whether another recording follows.
    pub(super) fn end(&mut self, stream: &Stream<'s>) -> Result<Option<Self>, Error> {
        match self {
            Self::Wav(wav) => {
                let Some((unread, after)) = wav.after() else { return Ok(None) };
                stream.give_back(&unread);
                let Some(size) = chunks::pass(stream, after)? else { return Ok(None) };
                let more = wav.with_more(stream.clone(), stream.remaining(), size)?;
                Ok(Some(Self::Wav(Box::new(more))))
            }
            #[cfg(feature = "files")]
            Self::Decoder(decoder) => decoder.finish().map(|()| None),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Wav(wav) => wav.name(),
            #[cfg(feature = "files")]
            Self::Decoder(decoder) => decoder.name(),
        }
    }

    pub(super) fn rate(&self) -> u32 {
        match self {
            Self::Wav(wav) => wav.rate(),
            #[cfg(feature = "files")]
            Self::Decoder(decoder) => decoder.rate(),
        }
    }

    pub(super) fn channels(&self) -> usize {
        match self {
            Self::Wav(wav) => wav.channels(),
            #[cfg(feature = "files")]
            Self::Decoder(decoder) => decoder.channels(),
        }
    }

    pub(super) fn samples(&self) -> Option<u64> {
        match self {
            Self::Wav(wav) => wav.samples(),
            #[cfg(feature = "files")]
            Self::Decoder(decoder) => decoder.samples(),
        }
    }

    pub(super) fn incomplete(&self) -> Option<&Incomplete> {
        match self {
            Self::Wav(wav) => wav.incomplete(),
            #[cfg(feature = "files")]
            Self::Decoder(decoder) => decoder.incomplete(),
        }
    }

    /// Whether the samples that follow have another rate, which is the rate then.
    pub(super) fn change_rate(&mut self) -> bool {
        match self {
            Self::Wav(_) => false,
            #[cfg(feature = "files")]
            Self::Decoder(decoder) => decoder.change_rate(),
        }
    }

    /// Reads the next samples; fewer than `out.len()` only at the end, where the file is cut, or before samples of another rate.
    pub(super) fn read(&mut self, out: &mut [f32]) -> Result<usize, Error> {
        match self {
            Self::Wav(wav) => wav.read_present(out),
            #[cfg(feature = "files")]
            Self::Decoder(decoder) => decoder.read(out),
        }
    }
}

/// Passes over the tags that the stream begins with.
pub(super) fn skip_tags(stream: &Stream<'_>) -> Result<(), Error> {
    let (mut tags, mut length) = (0, 0);
    while let Some(bytes) = tags::id3v2(&stream.peek().map_err(Error::not_read)?) {
        (tags, length) = (tags + 1, length + bytes);
        if tags > TAGS || length > TAG_BYTES {
            let expected = format!("at most {TAGS} of {TAG_BYTES} bytes");
            let found = format!("{tags} of {length}");
            return Err(Error::corrupt("tags before the audio", expected, found));
        }
        stream.skip(bytes).map_err(Error::not_read)?;
    }
    Ok(())
}

/// Whether it is a WAV file, or the beginning of one.
fn is_wav(head: &[u8]) -> bool {
    [b"RIFF", b"RF64", b"BW64"].iter().any(|&name| head.starts_with(name))
        && head.get(8..12).is_none_or(|kind| kind == b"WAVE")
}
