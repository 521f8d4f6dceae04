//! Finds the pieces of a text that a translation must keep: placeholders, addresses, code.

use super::{Mark, MarkKind, MarkedText, scripts};
use regex::Regex;
use std::cmp::Reverse;
use std::ops::Range;

/// The longest placeholder in bytes. A scanner reads at most this much after a character that may begin one, so the time
/// is linear in the text.
const LONGEST: usize = 256;
/// The longest message with cases, `{n, plural, one {# file} other {# files}}`.
const LONGEST_MESSAGE: usize = 1024;
/// The deepest braces in such a message.
const DEEPEST: usize = 16;

/// Adds a [`Keep`](MarkKind::Keep) for each placeholder, address and piece of code in the text, and for each match of
/// `keep`. Their numbers follow the largest one of the text.
///
/// | what | examples |
/// |---|---|
/// | names in braces | `{name}`, `{0:N2}`, `{}`, `{{ user.name }}`, `${name}`, `%{name}`, `{% if x %}`, `{n, plural, one {# file} other {# files}}` |
/// | formats of printf | `%s`, `%1$d`, `%.2f`, `%(name)s`, `%@`, `%%` |
/// | tags | `<x/>`, `<0>`, `</0>`, `<a href="x">` |
/// | addresses | `https://example.org/a?b=c`, `www.example.org`, `me@example.org` |
/// | code | text between backquotes, `max_size`, `open()`, `&nbsp;` |
///
/// A percentage is not a format: `100%`, `50 % of`, `20%off`. Of matches that overlap, the first one is used, of those with
/// one start the longest. A match inside a kept piece of the text, or with one inside of it, is not used, nor is one that
/// a wrap of the text cuts. Other marks may lie inside a match.
///
/// The time is linear in the text, except for the patterns of the caller: those of the crate `regex` take linear time for
/// each match.
///
/// ```
/// use simdformer_text::marked_text::{MarkedText, Regex, placeholders};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let text = "Save 50 % of {count} files at Acme, see https://example.org.";
/// let found = placeholders(&MarkedText { text: text.into(), marks: Vec::new() }, &[Regex::new("Acme")?]);
/// let found: Vec<&str> = found.marks.iter().map(|mark| &text[mark.range.clone()]).collect();
/// assert_eq!(found, ["{count}", "Acme", "https://example.org"]);
/// # Ok(()) }
/// ```
#[must_use]
pub fn placeholders(source: &MarkedText, keep: &[Regex]) -> MarkedText {
    let mut found = scan(&source.text);
    for pattern in keep {
        found.extend(pattern.find_iter(&source.text).map(|found| found.range()));
    }
    found.retain(|range| !range.is_empty());
    found.sort_unstable_by_key(|range| (range.start, Reverse(range.end)));
    let existing = Existing::new(source);
    let (mut at, mut next) =
        (0, source.marks.iter().map(|mark| mark.id.saturating_add(1)).max().unwrap_or(0));
    let mut marks = Vec::with_capacity(source.marks.len() + found.len());
    let mut old = source.marks.iter().peekable();
    for range in found {
        if range.start < at || !existing.allow(&range) {
            continue;
        }
        at = range.end;
        // Of two marks that begin at one place, the outer one is first. A point there is before the piece.
        let first = |mark: &&Mark| {
            let (start, end) = (mark.range.start, mark.range.end);
            start < range.start || (start == range.start && (end >= range.end || end == start))
        };
        while let Some(mark) = old.next_if(first) {
            marks.push(mark.clone());
        }
        marks.push(Mark { range, kind: MarkKind::Keep { source: None }, id: next });
        next += 1;
    }
    marks.extend(old.cloned());
    MarkedText { text: source.text.clone(), marks }
}

/// The marks that a text has, sorted for searches.
struct Existing<'m> {
    by_start: Vec<&'m Mark>,
    by_end: Vec<&'m Mark>,
    keeps: Vec<&'m Mark>,
}

impl<'m> Existing<'m> {
    fn new(text: &'m MarkedText) -> Self {
        let mut by_start: Vec<&Mark> =
            text.marks.iter().filter(|mark| !mark.range.is_empty()).collect();
        let mut by_end = by_start.clone();
        by_start.sort_by_key(|mark| mark.range.start);
        by_end.sort_by_key(|mark| mark.range.end);
        let keeps = by_end.iter().copied().filter(|mark| is_keep(mark)).collect();
        Self { by_start, by_end, keeps }
    }

    /// Whether a piece may be there: no kept piece overlaps it, and no wrap begins or ends in it and has its other end
    /// outside.
    fn allow(&self, piece: &Range<usize>) -> bool {
        let from = self.by_start.partition_point(|mark| mark.range.start < piece.start);
        let mut beginning =
            self.by_start[from..].iter().take_while(|mark| mark.range.start < piece.end);
        let from = self.by_end.partition_point(|mark| mark.range.end <= piece.start);
        let mut ending = self.by_end[from..].iter().take_while(|mark| mark.range.end <= piece.end);
        // Kept pieces are disjoint, so one that covers the place is the first that ends after it.
        let after = self.keeps.partition_point(|mark| mark.range.end <= piece.start);
        let covered = self.keeps.get(after).is_some_and(|mark| mark.range.start < piece.end);
        !covered
            && !beginning.any(|mark| mark.range.end > piece.end && mark.range.start > piece.start)
            && !ending.any(|mark| mark.range.start < piece.start && mark.range.end < piece.end)
    }
}

fn is_keep(mark: &Mark) -> bool {
    matches!(mark.kind, MarkKind::Keep { .. })
}

/// Every match of every scanner; they may overlap.
fn scan(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let piece = match bytes[at] {
            b'{' => braces(bytes, at),
            b'%' => format(bytes, at, found.last().map_or(0, |last| last.end)),
            b'<' => tag(bytes, at),
            b'&' => entity(bytes, at),
            b'`' => quoted(bytes, at),
            b':' => url(text, at),
            b'w' | b'W' => www(text, at),
            b'@' => mail(bytes, at),
            b'_' => identifier(bytes, at),
            b'(' => call(bytes, at),
            _ => None,
        };
        match piece {
            Some(piece) => {
                at = piece.end.max(at + 1);
                found.push(piece);
            }
            None => at += 1,
        }
    }
    found
}

/// The end of the first `end` in the [`LONGEST`] bytes from `from`, on one line and before a byte `stop`.
fn closed(bytes: &[u8], from: usize, end: &[u8], stop: u8) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let rest = &rest[..rest.len().min(LONGEST)];
    let ends = |byte: &u8| *byte == stop || *byte == b'\n';
    let inside = rest.iter().position(ends).unwrap_or(rest.len());
    let found = rest[..inside].windows(end.len()).position(|window| window == end)?;
    Some(from + found + end.len())
}

/// The number of bytes from `from` that are `like`, at most [`LONGEST`].
fn run(bytes: &[u8], from: usize, like: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    rest.iter().take(LONGEST).take_while(|&&byte| like(byte)).count()
}

/// The number of bytes before `to` that are `like`, at most [`LONGEST`].
fn run_before(bytes: &[u8], to: usize, like: impl Fn(u8) -> bool) -> usize {
    bytes[..to].iter().rev().take(LONGEST).take_while(|&&byte| like(byte)).count()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// `{name}`, `{{ name }}`, `${name}`, `%{name}`, `#{name}`, `@{name}`, `{% if %}`, messages with cases.
fn braces(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let prefixed = at > 0 && matches!(bytes[at - 1], b'$' | b'%' | b'#' | b'@');
    let start = at - usize::from(prefixed);
    if bytes.get(at + 1) == Some(&b'%') {
        return Some(at..closed(bytes, at + 2, b"%}", b'{')?);
    }
    let count = bytes[at..].iter().take(3).take_while(|&&byte| byte == b'{').count();
    for count in (2..=count).rev() {
        if let Some(end) = closed(bytes, at + count, &b"}}}"[..count], b'{') {
            return Some(start..end);
        }
    }
    if let Some(end) = closed(bytes, at + 1, b"}", b'{') {
        let inside = bytes[at + 1..end - 1].trim_ascii();
        if !inside.iter().any(u8::is_ascii_whitespace) {
            return Some(start..end);
        }
    }
    Some(start..message(bytes, at)?)
}

/// The end of `{name, type, ...}`, where the last part may have braces.
fn message(bytes: &[u8], at: usize) -> Option<usize> {
    const TYPES: [&[u8]; 9] = [
        b"plural",
        b"select",
        b"selectordinal",
        b"number",
        b"date",
        b"time",
        b"spellout",
        b"ordinal",
        b"duration",
    ];
    let space = |from: usize| from + run(bytes, from, |byte| byte == b' ');
    let name = space(at + 1);
    let comma = space(name + run(bytes, name, |byte| is_word(byte) || byte == b'.'));
    if comma == name || bytes.get(comma) != Some(&b',') {
        return None;
    }
    let kind = space(comma + 1);
    let kind = &bytes[kind..kind + run(bytes, kind, |byte| byte.is_ascii_lowercase())];
    if !TYPES.contains(&kind) {
        return None;
    }
    let mut depth = 0;
    for (end, byte) in bytes.iter().enumerate().skip(at).take(LONGEST_MESSAGE) {
        match byte {
            b'{' if depth == DEEPEST => return None,
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(end + 1),
            b'}' => depth -= 1,
            _ => (),
        }
    }
    None
}

/// `%s`, `%1$d`, `%.2f`, `%(name)s`, `%<name>d`, `%@`, `%%`; not a percentage. `last` is the end of the piece before.
fn format(bytes: &[u8], at: usize, last: usize) -> Option<Range<usize>> {
    let mut end = at + 1;
    match bytes.get(end)? {
        b'%' => return Some(at..at + 2),
        b'(' | b'<' => {
            let close = if bytes[end] == b'(' { b')' } else { b'>' };
            let name = run(bytes, end + 1, |byte| is_word(byte) || byte == b'.' || byte == b'-');
            if name == 0 || bytes.get(end + 1 + name) != Some(&close) {
                return None;
            }
            end += name + 2;
            return conversion(bytes, end).map(|end| at..end);
        }
        _ => (),
    }
    let digits = run(bytes, end, |byte| byte.is_ascii_digit());
    if digits > 0 && bytes.get(end + digits) == Some(&b'$') {
        return conversion(bytes, end + digits + 1).map(|end| at..end);
    }
    end = conversion(bytes, end)?;
    let letter =
        |at: usize| bytes.get(at).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte >= 0x80);
    let before = |back: usize| at.checked_sub(back).filter(|&at| at >= last).map(|at| bytes[at]);
    let digit = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_digit());
    // `100%`, `100%of`; `50 %off`, with a no-break space too.
    let percentage = digit(before(1))
        || (letter(end) && digit(if before(1) == Some(0xa0) { before(3) } else { before(2) }));
    // `a%20b` of an address.
    let escape = digits > 0 && before(1).is_some_and(|byte| byte.is_ascii_alphabetic());
    (!percentage && !escape).then_some(at..end)
}

/// The end of the flags, the width, the precision, the length and the letter of a format. A space is a flag of printf, but
/// `100 % des` is more frequent.
fn conversion(bytes: &[u8], from: usize) -> Option<usize> {
    let digit = |byte: u8| byte.is_ascii_digit() || byte == b'*';
    let mut at = from + run(bytes, from, |byte| b"-+#0'".contains(&byte));
    at += run(bytes, at, digit);
    if bytes.get(at) == Some(&b'.') {
        at += 1 + run(bytes, at + 1, digit);
    }
    at += run(bytes, at, |byte| b"hlLqjzt".contains(&byte)).min(2);
    bytes.get(at).filter(|byte| b"diufFeEgGxXoscpaAn@b".contains(byte)).map(|_| at + 1)
}

/// `<x/>`, `<0>`, `</0>`, `<g id="1">`. Attributes have values, so that `a <b and c> d` is not a tag.
fn tag(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let name = at + 1 + usize::from(bytes.get(at + 1) == Some(&b'/'));
    let first = *bytes.get(name)?;
    let len = match first {
        b'0'..=b'9' => run(bytes, name, |byte| byte.is_ascii_digit()),
        _ if first.is_ascii_alphabetic() => {
            run(bytes, name, |byte| is_word(byte) || b":.-".contains(&byte))
        }
        _ => return None,
    };
    let end = closed(bytes, name + len, b">", b'<')?;
    let rest = bytes[name + len..end - 1].trim_ascii_end();
    let attributes = rest.strip_suffix(b"/").unwrap_or(rest).trim_ascii_end();
    let fits = match attributes {
        [] => true,
        [first, ..] => first.is_ascii_whitespace() && attributes.contains(&b'='),
    };
    fits.then_some(at..end)
}

/// `&nbsp;`, `&#160;`, `&#xA0;`.
fn entity(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let hash = usize::from(bytes.get(at + 1) == Some(&b'#'));
    let len = run(bytes, at + 1 + hash, |byte| byte.is_ascii_alphanumeric());
    let end = at + 1 + hash + len;
    ((2..=32).contains(&(len + hash)) && bytes.get(end) == Some(&b';')).then_some(at..end + 1)
}

/// Code between equal runs of backquotes.
fn quoted(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    if at > 0 && bytes[at - 1] == b'`' {
        return None;
    }
    let count = run(bytes, at, |byte| byte == b'`');
    let end = closed(bytes, at + count, &bytes[at..at + count], b'\n')?;
    (end > at + 2 * count).then_some(at..end)
}

/// An address with a scheme; `at` is its colon.
fn url(text: &str, at: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    if !bytes[at..].starts_with(b"://") {
        return None;
    }
    let scheme =
        run_before(bytes, at, |byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte))
            .min(16);
    let start = (at - scheme..at).find(|&start| bytes[start].is_ascii_alphabetic())?;
    let end = address_end(text, at + 3)?;
    Some(start..end)
}

/// `www.example.org/a`; `at` is the first letter.
fn www(text: &str, at: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let begins = bytes.get(at..at + 4)?.eq_ignore_ascii_case(b"www.");
    if !begins || (at > 0 && (is_word(bytes[at - 1]) || bytes[at - 1] >= 0x80)) {
        return None;
    }
    let end = address_end(text, at + 4)?;
    bytes[at + 4..end].contains(&b'.').then_some(at..end)
}

/// Where an address ends that continues at `from`: at a space, a bracket or quote that does not belong to it, or a letter
/// of a script without spaces; without punctuation at its end. `None` if nothing is left.
fn address_end(text: &str, from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    let ends = |letter: char| {
        letter.is_whitespace()
            || letter.is_control()
            || matches!(letter, '<' | '>' | '"' | '`' | '\\' | '^' | '|')
            || (!letter.is_ascii() && (!letter.is_alphanumeric() || scripts::is_spaceless(letter)))
    };
    let mut address = &rest[..rest.find(ends).unwrap_or(rest.len())];
    let mut balance = [(b'(', b')'), (b'[', b']'), (b'{', b'}')].map(|(open, close)| {
        let count = |wanted: u8| address.bytes().filter(|&byte| byte == wanted).count();
        (close, count(open), count(close))
    });
    while let Some(&last) = address.as_bytes().last() {
        let surplus =
            balance.iter_mut().find(|(close, opened, closed)| *close == last && closed > opened);
        match surplus {
            Some((_, _, closed)) => *closed -= 1,
            None if b".,;:!?'*_~".contains(&last) => (),
            None => break,
        }
        address = &address[..address.len() - 1];
    }
    (!address.is_empty()).then_some(from + address.len())
}

/// `me@example.org`; `at` is the sign.
fn mail(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let local = run_before(bytes, at, |byte| is_word(byte) || b".%+-'".contains(&byte)).min(64);
    let start = (at - local..at).find(|&start| is_word(bytes[start]))?;
    let part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let mut end = at + 1 + run(bytes, at + 1, part);
    let mut parts = 1;
    while parts < 16
        && bytes.get(end) == Some(&b'.')
        && bytes.get(end + 1).is_some_and(|&byte| part(byte))
    {
        end += 1 + run(bytes, end + 1, part);
        parts += 1;
    }
    let last = bytes[at + 1..end].rsplit(|&byte| byte == b'.').next().unwrap_or_default();
    let named = last.len() > 1 && last.iter().all(u8::is_ascii_alphabetic);
    (parts > 1 && named && part(bytes[at + 1])).then_some(start..end)
}

/// `max_size`, `MAX_SIZE`: an underscore between letters or digits, and the parentheses of a call.
fn identifier(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let alphanumeric = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
    if at == 0 || !alphanumeric(at - 1) || !alphanumeric(at + 1) {
        return None;
    }
    let start = at - run_before(bytes, at, is_word);
    let end = at + run(bytes, at, is_word);
    let other =
        |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(|&byte| byte >= 0x80);
    let call = if bytes[end..].starts_with(b"()") { 2 } else { 0 };
    (!other(start.checked_sub(1)) && !other(Some(end))).then_some(start..end + call)
}

/// `open()`; `at` is the parenthesis.
fn call(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    if bytes.get(at + 1) != Some(&b')') {
        return None;
    }
    let len = run_before(bytes, at, |byte| is_word(byte) || b".:".contains(&byte));
    let start = (at - len..at).find(|&start| is_word(bytes[start]))?;
    is_word(bytes[at - 1]).then_some(start..at + 2)
}
