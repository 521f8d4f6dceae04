//! What the rows of a table are, and which of their cells are read and written.

use core::ops::Range;
use std::path::Path;

/// The input or the output in an error.
pub(super) const ROWS: &str = "the rows";

/// How a file stores the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values, as RFC 4180 and spreadsheets write them: a cell in quotes may have delimiters, line
    /// breaks and doubled quotes. A line ends with LF, CRLF or CR.
    Csv {
        /// The character between cells: `,`, or `;` in many countries of Europe.
        delimiter: u8,
    },
    /// Tab-separated values: a cell has neither tabs nor line breaks, and a quote is a character like any other.
    Tsv,
    /// A JSON object in each line; a column is one of its keys.
    JsonLines,
}

impl Format {
    /// The format of a file by its extension: `csv`, `tsv`, `jsonl` or `ndjson`.
    #[must_use]
    pub fn from_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match &*extension {
            "csv" => Some(Self::Csv { delimiter: b',' }),
            "tsv" | "tab" => Some(Self::Tsv),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            _ => None,
        }
    }
}

/// The format of a table, the column that is read and the column that is written.
#[derive(Clone, Debug)]
pub struct Table {
    /// The format of the input and of the output.
    pub format: Format,
    /// Whether the first row has the names of the columns. JSON lines have no header.
    pub header: bool,
    /// The column of the sources: its name in the header, or, if no column has this name, its number from 1. In JSON
    /// lines the key of an object.
    pub source: String,
    /// The column of the texts, as above. A column that exists is replaced, cell by cell, also that of the sources. A
    /// column that does not exist is appended; without a header this must be `None`.
    ///
    /// `None` appends a column [`APPENDED`], which must not exist.
    pub output: Option<String>,
}

/// The name of an appended column.
pub const APPENDED: &str = "translation";

/// A row of the input.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Its bytes, with its line end.
    pub(super) len: usize,
    pub(super) source: Source,
    /// Where the new cell is written; `None` if the row is written as it is.
    pub(super) place: Option<Place>,
}

/// The source of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// A blank line.
    Absent,
    /// `null` in JSON: the new cell is `null` too.
    Null,
    /// A range of the texts.
    Text(Range<usize>),
    /// Why there is no source.
    Failed(String),
}

/// Where a cell is written in a row, and how.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// The bytes of the row that it replaces; an empty range where it is inserted.
    pub(super) at: Range<usize>,
    /// The delimiters before an inserted cell: more than one if the row has too few cells. In JSON, 1 if the key is
    /// inserted too.
    pub(super) delimiters: usize,
    /// The style of the row: cells in quotes; in JSON, spaces after commas and colons.
    pub(super) styled: bool,
    /// Whether there is no other cell in the row, so that an empty one needs quotes.
    pub(super) alone: bool,
}

/// The first line of `bytes`: its length without and with its line end; `None` if it continues after them.
pub(super) fn line(bytes: &[u8], ended: bool) -> Option<(usize, usize)> {
    let len = match memchr::memchr(b'\n', bytes) {
        Some(end) => end + 1,
        None if ended => bytes.len(),
        None => return None,
    };
    let content = bytes[..len].strip_suffix(b"\n").unwrap_or(&bytes[..len]);
    Some((content.strip_suffix(b"\r").unwrap_or(content).len(), len))
}
