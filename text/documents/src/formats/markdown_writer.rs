//! Writes a changed segment of Markdown: on one line, with a backslash where a character would be markup.

use super::pieces::{Piece, pieces};
use super::tags::is_template_line;
use crate::marked_text::{Mark, MarkKind};
use std::ops::Range;

/// Where a segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    /// It begins a line.
    Block,
    Heading,
    /// `first`: it begins a line, because the row has no `|` there.
    Cell {
        first: bool,
    },
    /// It is the alternative text of an image.
    Inside {
        cell: bool,
    },
    /// It is a title, which ends in `quote`.
    Title {
        quote: char,
        cell: bool,
    },
}

/// Appends `text`, which has no line ends.
pub(super) fn write(
    text: &str,
    marks: &[Mark],
    context: Context,
    out: &mut String,
) -> Result<(), &'static str> {
    if let Context::Title { quote, cell } = context {
        for piece in pieces(text, marks)? {
            title(piece.as_str(), quote, cell, out);
        }
        return Ok(());
    }
    let marks = &tight(text, marks);
    let pieces = pieces(text, marks)?;
    let as_tags = unreadable(&pieces, marks.len());
    let link =
        marks.iter().any(|mark| matches!(&mark.kind, MarkKind::Wrap { open, .. } if open == "["));
    let count = |c: char| text.matches(c).count();
    let escapes = Escapes {
        context,
        tildes: count('~') > 1
            || marks.iter().any(
                |mark| matches!(&mark.kind, MarkKind::Wrap { open, .. } if open.starts_with('~')),
            ),
        dollars: count('$') > 1,
        double_brackets: !link && text.contains("[[") && text.contains("]]"),
    };
    for (index, piece) in pieces.iter().enumerate() {
        match *piece {
            Piece::Text(text) => {
                let next = pieces.get(index + 1).and_then(|next| next.as_str().chars().next());
                escapes.write(text, index == 0, next, index + 1 == pieces.len(), out);
            }
            Piece::Open(mark, open) => match tag(open).filter(|_| as_tags[mark]) {
                Some(name) => out.extend(["<", name, ">"]),
                None => out.push_str(open),
            },
            Piece::Close(mark, close) => match tag(close).filter(|_| as_tags[mark]) {
                Some(name) => out.extend(["</", name, ">"]),
                None => out.push_str(close),
            },
            Piece::Raw(raw) => out.push_str(raw),
        }
    }
    Ok(())
}

/// A title, in which only its quotation marks, entities and escapes are read.
fn title(text: &str, quote: char, cell: bool, out: &mut String) {
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let escaped = match c {
            '\\' => rest.as_str().chars().next().is_none_or(|c| c.is_ascii_punctuation()),
            '(' => quote == ')',
            '&' => is_entity(rest.as_str()),
            '|' => cell,
            c => c == quote,
        };
        out.extend(escaped.then_some('\\'));
        out.push(c);
    }
}

/// The element that a delimiter of emphasis stands for.
fn tag(delimiter: &str) -> Option<&'static str> {
    match delimiter {
        "*" | "_" => Some("em"),
        "**" | "__" => Some("strong"),
        "~" | "~~" => Some("del"),
        _ => None,
    }
}

/// The marks, with emphasis that has no white space at its ends: between such delimiters Markdown reads none. White space
/// of a kept piece, such as code, stays inside. An emphasis around nothing is left out.
fn tight(text: &str, marks: &[Mark]) -> Vec<Mark> {
    let kept: Vec<Range<usize>> = marks
        .iter()
        .filter(|mark| matches!(mark.kind, MarkKind::Keep { source: Some(_) }))
        .map(|mark| mark.range.clone())
        .collect();
    let mut marks = marks.to_vec();
    marks.retain_mut(|mark| match &mark.kind {
        MarkKind::Wrap { open, .. } if tag(open).is_some() => {
            let range = mark.range.clone();
            let Some(inside) = text.get(range.clone()) else { return true };
            let inner =
                || kept.iter().filter(|kept| range.start <= kept.start && kept.end <= range.end);
            let spaces = inside.len() - inside.trim_start().len();
            let begin = inner().map(|kept| kept.start).fold(range.start + spaces, usize::min);
            let spaces = inside.len() - inside.trim_end().len();
            let end = inner().map(|kept| kept.end).fold(range.end - spaces, usize::max);
            mark.range = begin..end.max(begin);
            !mark.range.is_empty()
        }
        _ => true,
    });
    marks
}

/// For each mark, whether it is an emphasis that Markdown would not read at its place (CommonMark, "Emphasis and strong
/// emphasis"): the begin must be left-flanking, the end right-flanking, and `_` not inside of a word.
fn unreadable(pieces: &[Piece], marks: usize) -> Vec<bool> {
    let mut unreadable = vec![false; marks];
    for (index, piece) in pieces.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|at| pieces.get(at));
        let after = pieces.get(index + 1);
        let last = before.and_then(|piece| piece.as_str().chars().next_back());
        let next = after.and_then(|piece| piece.as_str().chars().next());
        let (mark, delimiter, outside, inside) = match *piece {
            Piece::Open(mark, delimiter) => (mark, delimiter, last, next),
            Piece::Close(mark, delimiter) => (mark, delimiter, next, last),
            _ => continue,
        };
        if tag(delimiter).is_none() {
            continue;
        }
        let flanks = inside.is_some_and(|c| {
            !c.is_whitespace()
                && (!is_punctuation(c)
                    || outside.is_none_or(|c| c.is_whitespace() || is_punctuation(c)))
        });
        let in_word = delimiter.starts_with('_') && outside.is_some_and(char::is_alphanumeric);
        // `*a**b*`: the delimiters would be read as one.
        let touches = matches!((piece, before), (Piece::Open(_, open), Some(Piece::Close(_, close)))
            if open.chars().next() == close.chars().next());
        if !flanks || in_word || touches {
            unreadable[mark] = true;
        }
    }
    unreadable
}

/// Punctuation and symbols: what is neither a letter, a digit, white space nor a combining character. Where this calls a
/// character punctuation that CommonMark does not, an emphasis becomes a tag, which is read everywhere.
fn is_punctuation(c: char) -> bool {
    !c.is_alphanumeric() && !c.is_whitespace()
}

struct Escapes {
    context: Context,
    /// A pair of them may be a deletion, or a formula.
    tildes: bool,
    dollars: bool,
    /// `[[page]]` is a link in many dialects.
    double_brackets: bool,
}

impl Escapes {
    /// `first`, `last`: whether the text begins or ends the segment. `follows` is what comes after it.
    fn write(&self, text: &str, first: bool, follows: Option<char>, last: bool, out: &mut String) {
        let cell = matches!(self.context, Context::Cell { .. } | Context::Inside { cell: true });
        let begins_line = match self.context {
            Context::Block | Context::Heading => true,
            Context::Cell { first } => first,
            Context::Inside { .. } | Context::Title { .. } => false,
        };
        let marker = if first && begins_line { block_marker(text) } else { None };
        let attributes = match self.context {
            Context::Heading if last => heading_attributes(text),
            _ => None,
        };
        let closing = self.context == Context::Heading && last && text.ends_with('#');
        let mut before: Option<char> = None;
        let mut address = false;
        for (at, c) in text.char_indices() {
            let rest = &text[at + c.len_utf8()..];
            let next = rest.chars().next();
            let space = |c: Option<char>| c.is_some_and(char::is_whitespace);
            let alone = space(before) && space(next);
            let in_word = before.is_some_and(char::is_alphanumeric)
                && next.is_some_and(char::is_alphanumeric);
            if c.is_whitespace() {
                address = false;
            } else if c == ':' && rest.starts_with("//") {
                address = true;
            }
            let escaped = match c {
                _ if marker == Some(at) || attributes == Some(at) => true,
                '\\' => next.is_none_or(|c| c.is_ascii_punctuation()),
                '`' => true,
                '*' => !alone,
                '_' => !alone && !in_word && !address,
                '~' => self.tildes && !alone && !address,
                '$' => self.dollars,
                '[' | ']' => !(self.double_brackets && (before == Some(c) || next == Some(c))),
                '<' => next.is_none_or(|c| c.is_ascii_alphabetic() || "/!?".contains(c)),
                '&' => is_entity(rest),
                '|' => cell,
                '!' => next.is_none() && follows == Some('['),
                '#' => closing && rest.is_empty(),
                _ => false,
            };
            if escaped && c == '\\' && cell {
                // A cell ends at a `|` unless a backslash is before it, whatever is before that.
                out.push_str("&#92;");
                before = Some(c);
                continue;
            }
            if escaped {
                out.push('\\');
            }
            out.push(c);
            before = Some(c);
        }
    }
}

/// Where a backslash keeps the begin of a line from being a heading, an item, a quotation, an underline, a table, a fence,
/// a definition or a line of template tags.
fn block_marker(text: &str) -> Option<usize> {
    let ends = |rest: &str| rest.chars().next().is_none_or(char::is_whitespace);
    let first = text.chars().next()?;
    match first {
        '#' => {
            let rest = text.trim_start_matches('#');
            (text.len() - rest.len() <= 6 && ends(rest)).then_some(0)
        }
        '>' | '=' | '|' => Some(0),
        '-' | '+' | ':' => {
            let rest = &text[1..];
            (ends(rest) || rest.starts_with([first, '-', '|', ':'])).then_some(0)
        }
        '~' => text.starts_with("~~~").then_some(0),
        '{' => is_template_line(text).then_some(0),
        '!' => text.starts_with("!!! ").then_some(0),
        '?' => text.starts_with("??? ").then_some(0),
        '0'..='9' => {
            let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
            let digits = text.len() - rest.len();
            (digits <= 9 && rest.starts_with(['.', ')']) && ends(&rest[1..])).then_some(digits)
        }
        _ => None,
    }
}

/// Where the attributes begin that a heading ends in: `{#name}` or `{.class}`.
pub(super) fn heading_attributes(text: &str) -> Option<usize> {
    let inside = text.strip_suffix('}')?;
    let at = inside.rfind('{')?;
    let found = inside[at + 1..].starts_with(['#', '.'])
        && !inside[at + 1..].contains(['}', '<', '>', '\\', '\n'])
        && !inside[..at].ends_with('\\');
    found.then_some(at)
}

/// Whether `&` and this begin an entity.
fn is_entity(rest: &str) -> bool {
    let name = rest.strip_prefix('#').unwrap_or(rest);
    let end = name.bytes().take(33).position(|byte| !byte.is_ascii_alphanumeric());
    matches!(end, Some(end) if end > 0 && name.as_bytes()[end] == b';')
}
