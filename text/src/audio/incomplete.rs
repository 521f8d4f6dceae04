//! Where sound is missing, and errors of a recording.

use crate::error::Error;
use core::fmt;
use std::io;

/// The command that converts other files.
pub(super) const CONVERT: &str = "ffmpeg -i FILE -ac 1";

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

impl From<Incomplete> for Error {
    fn from(missing: Incomplete) -> Self {
        Self::Incomplete(missing)
    }
}

/// The error of a recording that is not of the `expected` formats.
pub(super) fn other_format(expected: &str, found: &str) -> Error {
    let found = format_args!("{found}; `{CONVERT} OUT.wav` converts audio");
    Error::unsupported("the format", expected, found)
}

/// The error of the source of a recording that was opened before.
pub(super) fn not_read(error: io::Error) -> Error {
    Error::Io { action: "read on", path: "the recording".into(), error }
}
