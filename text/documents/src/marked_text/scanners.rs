//! Finds a placeholder, an address or a piece of code at one place of a text. Each function reads at most [`LONGEST`] bytes
//! (messages with cases more) from a character that may begin one, so the time of all of them is linear in the text.

use crate::scripts;
use std::ops::Range;

/// The longest placeholder in bytes.
const LONGEST: usize = 256;
/// The longest message with cases, `{n, plural, one {# file} other {# files}}`.
const LONGEST_MESSAGE: usize = 1024;
/// The deepest braces in such a message.
const DEEPEST: usize = 16;

/// A place of a text where a piece may begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'t> {
    pub(super) text: &'t str,
    /// The byte.
    pub(super) at: usize,
    /// The end of the piece before.
    pub(super) last: usize,
}

impl<'t> Place<'t> {
    pub(super) fn bytes(&self) -> &'t [u8] {
        self.text.as_bytes()
    }

    /// Whether no word is before byte `at`: a piece that ends there is none.
    fn begins(&self, at: usize) -> bool {
        at == self.last || !self.text[..at].chars().next_back().is_some_and(joins)
    }

    /// Whether no word is after byte `at`.
    fn ends(&self, at: usize) -> bool {
        !self.text[at..].chars().next().is_some_and(joins)
    }

    /// Whether what begins here is a percentage: `100%`, `50 %off`, with a no-break space too.
    fn is_percentage(&self) -> bool {
        let before = &self.text[self.last.min(self.at)..self.at];
        let space = [' ', '\u{a0}', '\u{202f}'];
        let before = before.strip_suffix(space).unwrap_or(before);
        before.ends_with(|letter: char| letter.is_ascii_digit())
    }
}

/// Whether a letter would belong to the same word as a letter beside it.
fn joins(letter: char) -> bool {
    (letter.is_alphanumeric() && !scripts::is_spaceless(letter)) || letter == '_'
}

/// A piece from `open` to the first `close` on the same line.
pub(super) fn between(place: &Place<'_>, open: &str, close: &str) -> Option<Range<usize>> {
    let (open, close) = (open.as_bytes(), close.as_bytes());
    let inside = place.bytes().get(place.at..)?.strip_prefix(open)?;
    for len in 0..inside.len().min(LONGEST) {
        let rest = &inside[len..];
        if rest.starts_with(close) {
            let end = place.at + open.len() + len + close.len();
            return (len > 0).then_some(place.at..end);
        }
        // A piece that begins later is the one that ends there.
        if rest[0] == b'\n' || rest.starts_with(open) {
            return None;
        }
    }
    None
}

/// A name, `user.name`, `first-name`, from `from` on: the end of it, without a point or a hyphen at its end.
fn name(bytes: &[u8], from: usize) -> usize {
    let len = run_length(bytes, from, |byte| is_word(byte) || b".-".contains(&byte));
    let found = &bytes[from..from + len];
    from + len - found.iter().rev().take_while(|byte| b".-".contains(byte)).count()
}

/// `%name%`, `__name__`, `#name#`, `$name$`, `@@name@@`, `*|name|*`, `<<name>>`: a name between signs that are the same on
/// both sides, of which at least one is not used for emphasis or quotation.
pub(super) fn wrapped(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let before = at.checked_sub(1).filter(|_| at > place.last).and_then(|at| bytes.get(at));
    if before == bytes.get(at) {
        return None;
    }
    let signs = bytes[at..].iter().take(5).take_while(|byte| b"%$#@_~^|*<".contains(byte));
    let count = signs.count();
    let open = &bytes[at..at + count];
    let coded = open.iter().any(|byte| b"%$#@^|".contains(byte)) || open == b"~" || open == b"<<";
    if count > 4 || !(coded || (count > 1 && open.iter().all(|&byte| byte == b'_'))) {
        return None;
    }
    if open != b"%" && !place.begins(at) {
        return None;
    }
    let mirrored = |&byte: &u8| if byte == b'<' { b'>' } else { byte };
    let close: Vec<u8> = open.iter().rev().map(mirrored).collect();
    let from = at + count;
    let end = name(bytes, from);
    let underscores = bytes[from..end].iter().rev().take_while(|&&byte| byte == b'_').count();
    let closes = |&end: &usize| end > from && bytes[end..].starts_with(&close);
    let end = [end, end - underscores].into_iter().find(closes)?;
    let named = is_word(bytes[from]) && bytes[from..end].iter().any(u8::is_ascii_alphanumeric);
    let whole = at..end + count;
    // `50%des%` has two percentages and `%ld%s` two formats; `file%name%` has a placeholder.
    let percents = open == b"%"
        && end > from + 1
        && !place.is_percentage()
        && conversion(bytes, from) != Some(end);
    let free = (place.begins(at) && place.ends(whole.end)) || percents;
    (named && free && bytes.get(whole.end) != open.first()).then_some(whole)
}

/// `:name`, `:name:`, `$name`, `$user->name`, `@name`, `@:key`, `@string/key`, `#name`, `%name`: a sign and a name.
pub(super) fn sigil(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let sign = bytes[at];
    let before = at.checked_sub(1).filter(|_| at > place.last).map(|at| bytes[at]);
    if !place.begins(at) || before == Some(sign) || before == Some(b'&') {
        return None;
    }
    let word = |from: usize| {
        let first = bytes.get(from).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
        first.then(|| from + run_length(bytes, from, is_word))
    };
    let mut end = match sign {
        // The arguments of MediaWiki and of browser extensions are digits.
        b'$' if bytes.get(at + 1).is_some_and(|byte| (b'1'..=b'9').contains(byte)) => at + 2,
        b'@' if matches!(bytes.get(at + 1), Some(b':' | b'.')) => linked_key(bytes, at + 1)?,
        b'%' => {
            let end = word(at + 1).filter(|&end| end > at + 2 && !place.is_percentage())?;
            // `%dKB` is a format and a unit.
            let unit = bytes[at + 1].is_ascii_lowercase() && bytes[at + 2].is_ascii_uppercase();
            if unit {
                return None;
            }
            end
        }
        _ => word(at + 1)?,
    };
    match sign {
        b'$' => {
            // `$user->name`, `$user.name`, `$list[0]`
            while let Some(next) = ["->", "::", "."].iter().find_map(|link| {
                bytes[end..].starts_with(link.as_bytes()).then(|| word(end + link.len())).flatten()
            }) {
                end = next;
            }
            if bytes.get(end) == Some(&b'[')
                && let Some(index) = closed(bytes, end + 1, b"]", b'[')
            {
                end = index;
            }
        }
        // `:smile:`
        b':' if bytes.get(end) == Some(&b':') => end += 1,
        b'@' => {
            while let Some(b'/' | b'.') = bytes.get(end)
                && let Some(next) = word(end + 1)
            {
                end = next;
            }
        }
        _ => (),
    }
    let decimal = matches!(bytes.get(end), Some(b'.' | b','))
        && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
    (place.ends(end) && !(sign == b'$' && decimal)).then_some(at..end)
}

/// `@:key`, `@.lower:key`, `@:(key)`; `from` is after the sign.
fn linked_key(bytes: &[u8], from: usize) -> Option<usize> {
    let modifier = if bytes[from] == b'.' { 1 + run_length(bytes, from + 1, is_word) } else { 0 };
    let key = from + modifier + 1;
    if bytes.get(key - 1) != Some(&b':') || modifier == 1 {
        return None;
    }
    if bytes.get(key) == Some(&b'(') {
        return closed(bytes, key + 1, b")", b'(');
    }
    Some(name(bytes, key)).filter(|&end| end > key)
}

/// `$t(key)`, `$(name)`: balanced parentheses on one line, after a sign and at most a name.
pub(super) fn nested_call(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let open = at + 1 + run_length(bytes, at + 1, is_word);
    if bytes.get(open) != Some(&b'(') {
        return None;
    }
    let mut depth = 0;
    for (end, byte) in bytes.iter().enumerate().skip(open).take(LONGEST) {
        match byte {
            b'\n' => return None,
            b'(' if depth == DEEPEST => return None,
            b'(' => depth += 1,
            b')' if depth == 1 => return Some(at..end + 1),
            b')' => depth -= 1,
            _ => (),
        }
    }
    None
}

/// `%1`, `%L1`, `%99`: the places of Qt and KDE.
pub(super) fn numbered(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let from = at + 1 + usize::from(bytes.get(at + 1) == Some(&b'L'));
    let digits = run_length(bytes, from, |byte| byte.is_ascii_digit());
    let end = from + digits;
    // `100%`, and `a%20b` of an address.
    let before = if at > place.last { bytes[at - 1] } else { b' ' };
    let other = before.is_ascii_digit() || (digits == 2 && before.is_ascii_alphabetic());
    let fits = (1..=2).contains(&digits) && !other;
    (fits && place.ends(end) && bytes.get(end) != Some(&b'$')).then_some(at..end)
}

/// `[gallery ids="1"]`, `[/caption]`, `[b]` if `[/b]` follows soon.
pub(super) fn shortcode(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let closing = bytes.get(at + 1) == Some(&b'/');
    let from = at + 1 + usize::from(closing);
    let end = from + run_length(bytes, from, |byte| is_word(byte) || byte == b'-');
    if !bytes.get(from).is_some_and(u8::is_ascii_alphabetic) {
        return None;
    }
    let whole = closed(bytes, end, b"]", b'[')?;
    let inside = &bytes[end..whole - 1];
    let attributes = matches!(inside.first(), Some(b' ' | b'=')) && inside.contains(&b'=');
    let closes = || {
        let closer = ["[/", &place.text[from..end], "]"].concat();
        let most = place.text.floor_char_boundary(bytes.len().min(whole + LONGEST));
        place.text[whole..most].contains(&closer)
    };
    (attributes || (inside.is_empty() && (closing || closes()))).then_some(at..whole)
}

/// `C#`, `C++`: a letter and signs.
pub(super) fn signed_word(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let start = at.checked_sub(1).filter(|&start| bytes[start].is_ascii_uppercase())?;
    let end =
        if bytes[at] == b'#' { at + 1 } else { at + run_length(bytes, at, |byte| byte == b'+') };
    let fits = bytes[at] == b'#' || end == at + 2;
    (fits && place.begins(start) && place.ends(end)).then_some(start..end)
}

/// `[1,19]`, `]1,Inf[`, `[20,*]`: the intervals before the cases of a plural.
pub(super) fn interval(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let bound = |from: usize| {
        let sign = from + usize::from(bytes.get(from) == Some(&b'-'));
        match bytes.get(sign..)? {
            rest if rest.starts_with(b"Inf") => Some(sign + 3),
            rest if rest.starts_with(b"*") => Some(sign + 1),
            _ => Some(sign + run_length(bytes, sign, |byte| byte.is_ascii_digit()))
                .filter(|&end| end > sign),
        }
    };
    let comma = bound(at + 1).filter(|&end| bytes.get(end) == Some(&b','))?;
    let end = bound(comma + 1 + run_length(bytes, comma + 1, |byte| byte == b' '))?;
    matches!(bytes.get(end), Some(b']' | b'[')).then_some(at..end + 1)
}

/// `\n`, `\"`, `\u00e9`, `C:\Users\name`.
pub(super) fn backslash(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let drive = at.checked_sub(2).filter(|&start| {
        bytes[at - 1] == b':' && bytes[start].is_ascii_alphabetic() && place.begins(start)
    });
    let share = bytes.get(at + 1) == Some(&b'\\');
    if drive.is_some() || share {
        let ends = |&(at, letter): &(usize, char)| {
            letter.is_whitespace()
                || at >= LONGEST
                || "\"<>|*?".contains(letter)
                || (!letter.is_ascii() && !joins(letter))
        };
        let rest = &place.text[at..];
        let len = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
        let path = rest[..len].trim_end_matches(|letter: char| !joins(letter));
        if path.len() > 2 && (drive.is_some() || path[2..].contains('\\')) {
            return Some(drive.unwrap_or(at)..at + path.len());
        }
    }
    let digits = match bytes.get(at + 1)? {
        b'n' | b'r' | b't' | b'"' | b'\'' | b'\\' | b'@' | b'?' => return Some(at..at + 2),
        b'u' => 4,
        b'x' => 2,
        _ => return None,
    };
    (run_length(bytes, at + 2, |byte| byte.is_ascii_hexdigit()) >= digits)
        .then_some(at..at + 2 + digits)
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
fn run_length(bytes: &[u8], from: usize, like: impl Fn(u8) -> bool) -> usize {
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

/// `{name}`, `{}`, `{0:dd MMM}`: no white space, or an expression.
pub(super) fn braces(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let end = closed(bytes, at + 1, b"}", b'{')?;
    let inside = bytes[at + 1..end - 1].trim_ascii();
    let one = !inside.iter().any(u8::is_ascii_whitespace) || is_expression(inside);
    one.then_some(at..end)
}

/// `{{ name }}`, `{{{name}}}`.
pub(super) fn double_braces(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let count = bytes[at..].iter().take(3).take_while(|&&byte| byte == b'{').count();
    let close = |count: usize| closed(bytes, at + count, &b"}}}"[..count], b'{');
    (2..=count).rev().find_map(close).map(|end| at..end)
}

/// `${name}`, `%{name}`, `#{name}`, `@{{ name }}`: braces after a sign.
pub(super) fn signed_braces(place: &Place<'_>) -> Option<Range<usize>> {
    if place.bytes().get(place.at + 1) != Some(&b'{') {
        return None;
    }
    let inner = Place { at: place.at + 1, ..*place };
    let found = double_braces(&inner).or_else(|| braces(&inner)).or_else(|| message(&inner));
    found.map(|found| place.at..found.end)
}

/// `0:dd MMM yyyy`, `n, number`, `count | plural`: a name, and a sign that text does not have there.
fn is_expression(inside: &[u8]) -> bool {
    let name = run_length(inside, 0, |byte| is_word(byte) || b".$'@".contains(&byte));
    let rest = inside[name..].trim_ascii_start();
    name > 0 && rest.first().is_some_and(|sign| b",:?|([=+".contains(sign))
}

/// The end of `{name, type, ...}`, where the last part may have braces.
pub(super) fn message(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
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
    let space = |from: usize| from + run_length(bytes, from, |byte| byte == b' ');
    let name = space(at + 1);
    let comma = space(name + run_length(bytes, name, |byte| is_word(byte) || byte == b'.'));
    if comma == name || bytes.get(comma) != Some(&b',') {
        return None;
    }
    let kind = space(comma + 1);
    let kind = &bytes[kind..kind + run_length(bytes, kind, |byte| byte.is_ascii_lowercase())];
    if !TYPES.contains(&kind) {
        return None;
    }
    let mut depth = 0;
    for (end, byte) in bytes.iter().enumerate().skip(at).take(LONGEST_MESSAGE) {
        match byte {
            b'{' if depth == DEEPEST => return None,
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(at..end + 1),
            b'}' => depth -= 1,
            _ => (),
        }
    }
    None
}

/// `%s`, `%1$d`, `%.2f`, `%(name)s`, `%<name>d`, `%@`, `%%`; not a percentage. `last` is the end of the piece before.
pub(super) fn format(bytes: &[u8], at: usize, last: usize) -> Option<Range<usize>> {
    let mut end = at + 1;
    match bytes.get(end)? {
        b'%' => return Some(at..at + 2),
        b'(' | b'<' => {
            let close = if bytes[end] == b'(' { b')' } else { b'>' };
            let name =
                run_length(bytes, end + 1, |byte| is_word(byte) || byte == b'.' || byte == b'-');
            if name == 0 || bytes.get(end + 1 + name) != Some(&close) {
                return None;
            }
            end += name + 2;
            return conversion(bytes, end).map(|end| at..end);
        }
        _ => (),
    }
    let digits = run_length(bytes, end, |byte| byte.is_ascii_digit());
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
    let mut at = from + run_length(bytes, from, |byte| b"-+#0'".contains(&byte));
    at += run_length(bytes, at, digit);
    if bytes.get(at) == Some(&b'.') {
        at += 1 + run_length(bytes, at + 1, digit);
    }
    at += run_length(bytes, at, |byte| b"hlLqjzt".contains(&byte)).min(2);
    bytes.get(at).filter(|byte| b"diufFeEgGxXoscpaAn@b".contains(byte)).map(|_| at + 1)
}

/// `<x/>`, `<0>`, `</0>`, `<g id="1">`. Attributes have values, so that `a <b and c> d` is not a tag.
pub(super) fn tag(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let name = at + 1 + usize::from(bytes.get(at + 1) == Some(&b'/'));
    let first = *bytes.get(name)?;
    let len = match first {
        b'0'..=b'9' => run_length(bytes, name, |byte| byte.is_ascii_digit()),
        _ if first.is_ascii_alphabetic() => {
            run_length(bytes, name, |byte| is_word(byte) || b":.-".contains(&byte))
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
pub(super) fn entity(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let hash = usize::from(bytes.get(at + 1) == Some(&b'#'));
    let len = run_length(bytes, at + 1 + hash, |byte| byte.is_ascii_alphanumeric());
    let end = at + 1 + hash + len;
    ((2..=32).contains(&(len + hash)) && bytes.get(end) == Some(&b';')).then_some(at..end + 1)
}

/// Code between equal runs of backquotes.
pub(super) fn quoted(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    if at > 0 && bytes[at - 1] == b'`' {
        return None;
    }
    let count = run_length(bytes, at, |byte| byte == b'`');
    let end = closed(bytes, at + count, &bytes[at..at + count], b'\n')?;
    (end > at + 2 * count).then_some(at..end)
}

/// An address with a scheme; `at` is its colon.
pub(super) fn url(text: &str, at: usize) -> Option<Range<usize>> {
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

/// `www.example.org/a`
pub(super) fn www(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let begins = bytes.get(at..at + 4)?.eq_ignore_ascii_case(b"www.");
    if !begins || !place.begins(at) {
        return None;
    }
    let end = address_end(place.text, at + 4)?;
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
pub(super) fn mail(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let local = run_before(bytes, at, |byte| is_word(byte) || b".%+-'".contains(&byte)).min(64);
    let start = (at - local..at).find(|&start| is_word(bytes[start]))?;
    let part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let mut end = at + 1 + run_length(bytes, at + 1, part);
    let mut parts = 1;
    while parts < 16
        && bytes.get(end) == Some(&b'.')
        && bytes.get(end + 1).is_some_and(|&byte| part(byte))
    {
        end += 1 + run_length(bytes, end + 1, part);
        parts += 1;
    }
    let last = bytes[at + 1..end].rsplit(|&byte| byte == b'.').next().unwrap_or_default();
    let named = last.len() > 1 && last.iter().all(u8::is_ascii_alphabetic);
    (parts > 1 && named && part(bytes[at + 1])).then_some(start..end)
}

/// `max_size`, `MAX_SIZE`: an underscore between letters or digits, and the parentheses of a call.
pub(super) fn identifier(place: &Place<'_>) -> Option<Range<usize>> {
    let (bytes, at) = (place.bytes(), place.at);
    let alphanumeric = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
    if at == 0 || !alphanumeric(at - 1) || !alphanumeric(at + 1) {
        return None;
    }
    let start = at - run_before(bytes, at, is_word);
    let end = at + run_length(bytes, at, is_word);
    let other =
        |letter: Option<char>| letter.is_some_and(|letter| !letter.is_ascii() && joins(letter));
    let call = if bytes[end..].starts_with(b"()") { 2 } else { 0 };
    let before = place.text.get(..start)?.chars().next_back();
    let after = place.text.get(end..)?.chars().next();
    (!other(before) && !other(after)).then_some(start..end + call)
}

/// `open()`; `at` is the parenthesis.
pub(super) fn call(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    if bytes.get(at + 1) != Some(&b')') {
        return None;
    }
    let len = run_before(bytes, at, |byte| is_word(byte) || b".:".contains(&byte));
    let start = (at - len..at).find(|&start| is_word(bytes[start]))?;
    is_word(bytes[at - 1]).then_some(start..at + 2)
}
