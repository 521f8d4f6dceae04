//! Reads HTML.

use super::inline::{Becomes, Inline, WhiteSpace};
use super::places::{Aside, Places, Writing};
use super::tags::{self, Element, Markup, Tag};
use std::ops::Range;

/// How a page is read.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    /// Attributes that people read are segments.
    pub(super) attributes: bool,
    /// It is XHTML: every element may be empty, and XML has few names of characters.
    pub(super) xml: bool,
}

/// Finds the segments of a page or a fragment.
pub(super) fn parse(source: &str, range: Range<usize>, reading: Reading, places: &mut Places) {
    let inline = Inline::new(source);
    let asides = Vec::new();
    let mut reader = Reader { source, limit: range.end, reading, inline, asides, places };
    let mut at = range.start;
    while at < range.end {
        let next = tags::find(source, at, range.end, b'<').unwrap_or(range.end);
        text(source, at..next, &mut reader.inline);
        if next == range.end {
            break;
        }
        at = match tags::markup_at(source, next, range.end) {
            Markup::Tag(tag) => reader.tag(next, &tag),
            Markup::Other(end) => {
                reader.inline.hidden(next..end);
                end
            }
            Markup::Literal => {
                reader.inline.raw(next..next + 1, WhiteSpace::Collapse);
                next + 1
            }
            Markup::Unfinished => break,
        };
    }
    reader.end_segment();
}

struct Reader<'s, 'p, 'q> {
    source: &'s str,
    limit: usize,
    reading: Reading,
    inline: Inline<'s>,
    asides: Vec<Aside>,
    places: &'p mut Places<'q>,
}

impl Reader<'_, '_, '_> {
    /// Handles a tag that begins at `at`, and returns where to read on.
    fn tag(&mut self, at: usize, tag: &Tag) -> usize {
        let range = at..tag.end;
        let Reading { attributes: readable, xml } = self.reading;
        if readable && !self.inline.is_kept() {
            attributes(self.source, tag, xml, &mut self.asides);
        }
        match tags::element(tag.name) {
            Element::Preformatted | Element::Title if xml && tag.empty => self.end_segment(),
            Element::Inline(_) if tag.closing => self.inline.close(range, tag.name, None),
            Element::Inline(_) if tag.empty => self.inline.point(range),
            Element::Inline(_) if tag.no_translate => {
                self.inline.open(range, tag.name, Becomes::Keep)
            }
            Element::Inline(becomes) => self.inline.open(range, tag.name, becomes),
            Element::Void => self.inline.point(range),
            Element::LineEnd => self.end_segment(),
            Element::Block | Element::Preformatted | Element::Title if tag.closing => {
                self.end_segment()
            }
            Element::Preformatted => {
                self.end_segment();
                return tags::element_end(self.source, tag.end, self.limit, tag.name);
            }
            Element::Block | Element::Title if tag.no_translate && !tag.empty => {
                self.end_segment();
                return tags::element_end(self.source, tag.end, self.limit, tag.name);
            }
            Element::Title => {
                self.end_segment();
                let (end, after) = tags::raw_text_end(self.source, tag.end, self.limit, tag.name);
                text(self.source, tag.end..end, &mut self.inline);
                self.end_segment();
                return after;
            }
            Element::Block => self.end_segment(),
            Element::RawText | Element::Foreign if tag.closing || tag.empty => {
                self.inline.hidden(range)
            }
            Element::RawText => {
                let (_, after) = tags::raw_text_end(self.source, tag.end, self.limit, tag.name);
                self.inline.hidden(at..after);
                return after;
            }
            Element::Foreign => {
                let after = tags::element_end(self.source, tag.end, self.limit, tag.name);
                self.inline.point(at..after);
                return after;
            }
        }
        tag.end
    }

    fn end_segment(&mut self) {
        let found = self.inline.finish(!self.asides.is_empty());
        let writing = Writing::Html { xml: self.reading.xml };
        self.places.push_with(found, writing, &mut self.asides);
    }
}

/// Adds the attributes of a tag that people read.
pub(super) fn attributes(source: &str, tag: &Tag, xml: bool, asides: &mut Vec<Aside>) {
    asides.extend(
        tag.readable().filter_map(|(range, quote)| attribute_text(source, range, quote, xml)),
    );
}

/// The text of the value of an attribute, which stands in a range between two of `quote`; `None` without a letter.
pub(super) fn attribute_text(
    source: &str,
    range: Range<usize>,
    quote: Option<char>,
    xml: bool,
) -> Option<Aside> {
    let mut inline = Inline::new(source);
    text(source, range, &mut inline);
    let found = inline.finish(false)?;
    Some(Aside::new(&found.range, found.segment, Writing::Attribute { quote, xml }))
}

/// A run of text without tags.
pub(super) fn text(source: &str, range: Range<usize>, inline: &mut Inline) {
    let mut from = range.start;
    let mut at = range.start;
    while let Some(ampersand) = tags::find(source, at, range.end, b'&') {
        let decoded = source.get(ampersand..range.end).and_then(tags::decode_reference);
        at = ampersand + 1;
        if let Some((characters, length)) = decoded {
            inline.raw(from..ampersand, WhiteSpace::Collapse);
            at = ampersand + length;
            inline.decoded(ampersand..at, &characters);
            from = at;
        }
    }
    inline.raw(from..range.end, WhiteSpace::Collapse);
}
