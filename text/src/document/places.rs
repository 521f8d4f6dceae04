//! The places of the segments in a source, and how changed segments are written there.

use super::markdown_writer::Context;
use crate::marked_text::MarkedText;
use std::ops::Range;

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
    /// On at most so many lines.
    Cue {
        lines: usize,
        vtt: bool,
    },
    /// `ascii`: the document has escapes for all other characters.
    Json {
        ascii: bool,
    },
    /// With quotation marks, and with the line ends that the message begins and ends in.
    Gettext {
        lines_before: usize,
        lines_after: usize,
    },
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
}

/// The segments found so far.
pub(super) struct Places<'s> {
    source: &'s str,
    segments: Vec<MarkedText>,
    places: Vec<Place>,
}

impl<'s> Places<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, segments: Vec::new(), places: Vec::new() }
    }

    /// Adds a segment. A range that is not in the source or not after the last segment's is left untranslated: then the
    /// document still comes back byte for byte, whatever a parser reports.
    pub(super) fn push(&mut self, range: Range<usize>, segment: MarkedText, writing: Writing) {
        let last = self.places.last().map_or(0, |place| place.range.end);
        if range.start >= last && self.source.get(range.clone()).is_some_and(|raw| !raw.is_empty())
        {
            self.segments.push(segment);
            self.places.push(Place { range, writing });
        }
    }

    pub(super) fn into_parts(self) -> (Vec<MarkedText>, Vec<Place>) {
        (self.segments, self.places)
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
