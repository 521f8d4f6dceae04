//! Reads the rows of an input in windows, with the position and the checksum of what was read.

use super::journal::Record;
use super::rows::Rows;
use super::table::{Format, ROWS, Row, Source, Table};
use crate::error::Error;
use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// The bytes that are read at a time, at most.
const CHUNK: usize = 1 << 16;
/// A window ends after the row that fills these bytes.
const WINDOW_BYTES: usize = 4 << 20;
/// The byte order mark of UTF-8. It is written again, and it is no part of the first cell.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The rows of an input.
pub(super) struct RowReader<'i> {
    input: &'i mut (dyn Read + Send),
    format: Format,
    pub(super) columns: Rows,
    /// What one call of the input reads.
    chunk: Vec<u8>,
    /// Bytes that were read. The window is `buffer[..at]`.
    buffer: Vec<u8>,
    at: usize,
    ended: bool,
    /// The bytes of a row, at most.
    longest_row: usize,
    pub(super) position: InputPosition,
    /// The checksum of these bytes.
    pub(super) checksum: Xxh3,
    /// The rows of the window, which has all bytes before `at`.
    rows: Vec<Row>,
    texts: String,
}

/// How far an input was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputPosition {
    /// The bytes up to the end of the window.
    pub(super) bytes: u64,
    /// The rows in them, with the header.
    pub(super) rows: u64,
}

/// Some consecutive rows.
pub(super) struct Window<'w> {
    /// The number of the first row.
    pub(super) first: u64,
    pub(super) bytes: &'w [u8],
    pub(super) rows: &'w [Row],
    /// The sources.
    pub(super) texts: &'w str,
    pub(super) columns: &'w Rows,
}

impl<'i> RowReader<'i> {
    /// Reads the first row to find the columns. The first window begins after the header, which is appended to `header`
    /// as it is to be written.
    pub(super) fn open(
        input: &'i mut (dyn Read + Send),
        table: &Table,
        longest_row: usize,
        header: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        let mut reader = Self {
            input,
            format: table.format,
            columns: Rows::new(table, b"")?,
            chunk: vec![0; CHUNK],
            buffer: Vec::new(),
            at: 0,
            ended: false,
            longest_row,
            position: InputPosition { bytes: 0, rows: 0 },
            checksum: Xxh3::new(),
            rows: Vec::new(),
            texts: String::new(),
        };
        while reader.buffer.len() < BYTE_ORDER_MARK.len() && reader.fill()? {}
        if reader.buffer.starts_with(b"\xff\xfe") || reader.buffer.starts_with(b"\xfe\xff") {
            return Err(Error::unsupported(ROWS, "UTF-8", "UTF-16"));
        }
        let mark = reader.mark();
        let first = loop {
            let rest = &reader.buffer[mark..];
            if rest.is_empty() && reader.ended {
                break 0;
            }
            match Rows::first_row(reader.format, rest, reader.ended) {
                Some(len) => break len,
                None if reader.ended => break rest.len(),
                None => reader.more(0)?,
            }
        };
        let first = &reader.buffer[mark..mark + first];
        reader.columns = Rows::new(table, first)?;
        if table.header && reader.format != Format::JsonLines && !first.is_empty() {
            header.extend_from_slice(&reader.buffer[..mark]);
            reader.columns.header(first, header);
            let end = mark + first.len();
            reader.consume(end);
            reader.position.rows = 1;
        }
        Ok(reader)
    }

    /// The length of the byte order mark that the next row begins with.
    fn mark(&self) -> usize {
        let begins = self.position.bytes == 0 && self.at == 0;
        if begins && self.buffer.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 }
    }

    /// Passes over the rows up to `expected`, which must be those that were read before.
    pub(super) fn skip_to(&mut self, expected: &Record, cancel: &AtomicBool) -> Result<(), Error> {
        let bytes = expected.input;
        while self.position.bytes < bytes {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled);
            }
            self.forget();
            if self.buffer.is_empty() && !self.fill()? {
                return Err(other_input(bytes, Some(self.position.bytes)));
            }
            let rest = usize::try_from(bytes - self.position.bytes).unwrap_or(usize::MAX);
            self.consume(rest.min(self.buffer.len()));
        }
        if self.position.bytes != bytes || self.checksum.digest() != expected.checksum {
            return Err(other_input(bytes, None));
        }
        self.position.rows = expected.rows;
        self.rows.clear();
        Ok(())
    }

    /// The input must end after what was passed over.
    pub(super) fn expect_end(&mut self) -> Result<(), Error> {
        self.forget();
        let bytes = self.position.bytes;
        let mut found = bytes + self.buffer.len() as u64;
        self.buffer.clear();
        while self.fill()? {
            found += self.buffer.len() as u64;
            self.buffer.clear();
        }
        if found == bytes { Ok(()) } else { Err(other_input(bytes, Some(found))) }
    }

    /// The next window, of at most `most` rows; `None` at the end.
    pub(super) fn window(&mut self, most: usize) -> Result<Option<Window<'_>>, Error> {
        self.forget();
        self.rows.clear();
        self.texts.clear();
        let mut at = 0;
        while self.rows.len() < most && at < WINDOW_BYTES {
            if at == self.buffer.len() && !self.fill()? {
                break;
            }
            // The first row may begin with a byte order mark.
            let mark = if at == 0 { self.mark() } else { 0 };
            let rest = &self.buffer[at + mark..];
            let known = self.texts.len();
            let row = match self.columns.read_row(rest, self.ended, &mut self.texts) {
                Some(row) => row,
                None if self.ended => Row { len: rest.len(), source: Source::Absent, place: None },
                None => {
                    self.texts.truncate(known);
                    self.more(at)?;
                    continue;
                }
            };
            at += mark + row.len;
            self.rows.push(moved(row, mark));
        }
        if self.rows.is_empty() {
            return Ok(None);
        }
        self.consume(at);
        let first = self.position.rows + 1;
        self.position.rows += self.rows.len() as u64;
        let (bytes, rows) = (&self.buffer[..at], &self.rows[..]);
        Ok(Some(Window { first, bytes, rows, texts: &self.texts, columns: &self.columns }))
    }

    /// Drops the window.
    fn forget(&mut self) {
        self.buffer.drain(..self.at);
        self.at = 0;
    }

    /// The window is `buffer[..end]`.
    fn consume(&mut self, end: usize) {
        self.at = end;
        self.position.bytes += end as u64;
        self.checksum.update(&self.buffer[..end]);
    }

    /// Reads as many bytes as the row at `at` has so far, so that a long row is scanned a few times only.
    fn more(&mut self, at: usize) -> Result<(), Error> {
        let known = self.buffer.len() - at;
        if known >= self.longest_row {
            let row = self.position.rows + self.rows.len() as u64 + 1;
            let offset = self.position.bytes + at as u64;
            return Err(Error::invalid_input(
                format!("row {row}, which begins at byte {offset}"),
                format!("at most {} bytes", self.longest_row),
                "more; is a quote not closed?",
            ));
        }
        let wanted = self.buffer.len() + known.max(CHUNK);
        while self.buffer.len() < wanted && self.fill()? {}
        Ok(())
    }

    /// Reads some bytes; `false` at the end.
    fn fill(&mut self) -> Result<bool, Error> {
        let read = loop {
            match self.input.read(&mut self.chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                read => break read.map_err(Error::of_stream("read", ROWS))?,
            }
        };
        self.buffer.extend_from_slice(&self.chunk[..read]);
        self.ended |= read == 0;
        Ok(read > 0)
    }
}

/// The error of an input that is not the one of which the interrupted run has read `bytes`. `found`: its bytes, if they are
/// fewer, or if the interrupted run had read all.
fn other_input(bytes: u64, found: Option<u64>) -> Error {
    let expected = format!("the {bytes} bytes that the interrupted run has read");
    let found = match found {
        Some(found) => format!("another input, which has {found}"),
        None => "another input, whose bytes are different".to_owned(),
    };
    Error::conflict("input", expected, found)
}

/// The row with `mark` bytes before it.
fn moved(mut row: Row, mark: usize) -> Row {
    row.len += mark;
    if let Some(place) = &mut row.place {
        place.at = place.at.start + mark..place.at.end + mark;
    }
    row
}
