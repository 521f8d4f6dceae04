//! The places of the segments in a source, and how changed segments are written there.

use super::inline::Found;
use super::markdown_writer::Context;
use crate::marked_text::MarkedText;
use std::ops::Range;
use std::time::Duration;

/// How a changed segment is written at its place.
#[derive(Clone, Debug)]
pub(super) enum Writing {
    /// `width`: columns of the widest line nearby, with its prefix, if there were several lines; then `prefix` is what the second
    /// line has before its text.
    Plain {
        width: Option<usize>,
        prefix: Range<usize>,
    },
    Markdown(Context),
    Html,
    /// The value of an attribute, between two of `quote`. Without them, it is written with quotation marks.
    Attribute {
        quote: Option<char>,
    },
    /// On at most so many lines.
    Cue {
        lines: usize,
        vtt: bool,
        cue: Option<Cue>,
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
    /// With quotation marks, and with the white space that the message begins and ends in, as it is escaped.
    Gettext {
        before: String,
        after: String,
    },
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
            Self::Plain { prefix, .. } => source.get(prefix.clone()).unwrap_or(""),
            _ => "",
        }
    }
}

/// Where a segment stands in the source, and how another text is written there.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Bytes of the source.
    pub(super) range: Range<usize>,
    pub(super) writing: Writing,
    /// It lies in the markup of the next segment that is not nested.
    pub(super) nested: bool,
    /// The bytes of the markup that nested segments lie in.
    pub(super) markup: Vec<Range<usize>>,
}

/// A text in the markup of a paragraph, such as an attribute, that is found before the paragraph ends.
pub(super) struct Aside {
    pub(super) found: Found,
    pub(super) writing: Writing,
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
}

impl<'s> Places<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, segments: Vec::new(), places: Vec::new(), end: 0, misplaced: None }
    }

    /// Adds a segment, whose range is in the source and after that of the last one. Another one makes [`Self::into_parts`] fail.
    pub(super) fn push(&mut self, found: Found, writing: Writing) {
        self.push_around(found, writing, Vec::new());
    }

    /// Adds a paragraph, if there is one, and the texts in and around its markup.
    pub(super) fn push_with(
        &mut self,
        found: Option<Found>,
        writing: Writing,
        asides: &mut Vec<Aside>,
    ) {
        asides.sort_by_key(|aside| aside.found.range.start);
        let Some(found) = found else {
            for aside in asides.drain(..) {
                self.push(aside.found, aside.writing);
            }
            return;
        };
        let mut markup: Vec<Range<usize>> = Vec::new();
        let mut nested: Vec<Aside> = Vec::new();
        let mut after: Vec<Aside> = Vec::new();
        for aside in asides.drain(..) {
            let range = &aside.found.range;
            if range.end <= found.range.start {
                self.push(aside.found, aside.writing);
            } else if range.start >= found.range.end {
                after.push(aside);
            } else {
                let next = found.markup.partition_point(|one| one.end < range.end);
                match found.markup.get(next).filter(|one| one.start <= range.start) {
                    Some(one) => {
                        if markup.last() != Some(one) {
                            markup.push(one.clone());
                        }
                        nested.push(aside);
                    }
                    None => {
                        self.misplaced.get_or_insert(range.clone());
                    }
                }
            }
        }
        if self.is_next(&found.range) {
            for aside in nested {
                self.segments.push(aside.found.segment);
                let (range, writing) = (aside.found.range, aside.writing);
                self.places.push(Place { range, writing, nested: true, markup: Vec::new() });
            }
        }
        self.push_around(found, writing, markup);
        for aside in after {
            self.push(aside.found, aside.writing);
        }
    }

    fn push_around(&mut self, found: Found, writing: Writing, markup: Vec<Range<usize>>) {
        let Found { range, segment, .. } = found;
        if self.is_next(&range) {
            self.end = range.end;
            self.segments.push(segment);
            self.places.push(Place { range, writing, nested: false, markup });
        } else {
            self.misplaced.get_or_insert(range);
        }
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
