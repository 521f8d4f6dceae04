//! Reads the messages of ICU that have cases: `{count, plural, one {# file} other {# files}}` (MessageFormat 1).
//!
//! The text of each case is a segment, and so is what stands before, between and after the arguments with cases. `#` and other
//! arguments are kept.

use super::inline::{Inline, WhiteSpace};
use super::json_escapes::decode;
use super::places::{Places, Writing};
use std::ops::Range;

/// The most arguments in each other.
const DEEPEST: usize = 64;

/// Adds the segments of the message in `range`, which is the inside of a string of JSON. Returns whether it is one: a text
/// without an argument with cases, or whose braces do not match, is not.
pub(super) fn read_message(
    source: &str,
    range: Range<usize>,
    ascii: bool,
    inline: &mut Inline,
    places: &mut Places,
) -> bool {
    let text = &source[range.clone()];
    if !text.contains('{') || !(text.contains("plural") || text.contains("select")) {
        return false;
    }
    let Some(doubled) = check(source, range.clone()) else { return false };
    let mut parts = Parts::new(source, range);
    let mut end_segment = |inline: &mut Inline, plural| {
        if let Some(found) = inline.finish(false) {
            places.push(found, Writing::Icu { ascii, doubled, plural });
        }
    };
    let mut begun = false;
    loop {
        let plural = parts.plural();
        let Ok(Some((range, part))) = parts.next() else {
            // The message was read before, so this is its end.
            end_segment(inline, plural);
            return true;
        };
        let raw = &source[range.clone()];
        match part {
            Part::Character('\n' | '\r') | Part::Syntax => {
                end_segment(inline, plural);
                begun = false;
                continue;
            }
            Part::Text => inline.raw(range, WhiteSpace::Preserve),
            Part::Character(c) => inline.decoded(range, c.encode_utf8(&mut [0; 4])),
            Part::Quoted(text) => inline.decoded(range, &text),
            // Before all words it is no part of the segment: models lose words beside a number alone.
            Part::Keep if raw == "#" && !begun => inline.hidden(range),
            Part::Keep => inline.keep(range, raw),
        }
        begun |= raw != "#" && !raw.trim().is_empty();
    }
}

/// A text of a message as it is written: braces, and `#` in a plural, in apostrophes. `doubled`: every apostrophe is written
/// twice.
pub(super) fn quote(text: &str, doubled: bool, plural: bool) -> String {
    let special = |c: char| matches!(c, '{' | '}') || c == '#' && plural;
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        if special(c) {
            out.extend(['\'', c]);
            while let Some(c) = characters.next_if(|&c| special(c) || c == '\'') {
                out.extend((c == '\'').then_some(c));
                out.push(c);
            }
            out.push('\'');
        } else {
            // Alone it would begin a quotation before these; what follows the text is not known.
            let begins =
                |next: Option<&char>| next.is_none_or(|&c| special(c) || "'|#".contains(c));
            if c == '\'' && (doubled || begins(characters.peek())) {
                out.push(c);
            }
            out.push(c);
        }
    }
    out
}

/// Whether the text is a message with cases, and then whether it has doubled apostrophes.
fn check(source: &str, range: Range<usize>) -> Option<bool> {
    let mut parts = Parts::new(source, range);
    let (mut cases, mut doubled) = (false, false);
    while let Some((range, part)) = parts.next().ok()? {
        cases |= matches!(part, Part::Syntax);
        doubled |= matches!(part, Part::Character('\'')) && source[range].starts_with("''");
    }
    (cases && parts.arguments.is_empty()).then_some(doubled)
}

/// The text is no message.
struct Malformed;

enum Part {
    /// Characters as they are in the source.
    Text,
    /// One that the source spells in another way.
    Character(char),
    /// What is between two apostrophes.
    Quoted(String),
    /// What is kept.
    Keep,
    /// From the begin of an argument to that of a case, from case to case, from the last case to the end of the argument.
    Syntax,
}

/// The parts of a message, in order.
struct Parts<'s> {
    source: &'s str,
    at: usize,
    end: usize,
    /// For each argument that is open, whether `#` is a number in its cases.
    arguments: Vec<bool>,
}

impl<'s> Parts<'s> {
    fn new(source: &'s str, range: Range<usize>) -> Self {
        Self { source, at: range.start, end: range.end, arguments: Vec::new() }
    }

    /// Whether `#` stands for a number.
    fn plural(&self) -> bool {
        self.arguments.contains(&true)
    }

    /// The next character, and the byte after it.
    fn peek(&self) -> Option<(char, usize)> {
        let rest = self.source.get(self.at..self.end)?;
        let c = rest.chars().next()?;
        let (c, length) = if c == '\\' { decode(rest)? } else { (c, c.len_utf8()) };
        Some((c, self.at + length))
    }

    fn take(&mut self) -> Option<char> {
        let (c, after) = self.peek()?;
        self.at = after;
        Some(c)
    }

    fn next_is(&self, expected: char) -> bool {
        self.peek().is_some_and(|(c, _)| c == expected)
    }

    fn skip_space(&mut self) {
        while let Some((c, after)) = self.peek()
            && c.is_whitespace()
        {
            self.at = after;
        }
    }

    /// The characters up to white space, a comma or a brace.
    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some((c, after)) = self.peek()
            && !c.is_whitespace()
            && !matches!(c, ',' | '{' | '}' | '\'')
        {
            word.push(c);
            self.at = after;
        }
        word
    }

    fn next(&mut self) -> Result<Option<(Range<usize>, Part)>, Malformed> {
        let begin = self.at;
        let Some((c, after)) = self.peek() else { return Ok(None) };
        let part = match c {
            '{' => {
                self.at = after;
                self.argument()?
            }
            '}' if self.arguments.is_empty() => return Err(Malformed),
            '}' => {
                self.at = after;
                self.next_case()?
            }
            '#' if self.plural() => {
                self.at = after;
                Part::Keep
            }
            '\'' => self.apostrophe()?,
            _ if self.source[begin..].starts_with('\\') => {
                self.at = after;
                Part::Character(c)
            }
            _ => {
                let rest = &self.source[begin..self.end];
                let length = rest.find(['{', '}', '#', '\'', '\\']).unwrap_or(rest.len());
                // A `#` that is text.
                self.at = begin + length.max(1);
                Part::Text
            }
        };
        Ok(Some((begin..self.at, part)))
    }

    /// An apostrophe: two are one; before a brace it begins a quotation; else it is text.
    fn apostrophe(&mut self) -> Result<Part, Malformed> {
        let escaped = self.source[self.at..].starts_with('\\');
        self.take();
        match self.peek() {
            Some(('\'', after)) => {
                self.at = after;
                Ok(Part::Character('\''))
            }
            Some(('{' | '}', _)) => Ok(Part::Quoted(self.quotation()?)),
            Some(('#', _)) if self.plural() => Ok(Part::Quoted(self.quotation()?)),
            _ if escaped => Ok(Part::Character('\'')),
            _ => Ok(Part::Text),
        }
    }

    /// The text of a quotation, after its first apostrophe.
    fn quotation(&mut self) -> Result<String, Malformed> {
        let mut text = String::new();
        while let Some(c) = self.take() {
            if c == '\'' {
                if !self.next_is('\'') {
                    return Ok(text);
                }
                self.take();
            }
            text.push(c);
        }
        Err(Malformed)
    }

    /// An argument, after its brace.
    fn argument(&mut self) -> Result<Part, Malformed> {
        self.skip_space();
        if self.word().is_empty() {
            return Err(Malformed);
        }
        self.skip_space();
        if self.next_is(',') {
            self.take();
            self.skip_space();
            let kind = self.word();
            self.skip_space();
            if matches!(kind.as_str(), "plural" | "selectordinal" | "select") && self.next_is(',') {
                self.take();
                if self.arguments.len() == DEEPEST {
                    return Err(Malformed);
                }
                self.arguments.push(kind != "select");
                self.skip_space();
                let offset = "offset:";
                if kind != "select" && self.source[self.at..self.end].starts_with(offset) {
                    self.at += offset.len();
                    self.skip_space();
                    self.word();
                }
                self.skip_space();
                // An argument has at least one case.
                return if self.next_is('}') { Err(Malformed) } else { self.next_case() };
            }
        }
        // The style of another argument, with braces and quotations in it.
        let mut depth = 1_usize;
        while let Some(c) = self.take() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                '\'' if matches!(self.peek(), Some(('{' | '}', _))) => {
                    self.quotation()?;
                }
                _ => {}
            }
            if depth == 0 {
                return Ok(Part::Keep);
            }
        }
        Err(Malformed)
    }

    /// The name of the next case and its brace, or the end of the argument.
    fn next_case(&mut self) -> Result<Part, Malformed> {
        self.skip_space();
        if self.next_is('}') {
            self.take();
            self.arguments.pop();
            return Ok(Part::Syntax);
        }
        if self.word().is_empty() {
            return Err(Malformed);
        }
        self.skip_space();
        if self.take() != Some('{') {
            return Err(Malformed);
        }
        Ok(Part::Syntax)
    }
}
