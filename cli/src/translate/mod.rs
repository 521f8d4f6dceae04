//! `translate` and `summarize`.

pub(crate) mod arguments;
mod documents;
mod explain;
mod explain_lines;
mod tables;
mod texts;

use crate::streams::{Failure, Streams};
use arguments::{TextToText, Translate};

/// Translates a table, documents or lines; returns the exit code.
pub(crate) fn translate(arguments: &Translate, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    match arguments.table()? {
        Some(format) => tables::fill_column(format, arguments, streams),
        None => texts::translate(arguments, streams),
    }
}

/// Summarizes each file, or each line if the options say so; returns the exit code.
pub(crate) fn summarize(arguments: &TextToText, streams: &mut Streams<'_>) -> Result<u8, Failure> {
    texts::lines(arguments, true, None, streams)
}
