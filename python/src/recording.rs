//! Where the samples of a recording come from: a file, the bytes of a file, or an array.

use crate::errors::Failure;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use simdformer::Cancel;
use simdformer_speech::{
    AudioReader, Channel, Error, InputOptions, RawEncoding, RawFormat, Recording, RecordingSummary,
    TranscribeEvent, Transcriber,
};
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// A path, or bytes; bytes of samples with their encoding, samples per second and channels.
#[derive(FromPyObject)]
pub(crate) enum PyAudio {
    Bytes(PyBackedBytes),
    Samples((PyBackedBytes, String, u32, u16)),
    Path(PathBuf),
}

/// Immutable bytes of Python, which threads share.
#[derive(Clone)]
struct Bytes(Arc<PyBackedBytes>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Clone)]
enum Audio {
    Path(PathBuf),
    Bytes(Bytes),
}

/// A recording to transcribe.
pub(crate) struct Recorded {
    audio: Audio,
    input: InputOptions,
    speech: Option<Vec<(f64, f64)>>,
}

impl Recorded {
    /// # Errors
    /// The samples have an unknown encoding, no channel, or no rate.
    pub(crate) fn new(
        audio: PyAudio,
        channel: Option<usize>,
        speech: Option<Vec<(f64, f64)>>,
    ) -> Result<Self, Failure> {
        let (audio, raw) = match audio {
            PyAudio::Path(path) => (Audio::Path(path), None),
            PyAudio::Bytes(bytes) => (Audio::Bytes(Bytes(Arc::new(bytes))), None),
            PyAudio::Samples((bytes, encoding, rate, channels)) => {
                let encoding = RawEncoding::from_name(&encoding)
                    .ok_or_else(|| Failure::input("audio", "a known encoding", encoding))?;
                let raw = RawFormat { encoding, rate, channels };
                (Audio::Bytes(Bytes(Arc::new(bytes))), Some(raw))
            }
        };
        let channel = channel.map_or(Channel::Mix, Channel::Index);
        Ok(Self { audio, input: InputOptions { channel, raw, ..InputOptions::default() }, speech })
    }

    fn open(&self) -> Result<AudioReader<'static>, Error> {
        match &self.audio {
            Audio::Path(path) => AudioReader::open(path, self.input),
            Audio::Bytes(bytes) => AudioReader::new(Cursor::new(bytes.clone()), self.input),
        }
    }

    /// Whether it can be read twice.
    fn is_seekable(&self) -> bool {
        match &self.audio {
            Audio::Path(path) => path.is_file(),
            Audio::Bytes(_) => true,
        }
    }

    /// Transcribes it; a pipe is read once. `on_seconds` gets the length in seconds, if it is known before.
    pub(crate) fn transcribe(
        &self,
        transcriber: &mut Transcriber,
        cancel: &Cancel,
        on_seconds: &mut dyn FnMut(f64),
        on_event: &mut dyn FnMut(TranscribeEvent<'_>) -> ControlFlow<()>,
    ) -> Result<RecordingSummary, Error> {
        transcriber.set_cancel(cancel.clone());
        let mut opened = false;
        let mut open = || {
            let audio = self.open()?;
            if let Some(samples) = audio.samples().filter(|_| !opened) {
                on_seconds(samples as f64 / f64::from(audio.rate()));
            }
            opened = true;
            Ok(audio)
        };
        let speech = self.speech.as_deref();
        if self.is_seekable() {
            return transcriber.transcribe_reopened(&mut open, speech, on_event);
        }
        let mut source = open()?;
        let recording = Recording { source: &mut source, maximum: None, speech };
        transcriber.transcribe_recording(recording, on_event)
    }
}
