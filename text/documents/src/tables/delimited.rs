//! Rows of CSV and TSV. The bytes of the other cells are never decoded and written again: they stay as they are.

use super::table::{APPENDED, Place, Row, Source, Table, line};
use crate::error::Error;
use core::ops::Range;
use csv_core::{ReadFieldResult, Reader, ReaderBuilder};

/// The names of a header that an error lists.
const LISTED: usize = 20;

/// The columns of a table with delimiters.
#[derive(Debug)]
pub(super) struct Delimited {
    delimiter: u8,
    /// Whether cells may be in quotes.
    quoting: bool,
    reader: Reader,
    /// The number of columns.
    columns: usize,
    source: usize,
    output: Output,
}

/// Where the new cells go.
#[derive(Debug)]
enum Output {
    Replaced(usize),
    Appended(String),
}

/// A record of CSV.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Its bytes, with its line end.
    pub(super) len: usize,
    /// The number of its cells; 0 for a blank line.
    cells: usize,
    /// Where its last cell begins and ends.
    last: (usize, usize),
}

impl Delimited {
    pub(super) fn new(
        table: &Table,
        delimiter: u8,
        quoting: bool,
        first: &[u8],
    ) -> Result<Self, Error> {
        let mut rows = Self {
            delimiter,
            quoting,
            reader: Self::reader(delimiter),
            columns: 0,
            source: 0,
            output: Output::Appended(APPENDED.to_owned()),
        };
        if first.is_empty() {
            return Ok(rows);
        }
        let mut names = rows.names(first);
        rows.columns = names.len();
        if !table.header {
            names.clear();
        }
        let source = column(&names, rows.columns, &table.source)?;
        rows.source = source.ok_or_else(|| no_column(&names, rows.columns, &table.source))?;
        match &table.output {
            Some(name) => match column(&names, rows.columns, name)? {
                Some(index) => rows.output = Output::Replaced(index),
                // Without a header there is no name to append.
                None if table.header => rows.output = Output::Appended(name.clone()),
                None => return Err(no_column(&names, rows.columns, name)),
            },
            None if names.iter().any(|name| name == APPENDED) => {
                let found = format_args!(
                    "{APPENDED:?}, which there is already; name it to replace its cells"
                );
                return Err(Error::invalid_option("column of the output", "a new name", found));
            }
            None => (),
        }
        Ok(rows)
    }

    pub(super) fn reader(delimiter: u8) -> Reader {
        let mut reader = ReaderBuilder::new().delimiter(delimiter).build();
        restart(&mut reader);
        reader
    }

    /// The cells of a row as text.
    fn names(&mut self, row: &[u8]) -> Vec<String> {
        let mut cells: Vec<Vec<u8>> = Vec::new();
        if self.quoting {
            Self::scan(&mut self.reader, row, true, |index, _, part| {
                cells.resize_with(cells.len().max(index + 1), Vec::new);
                cells[index].extend_from_slice(part);
            });
        } else {
            let (content, _) = line(row, true).unwrap_or_default();
            cells = row[..content].split(|&byte| byte == self.delimiter).map(Vec::from).collect();
        }
        cells.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect()
    }

    /// Finds the first record of `bytes`, which are not empty; `None` if it continues after them. `part` gets the index
    /// of a cell, its range in `bytes`, which is empty until the cell ends, and the next part of its content.
    pub(super) fn scan(
        reader: &mut Reader,
        bytes: &[u8],
        ended: bool,
        mut part: impl FnMut(usize, Range<usize>, &[u8]),
    ) -> Option<Record> {
        // The reader passes over blank lines, but they are rows here.
        if let Some(len) = line_end(bytes, 0, ended)? {
            return Some(Record { len, cells: 0, last: (0, 0) });
        }
        restart(reader);
        let mut content = [0; 1024];
        let (mut at, mut start, mut cells) = (0, 0, 0);
        loop {
            if at == bytes.len() && !ended {
                return None;
            }
            let (found, read, written) = reader.read_field(&bytes[at..], &mut content);
            let atend = at == bytes.len();
            at += read;
            match found {
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {
                    part(cells, 0..0, &content[..written]);
                }
                ReadFieldResult::Field { record_end } => {
                    // What was read last is the delimiter or the line end, unless the input ends here.
                    let end = if atend { at } else { at - 1 };
                    part(cells, start..end, &content[..written]);
                    cells += 1;
                    if record_end {
                        let len = if atend { at } else { line_end(bytes, end, ended)?? };
                        return Some(Record { len, cells, last: (start, end) });
                    }
                    start = at;
                }
                // A record that begins has an end before it.
                ReadFieldResult::End => return Some(Record { len: at, cells, last: (start, at) }),
            }
        }
    }

    pub(super) fn header(&self, raw: &[u8], out: &mut Vec<u8>) {
        let Output::Appended(name) = &self.output else { return out.extend_from_slice(raw) };
        let content = raw.iter().rev().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let end = raw.len() - content;
        let styled = self.quoting && raw[..end].ends_with(b"\"");
        let place = Place { at: end..end, delimiters: 1, styled, alone: false };
        out.extend_from_slice(&raw[..end]);
        self.cell(&place, name, out);
        out.extend_from_slice(&raw[end..]);
    }

    pub(super) fn read_row(
        &mut self,
        bytes: &[u8],
        ended: bool,
        texts: &mut String,
    ) -> Option<Row> {
        if self.quoting {
            self.read_quoted(bytes, ended, texts)
        } else {
            self.read_line(bytes, ended, texts)
        }
    }

    fn read_quoted(&mut self, bytes: &[u8], ended: bool, texts: &mut String) -> Option<Row> {
        let (mut source, mut output) = (None, None);
        let mut text = Vec::new();
        let (from, to) = (self.source, self.replaced());
        let record = Self::scan(&mut self.reader, bytes, ended, |index, range, part| {
            if index == from {
                text.extend_from_slice(part);
                source = Some(range.clone());
            }
            if Some(index) == to {
                output = Some(range);
            }
        })?;
        if record.cells == 0 {
            return Some(Row { len: record.len, source: Source::Absent, place: None });
        }
        let last = &bytes[record.last.0..record.last.1];
        let quotes = last.iter().filter(|&&byte| byte == b'"').count();
        if record.len == record.last.1 && last.starts_with(b"\"") && quotes % 2 == 1 {
            let source =
                Source::Failed("the input ends in a cell whose quote is not closed".to_owned());
            return Some(Row { len: record.len, source, place: None });
        }
        let styled = source.as_ref().is_some_and(|range| bytes[range.clone()].starts_with(b"\""));
        let source = source.map(|_| &text[..]);
        Some(self.row(record, source, output, styled, texts))
    }

    fn read_line(&self, bytes: &[u8], ended: bool, texts: &mut String) -> Option<Row> {
        let (content, len) = line(bytes, ended)?;
        if content == 0 {
            return Some(Row { len, source: Source::Absent, place: None });
        }
        let (mut source, mut output) = (None, None);
        let (mut start, mut cells) = (0, 0);
        let mut last = (0, 0);
        for cell in bytes[..content].split(|&byte| byte == self.delimiter) {
            last = (start, start + cell.len());
            if cells == self.source {
                source = Some(cell);
            }
            if Some(cells) == self.replaced() {
                output = Some(last.0..last.1);
            }
            cells += 1;
            start = last.1 + 1;
        }
        Some(self.row(Record { len, cells, last }, source, output, false, texts))
    }

    fn replaced(&self) -> Option<usize> {
        match self.output {
            Output::Replaced(index) => Some(index),
            Output::Appended(_) => None,
        }
    }

    /// The row of a record with cells, of which `source` and `output` are those of the columns.
    fn row(
        &self,
        record: Record,
        source: Option<&[u8]>,
        output: Option<Range<usize>>,
        styled: bool,
        texts: &mut String,
    ) -> Row {
        let (cells, end) = (record.cells, record.last.1);
        let place = match (output, &self.output) {
            (Some(at), _) => Place { at, delimiters: 0, styled, alone: cells == 1 },
            // A short row is filled up, so that the new cell is in its column.
            (None, Output::Replaced(index)) => {
                Place { at: end..end, delimiters: index + 1 - cells, styled, alone: false }
            }
            (None, Output::Appended(_)) => Place {
                at: end..end,
                delimiters: (self.columns + 1).saturating_sub(cells),
                styled,
                alone: false,
            },
        };
        if place.delimiters == 0 && matches!(self.output, Output::Appended(_)) {
            let columns = self.columns;
            let source = Source::Failed(format!("{cells} cells, the first row has {columns}"));
            return Row { len: record.len, source, place: None };
        }
        let source = match source.map(str::from_utf8) {
            Some(Ok(text)) => {
                let from = texts.len();
                texts.push_str(text);
                Source::Text(from..texts.len())
            }
            Some(Err(_)) => Source::Failed("the text is not UTF-8".to_owned()),
            None => {
                let column = self.source + 1;
                Source::Failed(format!("{cells} cells, the text is in column {column}"))
            }
        };
        Row { len: record.len, source, place: Some(place) }
    }

    pub(super) fn cell(&self, place: &Place, text: &str, out: &mut Vec<u8>) {
        out.resize(out.len() + place.delimiters, self.delimiter);
        if !self.quoting {
            // TSV cannot write these characters.
            let blank = |byte| if matches!(byte, b'\t' | b'\n' | b'\r') { b' ' } else { byte };
            return out.extend(text.bytes().map(blank));
        }
        let special = |byte| matches!(byte, b'"' | b'\n' | b'\r') || byte == self.delimiter;
        let blank = place.alone && text.is_empty();
        let quoted = place.styled || blank || text.bytes().any(special);
        if !quoted {
            return out.extend_from_slice(text.as_bytes());
        }
        out.push(b'"');
        for byte in text.bytes() {
            out.extend_from_slice(if byte == b'"' {
                b"\"\""
            } else {
                core::slice::from_ref(&byte)
            });
        }
        out.push(b'"');
    }
}

/// Lets the reader begin a record. At the begin of an input it would drop a byte order mark, which is dropped before it
/// here; after a line break it does not.
fn restart(reader: &mut Reader) {
    reader.reset();
    let _ = reader.read_field(b"\n", &mut [0]);
}

/// The end of the line end at `at`: `Some(None)` if there is none, `None` if the bytes after these decide.
fn line_end(bytes: &[u8], at: usize, ended: bool) -> Option<Option<usize>> {
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\n'), _) => Some(Some(at + 1)),
        (Some(b'\r'), Some(b'\n')) => Some(Some(at + 2)),
        (Some(b'\r'), None) if !ended => None,
        (Some(b'\r'), _) => Some(Some(at + 1)),
        _ => Some(None),
    }
}

/// The index of a column that is given by its name, or by its number from 1, if there is one.
fn column(names: &[String], columns: usize, wanted: &str) -> Result<Option<usize>, Error> {
    let mut same = names.iter().enumerate().filter(|(_, name)| *name == wanted);
    match (same.next(), same.next()) {
        (Some((index, _)), None) => return Ok(Some(index)),
        (Some(_), Some(_)) => {
            let found =
                format_args!("{wanted:?}, which two columns have: choose one by its number");
            return Err(Error::invalid_option("column", "the name of one column", found));
        }
        (None, _) => (),
    }
    let number = wanted.parse().ok().filter(|number| (1..=columns).contains(number));
    Ok(number.map(|number| number - 1))
}

/// The error of a column that the table does not have.
fn no_column(names: &[String], columns: usize, wanted: &str) -> Error {
    let listed: Vec<String> = names.iter().take(LISTED).map(|name| format!("{name:?}")).collect();
    let more = if listed.len() < columns { ", ..." } else { "" };
    let expected = match listed.is_empty() {
        true => format!("a number from 1 to {columns}"),
        false => format!("one that the header has ({}{more})", listed.join(", ")),
    };
    Error::invalid_option("column", expected, format_args!("{wanted:?}"))
}
