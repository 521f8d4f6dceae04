//! Builds a segment from the runs of text and the inline markup of a paragraph.

use crate::lines::join_without_space;
use crate::marked_text::{Mark, MarkKind, MarkedText};
use std::mem;
use std::num::NonZeroU32;
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
    /// The bytes of each piece of markup that a mark has as its source, in order; empty if they are not needed.
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

/// A piece of the source. In a text of markup alone there is one for each byte, so it is small: a document has less
/// than [`LONGEST`] bytes. Its text begins where that of the token before it ends.
struct Token {
    source: [u32; 2],
    text_end: u32,
    kind: Kind,
}

/// A document has fewer bytes.
pub(super) const LONGEST: usize = u32::MAX as usize;

/// A place in a document, or in its text, which is no longer.
pub(super) fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Token {
    fn source(&self) -> Range<usize> {
        self.source[0] as usize..self.source[1] as usize
    }
}

/// The bytes of the text of token `index`.
fn text_range(tokens: &[Token], index: usize) -> Range<usize> {
    let start = index.checked_sub(1).and_then(|before| tokens.get(before));
    let end = tokens.get(index).map_or(0, |token| token.text_end as usize);
    start.map_or(0, |before| before.text_end as usize)..end
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
    /// Tags that are a point because they have no counterpart, or are too deep.
    Unpaired,
    /// The index of its end, which is not the first token.
    Open {
        close: Option<NonZeroU32>,
    },
    Close {
        open: u32,
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
        if !self.after_space {
            self.text.push(' ');
        }
        self.after_space = true;
        self.push(range, Kind::Break);
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
        self.push_one_line(text);
        self.after_space = false;
        self.push(range, Kind::Keep);
    }

    /// Markup without text that readers see, such as an image.
    pub(super) fn point(&mut self, range: Range<usize>) {
        self.hidden(range);
        self.after_space = false;
    }

    /// Markup that readers do not see, such as a comment: white space before and after it is one space.
    pub(super) fn hidden(&mut self, range: Range<usize>) {
        self.push(range, Kind::Point);
    }

    /// A tag without a counterpart. Those that touch are one point, so that thousands of them take no more memory than text.
    fn unpaired(&mut self, range: Range<usize>) {
        if let Some(Token { source, kind: Kind::Unpaired, .. }) = self.tokens.last_mut()
            && source[1] == narrow(range.start)
        {
            source[1] = narrow(range.end);
            return;
        }
        self.push(range, Kind::Unpaired);
    }

    /// The begin of an element.
    pub(super) fn open(&mut self, range: Range<usize>, name: &str, becomes: Becomes) {
        if self.open.len() == DEPTH {
            return self.unpaired(range);
        }
        self.open.push(Opened {
            name: name.to_ascii_lowercase(),
            token: self.tokens.len(),
            becomes,
        });
        self.push(range, Kind::Open { close: None });
    }

    /// The end of an element. Elements that were opened after it and have no end are points.
    pub(super) fn close(&mut self, range: Range<usize>, name: &str, written: Option<String>) {
        let Some(at) = self.open.iter().rposition(|open| open.name.eq_ignore_ascii_case(name))
        else {
            return self.unpaired(range);
        };
        let (from, becomes) = (self.open[at].token, self.open[at].becomes);
        self.open.truncate(at);
        let begin = self.tokens[from].source().start;
        let text_begin = text_range(&self.tokens, from).start;
        let hidden = becomes == Becomes::Point
            || becomes == Becomes::Keep && self.text[text_begin..].trim().is_empty();
        if becomes == Becomes::Wrap {
            let index = self.tokens.len();
            self.tokens[from].kind = Kind::Open { close: NonZeroU32::new(narrow(index)) };
            self.written.extend(written.map(|written| (index, written)));
            self.push(range, Kind::Close { open: narrow(from) });
        } else {
            self.tokens.truncate(from);
            self.written.truncate(self.written.partition_point(|(token, _)| *token < from));
            if hidden {
                self.text.truncate(text_begin);
                self.push(begin..range.end, Kind::Point);
            } else {
                self.push(begin..range.end, Kind::Keep);
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
        let start = narrow(source.start);
        let touching = match self.tokens.as_slice() {
            [.., last, Token { kind: Kind::Break, source: line_end, .. }]
                if line_end[0] == last.source[1] && line_end[1] == start =>
            {
                Some((last, 2))
            }
            [.., last] if last.source[1] == start => Some((last, 1)),
            _ => None,
        };
        if let Some((last, from_end)) = touching
            && let Kind::Text { raw: [begin, _] } = last.kind
            && !is_blank(text_from..end)
            && !is_blank(text_range(&self.tokens, self.tokens.len() - from_end))
        {
            self.tokens.truncate(self.tokens.len() + 1 - from_end);
            if let Some(last) = self.tokens.last_mut() {
                (last.source[1], last.text_end) = (narrow(source.end), narrow(end));
                last.kind = Kind::Text { raw: [begin, raw] };
            }
            return;
        }
        self.push(source, Kind::Text { raw: [raw; 2] });
    }

    /// A token whose text is what came to the text since the token before it.
    fn push(&mut self, source: Range<usize>, kind: Kind) {
        let source = [narrow(source.start), narrow(source.end)];
        self.tokens.push(Token { source, text_end: narrow(self.text.len()), kind });
    }

    /// Takes back the space of a line break between two characters of a script without spaces.
    fn join_lines(&mut self, next: Option<char>) {
        let space = text_range(&self.tokens, self.tokens.len().saturating_sub(1));
        let (Some(last), Some(next)) = (self.tokens.last_mut(), next) else { return };
        if matches!(last.kind, Kind::Break | Kind::MarkedBreak)
            && space.len() == 1
            && self.text[..space.start]
                .chars()
                .next_back()
                .is_some_and(|c| join_without_space(c, next))
        {
            self.text.truncate(space.start);
            last.text_end = narrow(space.start);
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
    /// space, images, tags that wrap all of it) does not belong to it. `markup`: whether [`Found::markup`] is needed.
    pub(super) fn finish(&mut self, markup: bool) -> Option<Found> {
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
        let text_of = |index: usize| text_range(&tokens, index);
        let letters = (low..high).any(|index| {
            matches!(tokens[index].kind, Kind::Text { .. })
                && text[text_of(index)].chars().any(char::is_alphabetic)
        });
        if !letters {
            return None;
        }
        let mut source = first.source().start..last.source().end;
        if matches!(first.kind, Kind::Text { raw: [true, _] }) {
            let raw = self.source.get(first.source())?;
            source.start += raw.len() - raw.trim_start().len();
        }
        if matches!(last.kind, Kind::Text { raw: [_, true] }) {
            let raw = self.source.get(last.source())?;
            source.end -= raw.len() - raw.trim_end().len();
        }
        let first_text = text_of(low).start;
        let untrimmed = &text[first_text..text_of(high - 1).end];
        let base = first_text + untrimmed.len() - untrimmed.trim_start().len();
        let whole = untrimmed.trim();
        let place = |at: usize| at.saturating_sub(base).min(whole.len());
        let marked = |token: &&Token| {
            !matches!(token.kind, Kind::Text { .. } | Kind::Break | Kind::Close { .. })
        };
        let mut marks = Vec::with_capacity(tokens[low..high].iter().filter(marked).count());
        let mut all_markup = Vec::new();
        let mut index = low;
        while index < high {
            let token = &tokens[index];
            let mut raw = |range: Range<usize>| {
                all_markup.extend(markup.then(|| range.clone()));
                self.source.get(range).map(str::to_string)
            };
            let (range, kind) = match &token.kind {
                Kind::Text { .. } | Kind::Break | Kind::Close { .. } => {
                    index += 1;
                    continue;
                }
                Kind::Keep => {
                    (text_of(index), MarkKind::Keep { source: Some(raw(token.source())?) })
                }
                Kind::Open { close: Some(at) } => {
                    let at = at.get() as usize;
                    let close = &tokens[at];
                    let inside = text_of(index).end..text_of(at).start;
                    if inside.is_empty() {
                        // Nothing that could be wrapped: one point, with all that is inside.
                        let source = raw(token.source().start..close.source().end)?;
                        let range = text_of(index);
                        index = at;
                        (range, MarkKind::Point { source })
                    } else {
                        let open = raw(token.source())?;
                        let close = match written(at) {
                            Some(written) => written,
                            None => raw(close.source())?,
                        };
                        (inside, MarkKind::Wrap { open, close })
                    }
                }
                Kind::MarkedBreak => {
                    let end = text_of(index).end;
                    (end..end, MarkKind::Point { source: raw(token.source())? })
                }
                Kind::Point | Kind::Unpaired | Kind::Open { close: None } => {
                    (text_of(index), MarkKind::Point { source: raw(token.source())? })
                }
            };
            index += 1;
            marks.push(Mark { range: place(range.start)..place(range.end), kind, id: marks.len() });
        }
        // The end of an element comes after what is inside.
        all_markup.sort_unstable_by_key(|range| (range.start, range.end));
        let segment = MarkedText { text: whole.to_string(), marks };
        Some(Found { range: source, segment, markup: all_markup })
    }
}

/// Which of the tokens are the segment; `is_written` says whether the end at an index is written in another way. Those at
/// the edges that are no text are left out.
fn between_edges(
    all: &[Token],
    text: &str,
    is_written: impl Fn(usize) -> bool,
) -> Option<(usize, usize)> {
    let blank = |range: Range<usize>| text[range].trim().is_empty();
    let skipped = |index: usize| match all[index].kind {
        Kind::Text { .. } | Kind::Break | Kind::MarkedBreak => blank(text_range(all, index)),
        Kind::Point | Kind::Unpaired | Kind::Open { close: None } => true,
        _ => false,
    };
    let inside =
        |open: usize, close: usize| text_range(all, open).end..text_range(all, close).start;
    let (mut low, mut high) = (0, all.len());
    loop {
        let before = (low, high);
        while low < high && skipped(low) {
            low += 1;
        }
        while low < high && skipped(high - 1) {
            high -= 1;
        }
        if low == high {
            return None;
        }
        if let Kind::Open { close: Some(close) } = all[low].kind {
            let close = close.get() as usize;
            if blank(inside(low, close)) {
                low = close + 1;
            } else if close + 1 == high && !is_written(close) {
                low += 1;
                high -= 1;
            }
        }
        if low < high
            && let Kind::Close { open } = all[high - 1].kind
            && blank(inside(open as usize, high - 1))
        {
            high = open as usize;
        }
        if (low, high) == before {
            return Some((low, high));
        }
    }
}
