//! Transcribes recordings of any length: a Whisper model, its tokenizer, its features and a planned session behind one
//! type.
//!
//! ```no_run
//! use simdformer::Model;
//! use simdformer_text::Tokenizer;
//! use simdformer_text::audio::transcriber::{TranscribeEvent, TranscribeOptions, Transcriber};
//! use simdformer_text::audio::{AudioReader, FeatureExtractor, InputOptions};
//! use std::ops::ControlFlow;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (model, tokenizer) = (Model::open("whisper-tiny.en")?, Tokenizer::from_dir("whisper-tiny.en")?);
//! let extractor = FeatureExtractor::from_dir("whisper-tiny.en")?;
//! let options = TranscribeOptions::new(model.config());
//! let mut transcriber = Transcriber::new(model, tokenizer, extractor, options)?;
//!
//! let mut open = || AudioReader::open("talk.mp3", InputOptions::default());
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

mod alignment;
mod batched;
mod frames;
mod options;
mod prompt;
mod samples;
mod segments;
mod sequential;
mod streaming;
#[expect(clippy::module_inception, reason = "the type that the module is named after")]
mod transcriber;
mod transcription;
mod warping;
mod window_decoder;
mod word_split;
mod word_timestamps;

pub use options::{Compression, TranscribeOptions, Windows};
pub use samples::{Recording, SampleSource};
pub use streaming::StreamingTranscriber;
pub use transcriber::Transcriber;
pub use transcription::{
    RecordingSummary, Segment, Tentative, TranscribeEvent, Transcription, Window, Word,
};
