//! Rows of JSON lines. Only the value of one key is written; the other bytes of the line stay as they are.

use super::table::{APPENDED, Place, Row, Source, Table, line};
use core::ops::Range;
use serde_core::Deserialize;
use serde_core::de::IgnoredAny;

/// The keys of a table of JSON lines.
#[derive(Debug)]
pub(super) struct JsonLines {
    source: String,
    output: String,
    /// Whether the output key may be in the objects.
    replaces: bool,
}

/// What an object has.
#[derive(Debug, Default)]
struct Object {
    /// The value of the source's key, the last one if there are more, as most readers do.
    source: Option<Range<usize>>,
    /// The value of the output's key.
    output: Option<Range<usize>>,
    /// Where the last value ends; 0 if there is none.
    end: usize,
    /// Whether a space comes after the first colon.
    spaces: bool,
}

impl JsonLines {
    pub(super) fn new(table: &Table) -> Self {
        Self {
            source: table.source.clone(),
            output: table.output.clone().unwrap_or_else(|| APPENDED.to_owned()),
            replaces: table.output.is_some(),
        }
    }

    pub(super) fn read_row(&self, bytes: &[u8], ended: bool, texts: &mut String) -> Option<Row> {
        let (content, len) = line(bytes, ended)?;
        let content = &bytes[..content];
        if content.trim_ascii().is_empty() {
            return Some(Row { len, source: Source::Absent, place: None });
        }
        let failed = |reason| Row { len, source: Source::Failed(reason), place: None };
        let Ok(text) = str::from_utf8(content) else {
            return Some(failed("the line is not UTF-8".to_owned()));
        };
        Some(match self.object(text) {
            Ok(object) => self.row(text, len, &object, texts),
            Err(reason) => failed(reason),
        })
    }

    fn row(&self, text: &str, len: usize, object: &Object, texts: &mut String) -> Row {
        let (at, delimiters) = match &object.output {
            Some(_) if !self.replaces => {
                let key = &self.output;
                let reason = format!("the object has a key {key:?}; name it to replace its value");
                return Row { len, source: Source::Failed(reason), place: None };
            }
            Some(at) => (at.clone(), 0),
            None => (object.end..object.end, 1),
        };
        let source = match object.source.clone().map(|at| &text[at]) {
            None => Source::Failed(format!("the object has no key {:?}", self.source)),
            Some("null") => Source::Null,
            Some(value) => match serde_json::from_str::<String>(value) {
                Ok(value) => {
                    let from = texts.len();
                    texts.push_str(&value);
                    Source::Text(from..texts.len())
                }
                Err(error) => Source::Failed(format!(
                    "the value of {:?}: {}",
                    self.source,
                    without_position(&error)
                )),
            },
        };
        let place = Place { at, delimiters, styled: object.spaces, alone: false };
        // An empty object has no source and gets no text.
        Row { len, source, place: (object.end > 0).then_some(place) }
    }

    /// Finds the keys in the object of a line.
    fn object(&self, line: &str) -> Result<Object, String> {
        let mut cursor = Cursor { line, at: 0 };
        let mut object = Object::default();
        cursor.expect("{")?;
        if !cursor.next_is("}") {
            let mut first = true;
            loop {
                let (key, _) = cursor.value::<String>()?;
                cursor.expect(":")?;
                if first {
                    object.spaces = line[cursor.at..].starts_with(' ');
                    first = false;
                }
                let (_, range) = cursor.value::<IgnoredAny>()?;
                object.end = range.end;
                if key == self.source {
                    object.source = Some(range.clone());
                }
                if key == self.output {
                    object.output = Some(range);
                }
                if !cursor.next_is(",") {
                    break;
                }
            }
            cursor.expect("}")?;
        }
        match cursor.rest().is_empty() {
            true => Ok(object),
            false => Err(format!("expected the end of the line at byte {}", cursor.at)),
        }
    }

    pub(super) fn cell(&self, place: &Place, text: Option<&str>, out: &mut Vec<u8>) {
        if place.delimiters > 0 {
            out.extend_from_slice(if place.styled { b", " } else { b"," });
            string(&self.output, out);
            out.extend_from_slice(if place.styled { b": " } else { b":" });
        }
        match text {
            Some(text) => string(text, out),
            None => out.extend_from_slice(b"null"),
        }
    }
}

/// A JSON string.
fn string(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
}

/// A position in a line.
struct Cursor<'l> {
    line: &'l str,
    at: usize,
}

impl<'l> Cursor<'l> {
    /// What comes after the blanks.
    fn rest(&mut self) -> &'l str {
        let rest = self.line[self.at..].trim_start_matches([' ', '\t', '\n', '\r']);
        self.at = self.line.len() - rest.len();
        rest
    }

    /// Passes over `token` if it comes next.
    fn next_is(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        match self.next_is(token) {
            true => Ok(()),
            false => Err(format!("not a JSON object: expected {token:?} at byte {}", self.at)),
        }
    }

    /// The next value and its range.
    fn value<T: Deserialize<'l>>(&mut self) -> Result<(T, Range<usize>), String> {
        let rest = self.rest();
        let start = self.at;
        let mut values = serde_json::Deserializer::from_str(rest).into_iter();
        match values.next() {
            Some(Ok(value)) => {
                self.at += values.byte_offset();
                Ok((value, start..self.at))
            }
            Some(Err(error)) => {
                let at = start + error.column();
                Err(format!("not a JSON object: {} at byte {at}", without_position(&error)))
            }
            None => Err(format!("not a JSON object: it ends at byte {start}")),
        }
    }
}

/// What an error says without its position, which counts from the begin of a value.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(&*text, |(reason, _)| reason).to_owned()
}
