//! Voice activity detection: which parts of a recording or of a stream are speech.
//!
//! [`SpeechDetector`] computes a probability for every 32 ms, and [`SpeechFinder`] makes spans of them. Both take samples as
//! they come, in any pieces, in memory that does not grow.
//!
//! ```no_run
//! use simdformer_speech::vad::{SpeechDetector, VadOptions, speech_spans};
//! use simdformer_speech::{AudioReader, InputOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut audio = AudioReader::open("talk.mp3", InputOptions::default())?;
//! for (start, end) in speech_spans(&mut audio, SpeechDetector::new()?, VadOptions::default())? {
//!     println!("speech from {start:.2} to {end:.2} s");
//! }
//! # Ok(()) }
//! ```

mod detector;
mod spans;

pub use detector::SpeechDetector;
pub use spans::{SpeechFinder, VadOptions};

use super::AudioReader;
use crate::error::Error;

/// Samples that are read at a time.
const BLOCK: usize = 8192;

/// The spans of speech of a recording, which is read to its end: starts and ends in seconds, ascending and not overlapping.
///
/// # Errors
/// The recording cannot be read, a sample is not finite, or the options are invalid.
pub fn speech_spans(
    audio: &mut AudioReader<'_>,
    detector: SpeechDetector,
    options: VadOptions,
) -> Result<Vec<(f64, f64)>, Error> {
    let mut finder = SpeechFinder::new(detector, options)?;
    let mut block = vec![0.0; BLOCK];
    let mut spans = Vec::new();
    loop {
        let read = audio.read(&mut block)?;
        finder.push(&block[..read])?;
        if read < block.len() {
            finder.finish()?;
        }
        spans.extend(core::iter::from_fn(|| finder.next_span()));
        if read < block.len() {
            return Ok(spans);
        }
    }
}
