//! Errors of a transcriber.

use crate::Error as TextError;
use crate::audio::AudioError;
use core::fmt;
use simdformer::Error;

/// Why a transcriber could not be built, or a recording not be transcribed.
#[derive(Debug)]
#[non_exhaustive]
pub enum TranscribeError {
    /// The recording: it cannot be read, or a sample is not finite.
    Audio(AudioError),
    /// The tokenizer: a language that the model does not have, or a prompt that it cannot segment.
    Text(TextError),
    /// The model: no memory, no decoder, invalid search options, or a cancelled call.
    Model(Error),
    /// The model, its features and the options do not fit.
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// The expected value.
        expected: String,
        /// The value found.
        found: String,
    },
    /// A score of the model is NaN or infinite.
    NotFinite {
        /// The start of the window, in seconds.
        start: f64,
    },
}

impl TranscribeError {
    pub(super) fn setting(
        setting: &'static str,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Self {
        Self::Setting { setting, expected: expected.into(), found: found.to_string() }
    }
}

impl fmt::Display for TranscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Audio(error) => error.fmt(f),
            Self::Text(error) => error.fmt(f),
            Self::Model(error) => error.fmt(f),
            Self::Setting { setting, expected, found } => {
                write!(f, "{setting}: expected {expected}, found {found}")
            }
            Self::NotFinite { start } => write!(
                f,
                "window at {start:.2} s: expected finite scores of the model, found NaN or an infinity"
            ),
        }
    }
}

impl std::error::Error for TranscribeError {}

impl From<AudioError> for TranscribeError {
    fn from(error: AudioError) -> Self {
        Self::Audio(error)
    }
}

impl From<TextError> for TranscribeError {
    fn from(error: TextError) -> Self {
        Self::Text(error)
    }
}

impl From<Error> for TranscribeError {
    fn from(error: Error) -> Self {
        Self::Model(error)
    }
}
