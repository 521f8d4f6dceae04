//! Reads and writes the rows of a table in its format.

use super::delimited::Delimited;
use super::json_lines::JsonLines;
use super::table::{Format, Place, Row, Table, line};
use crate::error::Error;

/// A reader and writer of rows whose columns are known.
#[derive(Debug)]
pub(super) enum Rows {
    Delimited(Box<Delimited>),
    Json(JsonLines),
}

impl Rows {
    /// `first` is the first row with its line end, without a byte order mark; nothing if the input is empty.
    pub(super) fn new(table: &Table, first: &[u8]) -> Result<Self, Error> {
        Ok(match table.format {
            Format::Csv { delimiter } => {
                Self::Delimited(Box::new(Delimited::new(table, delimiter, true, first)?))
            }
            Format::Tsv => Self::Delimited(Box::new(Delimited::new(table, b'\t', false, first)?)),
            Format::JsonLines => Self::Json(JsonLines::new(table)),
        })
    }

    /// The length of the first row of `bytes`, with its line end; `None` if it continues after them. `ended`: nothing
    /// comes after `bytes`.
    pub(super) fn first_row(format: Format, bytes: &[u8], ended: bool) -> Option<usize> {
        match format {
            Format::Csv { delimiter } => {
                let mut reader = Delimited::reader(delimiter);
                Delimited::scan(&mut reader, bytes, ended, |_, _, _| ()).map(|record| record.len)
            }
            Format::Tsv | Format::JsonLines => line(bytes, ended).map(|(_, len)| len),
        }
    }

    /// The header, without its byte order mark, with the name of an appended column.
    pub(super) fn header(&self, raw: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Delimited(rows) => rows.header(raw, out),
            Self::Json(_) => out.extend_from_slice(raw),
        }
    }

    /// The first row of `bytes`, which are not empty, or `None` if it continues after them. Its source is appended to
    /// `texts`.
    pub(super) fn read_row(
        &mut self,
        bytes: &[u8],
        ended: bool,
        texts: &mut String,
    ) -> Option<Row> {
        match self {
            Self::Delimited(rows) => rows.read_row(bytes, ended, texts),
            Self::Json(rows) => rows.read_row(bytes, ended, texts),
        }
    }

    /// Writes the row `raw` with the cell `text`: `None` is an empty cell, in JSON `null`.
    pub(super) fn write(
        &self,
        raw: &[u8],
        place: Option<&Place>,
        text: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        let Some(place) = place else { return out.extend_from_slice(raw) };
        out.extend_from_slice(&raw[..place.at.start]);
        match self {
            Self::Delimited(rows) => rows.cell(place, text.unwrap_or_default(), out),
            Self::Json(rows) => rows.cell(place, text, out),
        }
        out.extend_from_slice(&raw[place.at.end..]);
    }
}
