//! The places of the segments in a source, and how changed segments are written there.

use super::inline::{Found, narrow};
use super::markdown_writer::Context;
use super::xml::{Pair, Runs};
use crate::marked_text::MarkedText;
use std::ops::Range;
use std::time::Duration;

/// How a changed segment is written at its place.
#[derive(Clone, Debug)]
pub(super) enum Writing {
    /// If there were several lines.
    Plain(Option<Box<Lines>>),
    Markdown(Context),
    /// `xml`: only the references that XML has.
    Html {
        xml: bool,
    },
    /// The value of an attribute, between two of `quote`. Without them, it is written with quotation marks.
    Attribute {
        quote: Option<char>,
        xml: bool,
    },
    /// On at most so many lines.
    Cue {
        lines: u32,
        vtt: bool,
        cue: Option<Box<Cue>>,
    },
    /// `ascii`: the document has escapes for all other characters.
    Json {
        ascii: bool,
    },
    /// A text in an ICU message, in a string of JSON. `doubled`: an apostrophe is written twice; `plural`: `#` is a number.
    Icu {
        ascii: bool,
        doubled: bool,
        plural: bool,
    },
    /// In the runs of an office document, or in other XML.
    Runs(Box<Runs>),
    /// The target of a pair.
    Pair(Box<Pair>),
    /// With quotation marks, and with the white space that the message begins and ends in, as it is escaped.
    Gettext(Box<[String; 2]>),
}

/// The lines of a paragraph of plain text.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// Columns of the widest line nearby, with its prefix.
    pub(super) width: usize,
    /// The bytes of the source that the second line has before its text.
    pub(super) prefix: Range<usize>,
}

/// When a segment of subtitles is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cue {
    /// From the begin of the film.
    pub begin: Duration,
    /// Not before `begin`.
    pub end: Duration,
    /// Whether the segment cannot continue the one before it, because another speaker begins.
    pub new_speaker: bool,
}

impl Writing {
    /// What every line but the first begins with.
    pub(super) fn prefix<'s>(&self, source: &'s str) -> &'s str {
        match self {
            Self::Plain(Some(lines)) => source.get(lines.prefix.clone()).unwrap_or(""),
            _ => "",
        }
    }
}

/// Where a segment stands in the source, and how another text is written there. A text of titles has one for each few bytes, so
/// it is small.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Bytes of the source.
    range: [u32; 2],
    pub(super) writing: Writing,
    /// It lies in the markup of the next segment that is not nested.
    pub(super) nested: bool,
    /// The bytes of the markup that nested segments lie in.
    pub(super) markup: Box<[Range<usize>]>,
}

impl Place {
    /// Bytes of the source.
    pub(super) fn range(&self) -> Range<usize> {
        wide(self.range)
    }
}

/// A text in the markup of a paragraph, such as an attribute, that is found before the paragraph ends.
#[derive(Debug)]
pub(super) struct Aside {
    range: [u32; 2],
    segment: MarkedText,
    writing: Writing,
}

impl Aside {
    pub(super) fn new(range: &Range<usize>, segment: MarkedText, writing: Writing) -> Self {
        Self { range: [narrow(range.start), narrow(range.end)], segment, writing }
    }

    /// Bytes of the source.
    pub(super) fn range(&self) -> Range<usize> {
        wide(self.range)
    }
}

fn wide([start, end]: [u32; 2]) -> Range<usize> {
    start as usize..end as usize
}

/// The segments found so far.
pub(super) struct Places<'s> {
    source: &'s str,
    segments: Vec<MarkedText>,
    places: Vec<Place>,
    /// Where the last segment ends that is not nested.
    end: usize,
    /// The first segment that has no place of its own.
    misplaced: Option<Range<usize>>,
    /// What is written at a place before a changed segment, in order.
    pub(super) insertions: Vec<(usize, String)>,
}

impl<'s> Places<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self {
            source,
            segments: Vec::new(),
            places: Vec::new(),
            end: 0,
            misplaced: None,
            insertions: Vec::new(),
        }
    }

    /// Adds a segment, whose range is in the source and after that of the last one. Another one makes [`Self::into_parts`] fail.
    pub(super) fn push(&mut self, found: Found, writing: Writing) {
        self.push_around(found.range, found.segment, writing, Vec::new());
    }

    /// Adds a segment that was found before its paragraph ended.
    pub(super) fn push_aside(&mut self, aside: Aside) {
        self.push_around(aside.range(), aside.segment, aside.writing, Vec::new());
    }

    /// Adds a paragraph, if there is one, and the texts in and around its markup.
    pub(super) fn push_with(
        &mut self,
        found: Option<Found>,
        writing: Writing,
        asides: &mut Vec<Aside>,
    ) {
        // In place: there may be one for each few bytes.
        asides.sort_unstable_by_key(|aside| aside.range);
        let mut asides = core::mem::take(asides).into_iter().peekable();
        if let Some(found) = found {
            while let Some(aside) = asides.next_if(|one| one.range().end <= found.range.start) {
                self.push_aside(aside);
            }
            let is_next = self.is_next(&found.range);
            let mut markup: Vec<Range<usize>> = Vec::new();
            while let Some(aside) = asides.next_if(|one| one.range().start < found.range.end) {
                let range = aside.range();
                let next = found.markup.partition_point(|one| one.end < range.end);
                match found.markup.get(next).filter(|one| one.start <= range.start) {
                    Some(one) if is_next => {
                        if markup.last() != Some(one) {
                            markup.push(one.clone());
                        }
                        self.add(&range, aside.segment, aside.writing, true, Vec::new());
                    }
                    // The paragraph has no place of its own, which is reported below.
                    Some(_) => {}
                    None => {
                        self.misplaced.get_or_insert(range);
                    }
                }
            }
            self.push_around(found.range, found.segment, writing, markup);
        }
        asides.for_each(|aside| self.push_aside(aside));
    }

    fn push_around(
        &mut self,
        range: Range<usize>,
        segment: MarkedText,
        writing: Writing,
        markup: Vec<Range<usize>>,
    ) {
        if self.is_next(&range) {
            self.end = range.end;
            self.add(&range, segment, writing, false, markup);
        } else {
            self.misplaced.get_or_insert(range);
        }
    }

    fn add(
        &mut self,
        range: &Range<usize>,
        segment: MarkedText,
        writing: Writing,
        nested: bool,
        markup: Vec<Range<usize>>,
    ) {
        self.segments.push(segment);
        let range = [narrow(range.start), narrow(range.end)];
        self.places.push(Place { range, writing, nested, markup: markup.into() });
    }

    fn is_next(&self, range: &Range<usize>) -> bool {
        range.start >= self.end && self.source.get(range.clone()).is_some_and(|raw| !raw.is_empty())
    }

    /// The segments and their places.
    ///
    /// # Errors
    /// A segment has no place of its own, so that its translation could not be written: its line, from 1.
    pub(super) fn into_parts(self) -> Result<(Vec<MarkedText>, Vec<Place>), usize> {
        let Some(range) = self.misplaced else { return Ok((self.segments, self.places)) };
        let before = self.source.as_bytes().get(..range.start).unwrap_or(self.source.as_bytes());
        Err(before.iter().filter(|&&byte| byte == b'\n').count() + 1)
    }
}

/// The lines without their ends.
pub(super) fn lines(source: &str, start: usize) -> Vec<Range<usize>> {
    let mut at = start;
    let mut lines = Vec::new();
    for line in source[start..].split_inclusive('\n') {
        let text = line.strip_suffix('\n').unwrap_or(line);
        let text = text.strip_suffix('\r').unwrap_or(text);
        lines.push(at..at + text.len());
        at += line.len();
    }
    lines
}
