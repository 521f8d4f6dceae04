//! Reads the message catalogs of gettext (`.po`, `.pot`).
//!
//! A message without a translation is a segment, and its place is the empty `msgstr`. Of a message with plural forms, the
//! first form is translated from `msgid` and the others from `msgid_plural`. A line end within a message is a point, so that
//! the translation has as many. White space at both ends is that of the message.

use super::Format;
use super::inline::{Found, Inline, WhiteSpace};
use super::places::{Places, Writing, lines};
use crate::error::Error;
use std::mem;
use std::ops::Range;

/// What is expected where a message ends that has no place for a translation.
const WITHOUT_TRANSLATION: &str = "msgstr of the message before";

/// The most plural forms of a message. Arabic has six.
const FORMS: usize = 16;

/// A message: the insides of its strings.
#[derive(Default)]
struct Message {
    id: Vec<Range<usize>>,
    plural: Vec<Range<usize>>,
    /// For each `msgstr`, where its first string begins, where its last one ends, and whether all are empty.
    translations: Vec<(Range<usize>, bool)>,
}

/// The string that a line continues.
enum Part {
    Context,
    Id,
    Plural,
    Translation,
}

/// Finds the messages.
pub(super) fn parse(source: &str, start: usize, places: &mut Places) -> Result<(), Error> {
    let mut message = Message::default();
    let mut part = None;
    let mut inline = Inline::new(source);
    for (number, line) in lines(source, start).into_iter().enumerate() {
        let wrong = |expected| {
            let found: String = source[line.clone()].trim().chars().take(40).collect();
            Err(Format::Gettext.error(number + 1, expected, format_args!("{found:?}")))
        };
        let text = source[line.clone()].trim_end();
        if text.is_empty() || text.trim_start().starts_with('#') {
            continue;
        }
        let Some(quote) = text.find('"') else {
            return wrong("a comment, or a keyword and a string in quotation marks");
        };
        let (keyword, rest) = text.split_at(quote);
        let keyword = keyword.trim();
        match keyword {
            "" => {}
            "domain" => part = Some(Part::Context),
            "msgctxt" | "msgid" => {
                if !message.translations.is_empty() {
                    segments(source, &mem::take(&mut message), &mut inline, places);
                } else if !message.id.is_empty() {
                    return wrong(WITHOUT_TRANSLATION);
                }
                part = Some(if keyword == "msgid" { Part::Id } else { Part::Context });
            }
            "msgid_plural" => {
                if message.id.is_empty() || !message.plural.is_empty() {
                    return wrong("one msgid_plural, after msgid");
                }
                part = Some(Part::Plural);
            }
            _ if keyword.starts_with("msgstr") => {
                if message.id.is_empty() {
                    return wrong("msgid before msgstr");
                }
                if form(keyword) != Some(message.translations.len()) {
                    return wrong("one msgstr, or msgstr[0], msgstr[1], ... (at most 16)");
                }
                message.translations.push((0..0, true));
                part = Some(Part::Translation);
            }
            _ => return wrong("msgctxt, msgid, msgid_plural, msgstr, msgstr[N] or domain"),
        }
        let begin = line.start + text.len() - rest.len() + 1;
        let end = line.start + text.len() - 1;
        if begin > end || !is_one_string(&rest[1..]) {
            return wrong("the quotation mark that ends the string");
        }
        match part {
            None => return wrong("a keyword before the string"),
            Some(Part::Context) => {}
            Some(Part::Id) => message.id.push(begin..end),
            Some(Part::Plural) => message.plural.push(begin..end),
            Some(Part::Translation) => {
                if let Some((range, empty)) = message.translations.last_mut() {
                    // With the quotation marks: the string may be empty.
                    range.start = if range.end == 0 { begin - 1 } else { range.start };
                    range.end = end + 1;
                    *empty &= begin == end;
                }
            }
        }
    }
    if message.translations.is_empty() && !message.id.is_empty() {
        let line = 1 + source.lines().count();
        return Err(Format::Gettext.error(line, WITHOUT_TRANSLATION, "the end"));
    }
    segments(source, &message, &mut inline, places);
    Ok(())
}

/// The number of the plural form that a keyword begins: `msgstr`, `msgstr[1]`.
fn form(keyword: &str) -> Option<usize> {
    let index = keyword.strip_prefix("msgstr")?.trim_start();
    if index.is_empty() {
        return Some(0);
    }
    let index = index.strip_prefix('[')?.strip_suffix(']')?.trim();
    index.parse().ok().filter(|&form| form < FORMS)
}

/// Whether a string, without its first quotation mark, ends at its next one that is not escaped, and nothing follows.
fn is_one_string(rest: &str) -> bool {
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1 == rest.len(),
            _ => {}
        }
    }
    false
}

/// The segments of a message that is not translated. The header has an empty `msgid`, so it is none.
fn segments(source: &str, message: &Message, inline: &mut Inline, places: &mut Places) {
    for (index, (range, empty)) in message.translations.iter().enumerate() {
        if !empty {
            continue;
        }
        let plural = index > 0 && !message.plural.is_empty();
        let id = if plural { &message.plural } else { &message.id };
        let (before, after) = read_strings(source, id, inline);
        if let Some(found) = inline.finish(false) {
            let found = Found { range: range.clone(), ..found };
            places.push(found, Writing::Gettext(Box::new([before, after])));
        }
    }
}

/// Reads the strings of a message; returns the white space at both ends, as it is escaped.
fn read_strings(source: &str, strings: &[Range<usize>], inline: &mut Inline) -> (String, String) {
    let (mut before, mut after) = (String::new(), String::new());
    let mut text = false;
    let mut white = |raw: &str, is_white: bool| {
        if !is_white {
            text = true;
            after.clear();
        } else if text {
            after.push_str(raw);
        } else {
            before.push_str(raw);
        }
    };
    for string in strings {
        let mut at = string.start;
        while at < string.end {
            let rest = &source[at..string.end];
            let plain = rest.find('\\').unwrap_or(rest.len());
            if plain > 0 {
                let raw = &rest[..plain];
                inline.raw(at..at + plain, WhiteSpace::Preserve);
                let begin = raw.len() - raw.trim_start().len();
                white(&raw[..begin], true);
                if begin < raw.len() {
                    white("", false);
                    white(&raw[raw.trim_end().len()..], true);
                }
                at += plain;
                continue;
            }
            let length = escape(rest);
            let end = at + length;
            let raw = &rest[..length];
            match raw {
                "\\n" => inline.marked_break(at..end),
                "\\t" => inline.decoded(at..end, "\t"),
                "\\\"" => inline.decoded(at..end, "\""),
                "\\\\" => inline.decoded(at..end, "\\"),
                // A control character, or a character by its number.
                _ => inline.hidden(at..end),
            }
            white(raw, matches!(raw, "\\n" | "\\t" | "\\r" | "\\f" | "\\v"));
            at = end;
        }
    }
    (before, after)
}

/// The length of the escape that `text` begins with: a character, three octal digits or hexadecimal ones.
fn escape(text: &str) -> usize {
    let digits = |from: usize, most: usize, is: fn(&u8) -> bool| {
        text.bytes().skip(from).take(most).take_while(is).count()
    };
    match text[1..].chars().next() {
        Some('x') => 2 + digits(2, text.len(), u8::is_ascii_hexdigit),
        Some('0'..='7') => 1 + digits(1, 3, |byte| (b'0'..=b'7').contains(byte)),
        character => 1 + character.map_or(0, char::len_utf8),
    }
}
