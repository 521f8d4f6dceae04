//! Decodes packets of Opus.
//!
//! Sources: RFC 7845, section 5.1; RFC 6716.

use rusty_opus::multistream::{ChannelLayout, OpusMSDecoder};
use rusty_opus::{Error, OpusDecoder};

/// The rate of decoded samples, in Hz.
const RATE: u32 = 48_000;
/// The samples of the longest packet, 120 ms, of one channel.
const LONGEST: usize = 5760;

enum Streams {
    One(Box<OpusDecoder>),
    Several(Box<OpusMSDecoder>),
}

/// The decoder of a stream of Opus.
pub(super) struct Opus {
    streams: Streams,
    channels: usize,
    /// The factor of all samples.
    gain: f32,
    /// Samples per channel before the first one that is heard.
    skip: u64,
    samples: Vec<f32>,
}

impl Opus {
    /// The decoder of the stream with the identification header `head`, whose numbers in an MP4 file begin with the highest byte.
    ///
    /// # Errors
    /// What is wrong with the header, or not supported.
    pub(super) fn new(head: &[u8], is_mp4: bool) -> Result<Self, String> {
        let &[b'O', b'p', b'u', b's', b'H', b'e', b'a', b'd', version, channels, ref rest @ ..] =
            head
        else {
            return Err("expected a header `OpusHead`".into());
        };
        let &[skip0, skip1, _, _, _, _, gain0, gain1, family, ref mapping @ ..] = rest else {
            return Err(format!("expected a header of 19 bytes, found {}", head.len()));
        };
        let number = usize::from(channels);
        let streams = match (version, family, number) {
            (0..=15, 0, 1 | 2) => {
                OpusDecoder::new(RATE as i32, number).map(|one| Streams::One(one.into()))
            }
            (0..=15, 1, 1..=8) => {
                let layout =
                    ChannelLayout::surround(number, 1).map_err(|error| error.to_string())?;
                let usual = [layout.nb_streams as u8, layout.nb_coupled_streams as u8];
                if !mapping.starts_with(&usual) || !mapping[2..].starts_with(&layout.mapping) {
                    return Err("expected the order of channels of Vorbis".into());
                }
                OpusMSDecoder::new(RATE as i32, number, 1).map(|all| Streams::Several(all.into()))
            }
            _ => {
                let found = format!("{channels} channels of family {family}, version {version}");
                return Err(format!(
                    "expected 1 or 2 channels of Opus, or 1 to 8 of family 1, found {found}"
                ));
            }
        };
        let number_of = if is_mp4 { u16::from_be_bytes } else { u16::from_le_bytes };
        let gain = number_of([gain0, gain1]) as i16;
        Ok(Self {
            streams: streams.map_err(|error| error.to_string())?,
            channels: number,
            gain: 10f32.powf(f32::from(gain) / (20.0 * 256.0)),
            skip: number_of([skip0, skip1]).into(),
            samples: vec![0.0; LONGEST * number],
        })
    }

    /// Samples per channel before the first one that is heard, which the header says. They are decoded, too.
    pub(super) fn skip(&self) -> u64 {
        self.skip
    }

    pub(super) fn rate(&self) -> u32 {
        RATE
    }

    pub(super) fn channels(&self) -> usize {
        self.channels
    }

    /// The samples of the next packet, of all channels in turn.
    pub(super) fn decode(&mut self, packet: &[u8]) -> Result<&[f32], Error> {
        if packet.is_empty() {
            // A packet that was not sent is silence in no format that is read here.
            return Err(Error::InvalidPacket("an empty packet"));
        }
        let decoded = match &mut self.streams {
            Streams::One(one) => one.decode(packet, LONGEST, &mut self.samples)?,
            Streams::Several(all) => all.decode(packet, LONGEST, &mut self.samples)?,
        };
        let samples = &mut self.samples[..decoded * self.channels];
        samples.iter_mut().for_each(|sample| *sample *= self.gain);
        Ok(samples)
    }
}
