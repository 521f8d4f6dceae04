//! Audio for speech models: converts a file to samples at 16 kHz and to the mel features that Whisper's encoder reads.
//!
//! ```
//! use simdformer_text::audio::{AudioReader, FeatureExtractor, InputOptions};
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

mod features;
mod file_kind;
mod incomplete;
mod input;
mod log_mel;
mod riff_chunks;
mod sample_format;
#[cfg(feature = "transcribe")]
pub mod subtitles;
#[cfg(feature = "transcribe")]
pub mod transcriber;
#[cfg(feature = "vad")]
pub mod vad;
mod wav;
mod wav_format;

pub use features::FeatureExtractor;
pub use incomplete::Incomplete;
pub use input::{AudioReader, InputOptions, Resampler};
pub use sample_format::{Channel, RawEncoding, RawFormat};
pub use wav::Wav;
