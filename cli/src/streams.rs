//! What every command reads from and writes to, and how it fails.

use std::error::Error;
use std::io::{Read, Write};

/// Why a command failed or was incomplete.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The streams of a command.
pub(crate) struct Streams<'s> {
    pub(crate) input: &'s mut (dyn Read + Send),
    pub(crate) out: &'s mut (dyn Write + Send),
    pub(crate) notes: &'s mut (dyn Write + Send),
    /// Whether the notes go to a terminal.
    pub(crate) terminal: bool,
}
