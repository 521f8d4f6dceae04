//! Where the sound of a recording is missing.

use core::fmt;

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
