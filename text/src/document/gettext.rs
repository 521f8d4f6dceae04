//! Reads the message catalogs of gettext (`.po`, `.pot`).
//!
//! A message without a translation is a segment, and its place is the empty `msgstr`. Of a message with plural forms, the
//! first form is translated from `msgid` and the others from `msgid_plural`. A line end within a message is a point, so that
//! the translation has as many.

use super::inline::{Inline, WhiteSpace};
use super::places::{Places, Writing, lines};
use super::{DocumentError, Format};
use std::mem;
use std::ops::Range;

/// A message: the insides of its strings.
#[derive(Default)]
struct Message {
    id: Vec<Range<usize>>,
    plural: Vec<Range<usize>>,
    translations: Vec<Vec<Range<usize>>>,
}

/// The string that a line continues.
enum Part {
    Context,
    Id,
    Plural,
    Translation,
}

/// Finds the messages.
pub(super) fn parse(source: &str, start: usize, places: &mut Places) -> Result<(), DocumentError> {
    let mut message = Message::default();
    let mut part = Part::Context;
    let mut inline = Inline::new(source);
    for (number, line) in lines(source, start).into_iter().enumerate() {
        let text = source[line.clone()].trim_end();
        let (keyword, rest) = match text.find('"') {
            Some(quote) if !text.trim_start().starts_with('#') => text.split_at(quote),
            _ => continue,
        };
        let keyword = keyword.trim();
        match keyword {
            "" => {}
            "msgctxt" | "msgid" => {
                if !message.translations.is_empty() {
                    segments(source, &mem::take(&mut message), &mut inline, places);
                }
                part = if keyword == "msgid" { Part::Id } else { Part::Context };
            }
            "msgid_plural" => part = Part::Plural,
            _ if keyword == "msgstr" || keyword.starts_with("msgstr[") => {
                message.translations.push(Vec::new());
                part = Part::Translation;
            }
            _ => continue,
        }
        let begin = line.start + text.len() - rest.len() + 1;
        let end = line.start + text.len() - 1;
        if begin > end || !text.ends_with('"') {
            let expected = "the quotation mark that ends the string";
            return Err(DocumentError::Syntax {
                format: Format::Gettext,
                line: number + 1,
                expected,
            });
        }
        match part {
            Part::Context => {}
            Part::Id => message.id.push(begin..end),
            Part::Plural => message.plural.push(begin..end),
            Part::Translation => {
                if let Some(strings) = message.translations.last_mut() {
                    strings.push(begin..end);
                }
            }
        }
    }
    segments(source, &message, &mut inline, places);
    Ok(())
}

/// The segments of a message that is not translated. The header has an empty `msgid`, so it is none.
fn segments(source: &str, message: &Message, inline: &mut Inline, places: &mut Places) {
    for (index, strings) in message.translations.iter().enumerate() {
        let (Some(first), Some(last)) = (strings.first(), strings.last()) else { continue };
        if strings.iter().any(|string| !string.is_empty()) {
            continue;
        }
        let id =
            if index > 0 && !message.plural.is_empty() { &message.plural } else { &message.id };
        let mut lines_before = 0;
        let mut lines_after = 0;
        let mut text = false;
        for string in id {
            let mut at = string.start;
            while at < string.end {
                let rest = &source[at..string.end];
                let plain = rest.find('\\').unwrap_or(rest.len());
                if plain > 0 {
                    inline.raw(at..at + plain, WhiteSpace::Preserve);
                    (text, lines_after) = (true, 0);
                    at += plain;
                    continue;
                }
                let character = rest[1..].chars().next();
                let end = at + 1 + character.map_or(0, char::len_utf8);
                match character {
                    Some('n') => {
                        if !text {
                            lines_before += 1;
                        }
                        lines_after += 1;
                        inline.line_break(at..at);
                        inline.hidden(at..end);
                    }
                    _ => {
                        let decoded = match character {
                            Some('t') => "\t",
                            Some('"') => "\"",
                            Some('\\') => "\\",
                            _ => &source[at..end],
                        };
                        inline.decoded(at..end, decoded);
                        (text, lines_after) = (true, 0);
                    }
                }
                at = end;
            }
        }
        if let Some((_, segment)) = inline.finish() {
            // With their quotation marks: the string may be empty.
            let range = first.start - 1..last.end + 1;
            places.push(range, segment, Writing::Gettext { lines_before, lines_after });
        }
    }
}
