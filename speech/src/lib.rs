//! Audio in; segments, words and subtitles out: recordings of any length and streams, transcribed by a Whisper model.
//!
//! ```no_run
//! use simdformer_speech::Transcriber;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let transcriber = Transcriber::open("whisper-tiny.en")?;
//! let samples = vec![0.0; 16_000]; // one channel, 16,000 samples a second
//! for segment in transcriber.transcribe(&samples)?.segments {
//!     println!("{:.2} to {:.2}:{}", segment.start, segment.end, segment.text);
//! }
//! # Ok(()) }
//! ```
//!
//! A file, whose segments are reported as they become final:
//!
//! ```no_run
//! use simdformer_speech::{AudioReader, InputOptions, TranscribeEvent, Transcriber};
//! use std::ops::ControlFlow;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let transcriber = Transcriber::open("whisper-tiny.en")?;
//! let mut open = || AudioReader::open("talk.wav", InputOptions::default());
//! transcriber.transcribe_reopened(&mut open, None, &mut |event| {
//!     if let TranscribeEvent::Segment(segment) = event {
//!         println!("{:.2} to {:.2}:{}", segment.start, segment.end, segment.text);
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! # Ok(()) }
//! ```
//!
//! [`Transcriber::transcribe`] takes samples in memory and returns everything at the end.
//! [`Transcriber::transcribe_recording`] reads any source once, such as a pipe. [`StreamingTranscriber`] takes samples as they
//! arrive, and reports what may still change, too.
//!
//! # From samples to text
//!
//! 1. A frame of features is computed every 10 ms. Its scale depends on the loudest frame of the whole recording, as in
//!    transformers; where a recording is read only once, on the loudest one so far: [`Recording::maximum`].
//! 2. Voice activity detection finds spans of speech; only they are read on: [`TranscribeOptions::vad`].
//! 3. Windows of at most 30 s are cut from the frames: [`Windows`]. A shorter one is padded with zeros.
//! 4. A window is encoded once. Its text is decoded greedily or by beam search, and again at rising temperatures if it is
//!    improbable or repeats itself. The text of a window without speech is dropped.
//! 5. Timestamps of the model divide the text into segments.
//! 6. With [`TranscribeOptions::words`], each word gets its times and a probability, from the cross-attention to the window.
//!
//! # What the result depends on
//!
//! The bits depend on the samples, the model and the options: not on threads, slots, the instruction set, or what was
//! transcribed before. A random sample is a function of the seed, the first frame of its window and the number of the
//! attempt.
//!
//! # Parts that are used alone
//!
//! [`AudioReader`] reads a file or a pipe as one channel of 16 kHz: WAV, AIFF, Wave64 and raw samples, with the feature `files`
//! also MP3, AAC, M4A, FLAC, Ogg, WebM and Matroska. [`FeatureExtractor`] computes the input of the encoder, as
//! [`simdformer::Features`] takes it. [`vad`] finds speech, and [`subtitles`] makes cues of segments.
//!
//! ```
//! use simdformer_speech::{AudioReader, FeatureExtractor, InputOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut file = b"RIFF\x2c\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x08\0\0\0".to_vec();
//! # file.extend([0, 0, 0, 0x40, 0, 0xc0, 0xff, 0x7f]);
//! let mut audio = AudioReader::new(&file[..], InputOptions::default())?; // or `AudioReader::open(path, ...)`
//! let extractor = FeatureExtractor::whisper(80, 30)?; // or `FeatureExtractor::from_dir(path)`
//! let mut samples = vec![0.0; extractor.samples()];
//! let read = audio.read(&mut samples)?;
//! let mut features = vec![0.0; extractor.len()];
//! let taken = extractor.extract(&samples[..read], &mut features)?;
//! assert_eq!((read, taken, features.len()), (4, 4, 80 * 3000));
//! # Ok(()) }
//! ```

mod error;
mod features;
mod file_kind;
#[cfg(feature = "files")]
mod files;
mod incomplete;
mod input;
mod log_mel;
mod riff_chunks;
mod sample_format;
pub mod subtitles;
mod transcriber;
pub mod vad;
mod wav;
mod wav_format;

pub use error::Error;
pub use features::FeatureExtractor;
pub use incomplete::Incomplete;
pub use input::{AudioReader, InputOptions, Resampler};
pub use sample_format::{Channel, RawEncoding, RawFormat};
pub use simdformer_tokenize::Tokenizer;
pub use transcriber::{
    Compression, Recording, RecordingSummary, SampleSource, Segment, StreamingTranscriber,
    Tentative, TranscribeEvent, TranscribeOptions, Transcriber, Transcription, Window, Windows,
    Word,
};
pub use wav::Wav;

/// The program of the README, compiled by the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
