//! Errors of reading audio and of computing features.

use core::fmt;
use std::path::PathBuf;

/// The command that converts other files.
const CONVERT: &str = "ffmpeg -i FILE -ac 1";

/// Where sound of a recording is missing, because the file is cut or damaged.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Incomplete {
    /// The name of the format.
    pub format: &'static str,
    /// The seconds before the place; the samples before it are those of the file.
    pub seconds: f64,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, seconds, message } = self;
        write!(f, "{format}, after {seconds:.2} s: {message}")
    }
}

impl From<Incomplete> for AudioError {
    fn from(Incomplete { format, seconds, message }: Incomplete) -> Self {
        Self::Decode { format, seconds, message }
    }
}

/// An error of reading audio or of computing features.
#[derive(Debug)]
#[non_exhaustive]
pub enum AudioError {
    /// A file cannot be opened.
    Open {
        /// The path.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// Reading failed.
    Read {
        /// The cause.
        error: std::io::Error,
    },
    /// The file is of another kind.
    Kind {
        /// The probable kind.
        found: &'static str,
    },
    /// The file has a format that is not supported.
    Format {
        /// The supported formats.
        expected: &'static str,
        /// The probable format.
        found: &'static str,
    },
    /// A file is damaged or cut: see [`Incomplete`].
    Decode {
        /// The name of the format.
        format: &'static str,
        /// The time that was decoded before, in seconds.
        seconds: f64,
        /// What is wrong.
        message: String,
    },
    /// A property of the source, or an option, is invalid.
    Input {
        /// The name of the value.
        what: String,
        /// The expected value.
        expected: String,
        /// The value found.
        found: String,
    },
    /// A WAV file is inconsistent, or its sample format is not supported.
    Wav {
        /// The name of the value.
        what: String,
        /// The expected value.
        expected: String,
        /// The value found.
        found: String,
    },
    /// The sample rate differs from that of the model.
    Rate {
        /// The rate of the model, in samples per second.
        expected: u32,
        /// The rate of the file.
        found: u32,
    },
    /// The requested shape of features, or the length of their buffer, is invalid.
    Features {
        /// The name of the value.
        what: &'static str,
        /// The expected value.
        expected: String,
        /// The value found.
        found: usize,
    },
    /// A kernel: the environment names an instruction set that the machine lacks.
    #[cfg(feature = "vad")]
    Kernel(simdformer::KernelError),
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

    pub(crate) fn input(
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Self {
        let (what, expected) = (what.into(), expected.into());
        Self::Input { what, expected, found: found.to_string() }
    }

    #[cfg(feature = "audio-files")]
    pub(crate) fn decode(format: &'static str, seconds: f64, message: impl Into<String>) -> Self {
        Self::Decode { format, seconds, message: message.into() }
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
            Self::Format { expected, found } => {
                write!(f, "expected {expected}, found {found}; `{CONVERT} OUT.wav` converts audio")
            }
            Self::Decode { format, seconds, message } => {
                write!(f, "{format}, after {seconds:.2} s: {message}")
            }
            Self::Wav { what, expected, found } | Self::Input { what, expected, found } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
            Self::Rate { expected, found } => write!(
                f,
                "expected {expected} samples a second, found {found}; `{CONVERT} -ar {expected} OUT.wav` converts it"
            ),
            Self::Features { what, expected, found } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
            #[cfg(feature = "vad")]
            Self::Kernel(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for AudioError {}
