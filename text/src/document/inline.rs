//! Builds a segment from the runs of text and the inline markup of a paragraph.

use super::wrap::join_without_space;
use crate::marked_text::{Mark, MarkKind, MarkedText};
use std::mem;
use std::num::NonZeroUsize;
use std::ops::Range;

/// Elements that are open at once. A deeper one becomes two points, so that a close tag looks at this many.
const DEPTH: usize = 64;

/// What happens to white space in a run of text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WhiteSpace {
    /// Each run of it is one space, as browsers show it.
    Collapse,
    /// It is text.
    Preserve,
}

/// What an element becomes when its end is found. Without an end it is two points.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Becomes {
    Wrap,
    /// The model sees the text; the source stays.
    Keep,
    /// The model does not see the text either.
    Point,
}

/// A segment, and where it comes from.
pub(super) struct Found {
    /// Bytes of the source.
    pub(super) range: Range<usize>,
    pub(super) segment: MarkedText,
    /// The bytes of each piece of markup that a mark has as its source, in order.
    pub(super) markup: Vec<Range<usize>>,
}

/// A paragraph in the making. All ranges that go in are bytes of the source, in order.
pub(super) struct Inline<'s> {
    source: &'s str,
    text: String,
    tokens: Vec<Token>,
    /// What stands for an end in a changed segment, if not the source, with the index of its token.
    written: Vec<(usize, String)>,
    open: Vec<Opened>,
    /// The text so far, without tags, ends in collapsible white space.
    after_space: bool,
}

struct Opened {
    name: String,
    token: usize,
    becomes: Becomes,
}

struct Token {
    source: Range<usize>,
    /// Bytes of the text.
    text: Range<usize>,
    kind: Kind,
}

enum Kind {
    /// Whether the source has the same white space as the text at its begin and at its end.
    Text {
        raw: [bool; 2],
    },
    Break,
    /// A break that has markup, which stays.
    MarkedBreak,
    Keep,
    Point,
    /// The index of its end, which is not the first token.
    Open {
        close: Option<NonZeroUsize>,
    },
    Close {
        open: usize,
    },
}

impl<'s> Inline<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self {
            source,
            text: String::new(),
            tokens: Vec::new(),
            written: Vec::new(),
            open: Vec::new(),
            after_space: true,
        }
    }

    /// Text as it stands in the source.
    pub(super) fn raw(&mut self, range: Range<usize>, white_space: WhiteSpace) {
        let source = self.source;
        let Some(raw) = source.get(range.clone()) else { return };
        self.join_lines(raw.chars().next());
        let from = self.text.len();
        match white_space {
            WhiteSpace::Preserve => {
                self.text.push_str(raw);
                self.after_space = false;
            }
            WhiteSpace::Collapse => {
                for c in raw.chars() {
                    if c.is_ascii_whitespace() {
                        if !self.after_space {
                            self.text.push(' ');
                        }
                        self.after_space = true;
                    } else {
                        self.text.push(c);
                        self.after_space = false;
                    }
                }
            }
        }
        self.push_text(range, from, true);
    }

    /// Text that the source spells in another way, such as an entity.
    pub(super) fn decoded(&mut self, range: Range<usize>, text: &str) {
        self.join_lines(text.chars().next());
        let from = self.text.len();
        self.push_one_line(text);
        self.after_space = false;
        self.push_text(range, from, false);
    }

    /// The end of a line in the middle of a paragraph.
    pub(super) fn line_break(&mut self, range: Range<usize>) {
        let from = self.text.len();
        if !self.after_space {
            self.text.push(' ');
        }
        self.after_space = true;
        self.push(range, from, Kind::Break);
    }

    /// The same, where the markup `range` stands for the end of the line and stays.
    pub(super) fn marked_break(&mut self, range: Range<usize>) {
        self.line_break(range);
        if let Some(last) = self.tokens.last_mut() {
            last.kind = Kind::MarkedBreak;
        }
    }

    /// Text that stays.
    pub(super) fn keep(&mut self, range: Range<usize>, text: &str) {
        if text.trim().is_empty() {
            return self.point(range);
        }
        let from = self.text.len();
        self.push_one_line(text);
        self.after_space = false;
        self.push(range, from, Kind::Keep);
    }

    /// Markup without text that readers see, such as an image.
    pub(super) fn point(&mut self, range: Range<usize>) {
        self.hidden(range);
        self.after_space = false;
    }

    /// Markup that readers do not see, such as a comment: white space before and after it is one space.
    pub(super) fn hidden(&mut self, range: Range<usize>) {
        let from = self.text.len();
        self.push(range, from, Kind::Point);
    }

    /// The begin of an element.
    pub(super) fn open(&mut self, range: Range<usize>, name: &str, becomes: Becomes) {
        if self.open.len() == DEPTH {
            return self.hidden(range);
        }
        self.open.push(Opened {
            name: name.to_ascii_lowercase(),
            token: self.tokens.len(),
            becomes,
        });
        let from = self.text.len();
        self.push(range, from, Kind::Open { close: None });
    }

    /// The end of an element. Elements that were opened after it and have no end are points.
    pub(super) fn close(&mut self, range: Range<usize>, name: &str, written: Option<String>) {
        let Some(at) = self.open.iter().rposition(|open| open.name.eq_ignore_ascii_case(name))
        else {
            return self.hidden(range);
        };
        let (from, becomes) = (self.open[at].token, self.open[at].becomes);
        self.open.truncate(at);
        let (begin, text_begin) = (self.tokens[from].source.start, self.tokens[from].text.start);
        let hidden = becomes == Becomes::Point
            || becomes == Becomes::Keep && self.text[text_begin..].trim().is_empty();
        if becomes == Becomes::Wrap {
            let index = self.tokens.len();
            self.tokens[from].kind = Kind::Open { close: NonZeroUsize::new(index) };
            self.written.extend(written.map(|written| (index, written)));
            self.push(range, self.text.len(), Kind::Close { open: from });
        } else {
            self.tokens.truncate(from);
            self.written.truncate(self.written.partition_point(|(token, _)| *token < from));
            if hidden {
                self.text.truncate(text_begin);
                self.push(begin..range.end, text_begin, Kind::Point);
            } else {
                self.push(begin..range.end, text_begin, Kind::Keep);
            }
            self.after_space = false;
        }
    }

    /// A segment's text is one line, also where an entity or code has a line end.
    fn push_one_line(&mut self, text: &str) {
        self.text.extend(text.chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }));
    }

    /// A run of text. Runs that touch are one, also with a line end between them, so that a text of escapes or of short lines
    /// takes no more memory than another.
    fn push_text(&mut self, source: Range<usize>, text_from: usize, raw: bool) {
        let end = self.text.len();
        // From the end on: what was read before is not read again.
        let is_blank = |range: Range<usize>| self.text[range].trim_end().is_empty();
        let touching = match self.tokens.as_slice() {
            [.., last, Token { kind: Kind::Break, source: line_end, .. }]
                if line_end.start == last.source.end && line_end.end == source.start =>
            {
                Some((last, 2))
            }
            [.., last] if last.source.end == source.start => Some((last, 1)),
            _ => None,
        };
        if let Some((last, from_end)) = touching
            && let Kind::Text { raw: [begin, _] } = last.kind
            && !is_blank(text_from..end)
            && !is_blank(last.text.clone())
        {
            self.tokens.truncate(self.tokens.len() + 1 - from_end);
            if let Some(last) = self.tokens.last_mut() {
                (last.source.end, last.text.end) = (source.end, end);
                last.kind = Kind::Text { raw: [begin, raw] };
            }
            return;
        }
        self.push(source, text_from, Kind::Text { raw: [raw; 2] });
    }

    fn push(&mut self, source: Range<usize>, text_from: usize, kind: Kind) {
        self.tokens.push(Token { source, text: text_from..self.text.len(), kind });
    }

    /// Takes back the space of a line break between two characters of a script without spaces.
    fn join_lines(&mut self, next: Option<char>) {
        let (Some(last), Some(next)) = (self.tokens.last_mut(), next) else { return };
        if matches!(last.kind, Kind::Break | Kind::MarkedBreak)
            && last.text.len() == 1
            && self.text[..last.text.start]
                .chars()
                .next_back()
                .is_some_and(|c| join_without_space(c, next))
        {
            self.text.truncate(last.text.start);
            last.text.end = last.text.start;
        }
    }

    /// Whether an element is open whose content stays.
    pub(super) fn is_kept(&self) -> bool {
        self.open.iter().any(|open| open.becomes != Becomes::Wrap)
    }

    /// Whether an element of this name is open whose content stays.
    pub(super) fn is_kept_in(&self, name: &str) -> bool {
        let mut kept = self.open.iter().filter(|open| open.becomes != Becomes::Wrap);
        kept.any(|open| open.name.eq_ignore_ascii_case(name))
    }

    /// The segment; `None` if nothing in it has a letter that may be translated. What lies at its ends and is no text (white
    /// space, images, tags that wrap all of it) does not belong to it.
    pub(super) fn finish(&mut self) -> Option<Found> {
        let tokens = mem::take(&mut self.tokens);
        let written = mem::take(&mut self.written);
        let written = |token: usize| {
            let found = written.binary_search_by_key(&token, |(token, _)| *token);
            found.ok().map(|at| written[at].1.clone())
        };
        let text = mem::take(&mut self.text);
        self.open.clear();
        self.after_space = true;
        let (low, high) = between_edges(&tokens, &text, |token| written(token).is_some())?;
        let (first, last) = (tokens.get(low)?, tokens.get(high - 1)?);
        let letters = tokens[low..high].iter().any(|token| {
            matches!(token.kind, Kind::Text { .. })
                && text[token.text.clone()].chars().any(char::is_alphabetic)
        });
        if !letters {
            return None;
        }
        let mut source = first.source.start..last.source.end;
        if matches!(first.kind, Kind::Text { raw: [true, _] }) {
            let raw = self.source.get(first.source.clone())?;
            source.start += raw.len() - raw.trim_start().len();
        }
        if matches!(last.kind, Kind::Text { raw: [_, true] }) {
            let raw = self.source.get(last.source.clone())?;
            source.end -= raw.len() - raw.trim_end().len();
        }
        let untrimmed = &text[first.text.start..last.text.end];
        let base = first.text.start + untrimmed.len() - untrimmed.trim_start().len();
        let text = untrimmed.trim();
        let place = |at: usize| at.saturating_sub(base).min(text.len());
        let mut marks = Vec::new();
        let mut markup = Vec::new();
        let mut index = low;
        while index < high {
            let token = &tokens[index];
            let mut raw = |range: Range<usize>| {
                markup.push(range.clone());
                self.source.get(range).map(str::to_string)
            };
            let (range, kind) = match &token.kind {
                Kind::Text { .. } | Kind::Break | Kind::Close { .. } => {
                    index += 1;
                    continue;
                }
                Kind::Keep => (
                    token.text.clone(),
                    MarkKind::Keep { source: Some(raw(token.source.clone())?) },
                ),
                Kind::Open { close: Some(at) } => {
                    let at = at.get();
                    let close = &tokens[at];
                    if close.text.start == token.text.end {
                        // Nothing that could be wrapped: one point, with all that is inside.
                        index = at;
                        (
                            token.text.clone(),
                            MarkKind::Point { source: raw(token.source.start..close.source.end)? },
                        )
                    } else {
                        let open = raw(token.source.clone())?;
                        let close_text = match written(at) {
                            Some(written) => written,
                            None => raw(close.source.clone())?,
                        };
                        let kind = MarkKind::Wrap { open, close: close_text };
                        (token.text.end..close.text.start, kind)
                    }
                }
                Kind::MarkedBreak => (
                    token.text.end..token.text.end,
                    MarkKind::Point { source: raw(token.source.clone())? },
                ),
                Kind::Point | Kind::Open { close: None } => {
                    (token.text.clone(), MarkKind::Point { source: raw(token.source.clone())? })
                }
            };
            index += 1;
            marks.push(Mark { range: place(range.start)..place(range.end), kind, id: marks.len() });
        }
        // The end of an element comes after what is inside.
        markup.sort_by_key(|range| range.start);
        let segment = MarkedText { text: text.to_string(), marks };
        Some(Found { range: source, segment, markup })
    }
}

/// Which of the tokens are the segment; `is_written` says whether the end at an index is written in another way. Those at the edges that are no text are left out.
fn between_edges(
    all: &[Token],
    text: &str,
    is_written: impl Fn(usize) -> bool,
) -> Option<(usize, usize)> {
    let blank = |range: Range<usize>| text[range].trim().is_empty();
    let skipped = |token: &Token| match token.kind {
        Kind::Text { .. } | Kind::Break | Kind::MarkedBreak => blank(token.text.clone()),
        Kind::Point | Kind::Open { close: None } => true,
        _ => false,
    };
    let (mut low, mut high) = (0, all.len());
    loop {
        let before = (low, high);
        while low < high && skipped(&all[low]) {
            low += 1;
        }
        while low < high && skipped(&all[high - 1]) {
            high -= 1;
        }
        if low == high {
            return None;
        }
        if let Kind::Open { close: Some(close) } = all[low].kind {
            let close = close.get();
            if blank(all[low].text.end..all[close].text.start) {
                low = close + 1;
            } else if close + 1 == high && !is_written(close) {
                low += 1;
                high -= 1;
            }
        }
        if low < high
            && let Kind::Close { open } = all[high - 1].kind
            && blank(all[open].text.end..all[high - 1].text.start)
        {
            high = open;
        }
        if (low, high) == before {
            return Some((low, high));
        }
    }
}
