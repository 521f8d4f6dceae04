//! The transcriber: windows of a recording, their text, its times and its words. The documentation of the crate says how.

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
