//! Reads the strings of JSON that are values. A line of a string is a segment; of an ICU message, its texts are.

use super::Format;
use super::icu;
use super::inline::{Inline, WhiteSpace};
use super::json_escapes::{check, decode};
use super::places::{Places, Writing};
use crate::error::Error;
use std::ops::Range;

/// Finds the strings. Nothing else of the syntax is checked: what is between strings is not changed.
pub(super) fn parse(source: &str, start: usize, places: &mut Places) -> Result<(), Error> {
    let bytes = source.as_bytes();
    let ascii = source.is_ascii() && source.contains("\\u");
    let mut inline = Inline::new(source);
    let mut at = start;
    while let Some(quote) = bytes[at..].iter().position(|&byte| byte == b'"') {
        let begin = at + quote + 1;
        let Some(end) = string_end(bytes, begin) else {
            let line = 1 + bytes[..begin].iter().filter(|&&byte| byte == b'\n').count();
            let expected = "the quotation mark that ends the string";
            return Err(Format::Json.error(line, expected, "none"));
        };
        at = end + 1;
        check(&source[begin..end]).map_err(|(escape, expected)| {
            let before = &bytes[..begin + escape];
            let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
            let found = source[begin + escape..end].chars().take(6);
            Format::Json.error(line, expected, found.collect::<String>())
        })?;
        let is_key = bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
        if !is_key {
            string(source, begin..end, ascii, &mut inline, places);
        }
    }
    Ok(())
}

/// Where the quotation mark stands that ends the string.
fn string_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\n' => return None,
            // A line feed is not a part of an escape.
            b'\\' if bytes.get(at + 1) != Some(&b'\n') => at += 2,
            _ => at += 1,
        }
    }
}

fn string(
    source: &str,
    range: Range<usize>,
    ascii: bool,
    inline: &mut Inline,
    places: &mut Places,
) {
    if icu::read_message(source, range.clone(), ascii, inline, places) {
        return;
    }
    let mut end_segment = |inline: &mut Inline| {
        if let Some(found) = inline.finish(false) {
            places.push(found, Writing::Json { ascii });
        }
    };
    let mut at = range.start;
    while let Some(length) = source.get(at..range.end).and_then(|rest| rest.find('\\')) {
        inline.raw(at..at + length, WhiteSpace::Preserve);
        let escape = at + length;
        match decode(&source[escape..range.end]) {
            Some(('\n' | '\r', length)) => {
                end_segment(inline);
                at = escape + length;
            }
            Some((c, length)) => {
                at = escape + length;
                inline.decoded(escape..at, c.encode_utf8(&mut [0; 4]));
            }
            // Every escape was checked.
            None => at = range.end,
        }
    }
    inline.raw(at..range.end, WhiteSpace::Preserve);
    end_segment(inline);
}
