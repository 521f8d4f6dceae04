//! Why there are no samples, or no features.

use core::fmt;
use std::path::PathBuf;

/// How anything becomes what is read here.
const CONVERT: &str = "ffmpeg -i FILE -ac 1";

/// What went wrong between a file and features.
#[derive(Debug)]
#[non_exhaustive]
pub enum AudioError {
    /// A file cannot be opened.
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// What is read cannot be read any further.
    Read {
        /// Why.
        error: std::io::Error,
    },
    /// A file of another kind.
    Kind {
        /// What it seems to be.
        found: &'static str,
    },
    /// A WAV file that contradicts itself, or has samples that are not read here.
    Wav {
        /// Of what.
        what: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// Another number of samples a second than the model was trained on.
    Rate {
        /// What the model takes, in samples a second.
        expected: u32,
        /// What the file has.
        found: u32,
    },
    /// The shape of features that are asked for, or the room for them.
    Features {
        /// Of what.
        what: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
        found: usize,
    },
}

impl AudioError {
    pub(crate) fn wav(
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Self {
        let (what, expected) = (what.into(), expected.into());
        Self::Wav { what, expected, found: found.to_string() }
    }
}

impl fmt::Display for AudioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            Self::Read { error } => write!(f, "cannot read on: {error}"),
            Self::Kind { found } => {
                write!(f, "expected a WAV file, found {found}; `{CONVERT} OUT.wav` converts audio")
            }
            Self::Wav { what, expected, found } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
            Self::Rate { expected, found } => write!(
                f,
                "expected {expected} samples a second, found {found}; `{CONVERT} -ar {expected} OUT.wav` converts it"
            ),
            Self::Features { what, expected, found } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
        }
    }
}

impl core::error::Error for AudioError {}
