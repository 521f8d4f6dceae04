//! Reads the strings of JSON that are values. A line of a string is a segment; of an ICU message, its texts are.

use super::icu;
use super::inline::{Inline, WhiteSpace};
use super::places::{Places, Writing};
use super::{DocumentError, Format};
use std::ops::Range;

/// Finds the strings. Nothing else of the syntax is checked: what is between strings is not changed.
pub(super) fn parse(source: &str, start: usize, places: &mut Places) -> Result<(), DocumentError> {
    let bytes = source.as_bytes();
    let ascii = source.is_ascii() && source.contains("\\u");
    let mut inline = Inline::new(source);
    let mut at = start;
    while let Some(quote) = bytes[at..].iter().position(|&byte| byte == b'"') {
        let begin = at + quote + 1;
        let Some(end) = string_end(bytes, begin) else {
            let line = 1 + bytes[..begin].iter().filter(|&&byte| byte == b'\n').count();
            let expected = "the quotation mark that ends the string";
            return Err(DocumentError::Syntax { format: Format::Json, line, expected });
        };
        at = end + 1;
        check_escapes(&source[begin..end]).map_err(|(escape, expected)| {
            let before = &bytes[..begin + escape];
            let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
            DocumentError::Syntax { format: Format::Json, line, expected }
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
    if icu::read(source, range.clone(), ascii, inline, places) {
        return;
    }
    let mut end_segment = |inline: &mut Inline| {
        if let Some(found) = inline.finish() {
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

/// The error says where an escape is that stands for no character, and what was expected.
fn check_escapes(string: &str) -> Result<(), (usize, &'static str)> {
    let mut at = 0;
    while let Some(length) = string.get(at..).and_then(|rest| rest.find('\\')) {
        at += length;
        let rest = &string[at..];
        let Some((_, length)) = decode(rest) else {
            let digits = rest.strip_prefix("\\u").and_then(|digits| digits.get(..4));
            let unit = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
            let half = unit.is_some_and(|unit| (0xd800..0xe000).contains(&unit));
            return Err(match half {
                true => (at, "both halves of a surrogate pair (\\ud800 to \\udfff)"),
                false => (at, "an escape of JSON after the backslash"),
            });
        };
        at += length;
    }
    Ok(())
}

/// The character of the escape that `text` begins with, and the length of the escape.
pub(super) fn decode(text: &str) -> Option<(char, usize)> {
    let c = match text.as_bytes().get(1)? {
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'u' => {
            let unit = |at: usize| {
                let digits =
                    text.get(at..at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
                u16::from_str_radix(digits, 16).ok()
            };
            let first = unit(2)?;
            if let Some(c) = char::from_u32(u32::from(first)) {
                return Some((c, 6));
            }
            let second = unit(8).filter(|_| text.get(6..8) == Some("\\u"))?;
            return Some((char::decode_utf16([first, second]).next()?.ok()?, 12));
        }
        byte @ (b'"' | b'\\' | b'/') => char::from(*byte),
        _ => return None,
    };
    Some((c, 2))
}
