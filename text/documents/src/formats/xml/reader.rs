//! Reads XML, and finds its paragraphs.

use super::paragraph::{Kind, Paragraph};
use super::runs::Runs;
use super::styles::{Styles, WrapKey, attribute, canonical, canonical_tag};
use super::vocabulary::{Role, Vocabulary};
use crate::error::Error;
use crate::formats::html::attribute_text;
use crate::formats::places::{Aside, Places, Writing};
use crate::marked_text::MarkedText;
use core::fmt;
use quick_xml::NsReader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use std::ops::Range;

/// Elements in each other.
const DEEPEST: usize = 256;

/// Finds the segments of an XML file. `name` is what errors call it; `descriptions`: those of pictures are segments.
///
/// # Errors
/// It is not well-formed, defines entities, is nested deeper than 256 elements, or has more than text in the text of a run.
pub(crate) fn parse(
    source: &str,
    start: usize,
    name: &str,
    vocabulary: &Vocabulary,
    descriptions: bool,
    places: &mut Places<'_>,
) -> Result<(), Error> {
    let mut reader = Reader::new(source, vocabulary, places);
    reader.descriptions = descriptions;
    reader.read_part(start..source.len(), name)
}

/// The text of a part of an XML file that is one paragraph; `None` without a letter.
///
/// # Errors
/// As [`parse`].
pub(super) fn paragraph(
    source: &str,
    range: &Range<usize>,
    name: &str,
    vocabulary: &Vocabulary,
) -> Result<Option<(MarkedText, Runs)>, Error> {
    let mut places = Places::new(source);
    let mut reader = Reader::new(source, vocabulary, &mut places);
    let frame = reader.begin_paragraph(true);
    reader.frames.push(frame);
    reader.read_part(range.clone(), name)?;
    let (segments, _) = reader.paragraphs.pop().map(|one| one.finish(false)).unwrap_or_default();
    Ok(segments.into_iter().next().map(|(found, runs)| (found.segment, runs)))
}

impl<'s, 'v, 'p, 'q> Reader<'s, 'v, 'p, 'q> {
    fn new(source: &'s str, vocabulary: &'v Vocabulary, places: &'p mut Places<'q>) -> Self {
        Self {
            source,
            vocabulary,
            frames: Vec::new(),
            paragraphs: Vec::new(),
            objects: Vec::new(),
            styles: Styles::default(),
            text: String::new(),
            descriptions: false,
            places,
        }
    }

    /// Reads a part of the source in which every element ends.
    fn read_part(&mut self, range: Range<usize>, name: &str) -> Result<(), Error> {
        let source = self.source;
        let start = range.start;
        let reader = self;
        let depth = reader.frames.len();
        let mut events = NsReader::from_str(source.get(range).unwrap_or_default());
        let mut at = start;
        loop {
            let event = events.read_event();
            let end = start + events.buffer_position() as usize;
            let range = at..end;
            let result = match event {
                Ok(Event::Eof) if reader.frames.len() == depth => return Ok(()),
                Ok(Event::Eof) => Err(("the end of each element", "the end of the file".into())),
                Ok(Event::Start(tag)) => {
                    let (namespace, _) = events.resolver().resolve_element(tag.name());
                    reader.start(range, &tag, namespace_of(&namespace))
                }
                Ok(Event::Empty(tag)) => {
                    let (namespace, _) = events.resolver().resolve_element(tag.name());
                    let begun = reader.start(range.clone(), &tag, namespace_of(&namespace));
                    begun.map(|()| reader.end(end..end))
                }
                Ok(Event::End(_)) => {
                    reader.end(range);
                    Ok(())
                }
                Ok(Event::Text(text)) => {
                    reader.characters(range, &text);
                    Ok(())
                }
                Ok(Event::CData(text)) => {
                    reader.characters(range, &text);
                    Ok(())
                }
                Ok(Event::GeneralRef(reference)) => match decode(&reference) {
                    Some(c) => {
                        reader.characters(range, c.encode_utf8(&mut [0; 4]));
                        Ok(())
                    }
                    None => Err((
                        "references to characters, &lt;, &gt;, &amp;, &quot; and &apos;",
                        format!("&{};", &*reference),
                    )),
                },
                Ok(Event::DocType(declaration)) if declaration.contains(['[', '<']) => {
                    Err(("no entities that the file defines", "a DOCTYPE with declarations".into()))
                }
                Ok(Event::DocType(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_)) => Ok(()),
                Err(error) => Err(("well-formed XML", error.to_string())),
            };
            result.map_err(|(expected, found)| wrong(source, at, name, expected, found))?;
            if reader.paragraphs.last().is_some_and(Paragraph::is_beyond_memory) {
                let expected =
                    "properties that take at most 8 times the file, for all pieces of their runs";
                return Err(wrong(source, at, name, expected, "more"));
            }
            at = end;
        }
    }
}

/// The error of XML that has something else at a place.
pub(crate) fn wrong(
    source: &str,
    at: usize,
    name: &str,
    expected: &str,
    found: impl fmt::Display,
) -> Error {
    let before = source.as_bytes().get(..at).unwrap_or_default();
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    Error::invalid_input(format!("line {line} of {name}"), expected, found)
}

fn namespace_of<'n>(found: &ResolveResult<'n>) -> &'n str {
    match found {
        ResolveResult::Bound(Namespace(uri)) => uri,
        _ => "",
    }
}

/// The first of these attributes that a tag has.
fn first_of(tag: &BytesStart<'_>, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| attribute(tag, name))
}

/// The character that a reference stands for.
pub(crate) fn decode(reference: &quick_xml::events::BytesRef<'_>) -> Option<char> {
    match reference.resolve_char_ref() {
        Ok(Some(c)) => Some(c),
        Ok(None) => resolve_predefined_entity(reference).and_then(|text| text.chars().next()),
        Err(_) => None,
    }
}

/// An element that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// Around paragraphs.
    Outside,
    Skipped,
    Paragraph,
    Run,
    Properties {
        start: usize,
    },
    /// The text of a run, and whether white space at its ends stays.
    Text {
        start: usize,
        preserve: bool,
    },
    /// A text without a run.
    BareText,
    Wrap,
    /// A wrap that says nothing about its text.
    Transparent,
    WrapHead {
        start: usize,
    },
    WrapContent,
    /// What follows that in the same wrap.
    WrapTail {
        start: usize,
    },
    /// An element in a paragraph that is read as one piece, and what is in it.
    Object,
    /// The same, in which nothing is text.
    SkippedObject,
    Inside,
    /// The text of a field.
    FieldText,
    /// A style of words.
    Style {
        start: usize,
    },
}

/// An element in a paragraph that is read as one piece.
#[derive(Debug)]
struct Object {
    start: usize,
    role: Role,
    /// Its own text.
    text: String,
    /// An attribute: how many spaces there are, or which part of a field it is.
    value: String,
}

struct Reader<'s, 'v, 'p, 'q> {
    source: &'s str,
    vocabulary: &'v Vocabulary,
    frames: Vec<Frame>,
    paragraphs: Vec<Paragraph<'s>>,
    objects: Vec<Object>,
    styles: Styles,
    /// The text of the element that is read.
    text: String,
    descriptions: bool,
    places: &'p mut Places<'q>,
}

type Wrong = (&'static str, String);

impl<'s> Reader<'s, '_, '_, '_> {
    fn role(&self, tag: &BytesStart<'_>, namespace: &str) -> Option<Role> {
        let mut namespaces = self.vocabulary.namespaces.iter();
        let found = namespaces.find(|one| one.uris.is_empty() || one.uris.contains(&namespace))?;
        let local = tag.local_name();
        let mut elements = found.elements.iter();
        let role = elements.find(|(name, _)| *name == local.as_ref()).map(|&(_, role)| role);
        match role {
            Some(Role::Description) if self.descriptions => Some(Role::BareParagraph),
            Some(Role::Description) => Some(Role::Skipped),
            other => other,
        }
    }

    /// Adds the attributes of a tag that are read out in place of a picture.
    fn describe(&mut self, tag: &BytesStart<'_>) {
        let local = tag.local_name();
        let mut elements = self.vocabulary.attributes.iter();
        let Some((_, names)) = elements.find(|(name, _)| *name == local.as_ref()) else { return };
        for one in tag.attributes().with_checks(false).flatten() {
            if !names.contains(&one.key.local_name().as_ref()) {
                continue;
            }
            // The value is a part of the source.
            let at = (one.value.as_ptr() as usize).wrapping_sub(self.source.as_ptr() as usize);
            let range = at..at.saturating_add(one.value.len());
            let before = self.source.get(..at).and_then(|before| before.chars().next_back());
            let quote = before.filter(|quote| matches!(quote, '"' | '\''));
            if self.source.get(range.clone()) != Some(&*one.value) || quote.is_none() {
                continue;
            }
            let Some(aside) = attribute_text(self.source, range, quote, true) else { continue };
            match self.paragraphs.last_mut() {
                Some(paragraph) => {
                    paragraph.has_asides = true;
                    paragraph.asides.push(aside);
                }
                None => self.places.push_aside(aside),
            }
        }
    }

    fn start(
        &mut self,
        range: Range<usize>,
        tag: &BytesStart<'_>,
        namespace: &str,
    ) -> Result<(), Wrong> {
        if self.frames.len() == DEEPEST {
            return Err(("at most 256 elements in each other", "another one".to_owned()));
        }
        let role = self.role(tag, namespace);
        let frame = match self.frames.last().copied().unwrap_or(Frame::Outside) {
            Frame::Outside => self.start_outside(range.start, tag, role),
            Frame::Skipped
            | Frame::SkippedObject
            | Frame::Properties { .. }
            | Frame::Style { .. } => Frame::Skipped,
            Frame::Object | Frame::Inside | Frame::FieldText => self.start_inside(role),
            Frame::Text { .. } | Frame::BareText => {
                let found = format!("<{}>", tag.name().0);
                return Err(("text alone in the text of a run", found));
            }
            Frame::WrapHead { start } if role == Some(Role::WrapContent) => {
                if let Some(paragraph) = self.paragraphs.last_mut() {
                    paragraph.open_wrap(start..range.end, WrapKey::Alone);
                }
                Frame::WrapContent
            }
            Frame::WrapHead { .. } | Frame::WrapTail { .. } => self.start_inside(role),
            Frame::Run => self.start_in_run(range, tag, role),
            Frame::Paragraph | Frame::Wrap | Frame::Transparent | Frame::WrapContent => {
                self.start_in_paragraph(range, tag, role)
            }
        };
        self.frames.push(frame);
        let is_read = matches!(frame, Frame::Outside | Frame::Object | Frame::Inside);
        if self.descriptions && is_read {
            self.describe(tag);
        }
        Ok(())
    }

    fn start_outside(&mut self, start: usize, tag: &BytesStart<'_>, role: Option<Role>) -> Frame {
        match role {
            Some(Role::Paragraph) => self.begin_paragraph(false),
            Some(Role::BareParagraph) => self.begin_paragraph(true),
            Some(Role::Skipped) => Frame::Skipped,
            _ if self.vocabulary.styles && Styles::is_begin(tag) => Frame::Style { start },
            _ => Frame::Outside,
        }
    }

    fn begin_paragraph(&mut self, bare: bool) -> Frame {
        self.paragraphs.push(Paragraph::new(self.source, bare));
        Frame::Paragraph
    }

    fn start_inside(&mut self, role: Option<Role>) -> Frame {
        match role {
            Some(Role::Paragraph | Role::BareParagraph) => {
                if let Some(around) = self.paragraphs.last_mut() {
                    around.has_asides = true;
                }
                self.begin_paragraph(role == Some(Role::BareParagraph))
            }
            Some(Role::Skipped) => Frame::Skipped,
            Some(Role::Text) => match self.objects.last() {
                Some(Object { role: Role::Field, .. }) => Frame::FieldText,
                _ => Frame::Inside,
            },
            _ => Frame::Inside,
        }
    }

    fn start_in_paragraph(
        &mut self,
        range: Range<usize>,
        tag: &BytesStart<'_>,
        role: Option<Role>,
    ) -> Frame {
        let Some(paragraph) = self.paragraphs.last_mut() else { return Frame::Outside };
        match role {
            Some(Role::Paragraph | Role::BareParagraph) => {
                paragraph.point(range, Kind::Break, true);
                self.begin_paragraph(role == Some(Role::BareParagraph))
            }
            Some(Role::Run) => {
                let end = format!("</{}>", tag.name().0);
                if paragraph.tags.run_end.is_empty() {
                    paragraph.tags.run_end.clone_from(&end);
                }
                if paragraph.tags.run_end != end {
                    // Two names of one namespace.
                    return self.begin_object(range, tag, None);
                }
                let style = canonical_tag(tag, self.vocabulary.ignored, false);
                paragraph.begin_run(range.start, style);
                Frame::Run
            }
            Some(Role::Text) => {
                paragraph.point(range, Kind::Break, true);
                Frame::BareText
            }
            Some(Role::Wrap)
                if attribute(tag, "translate").as_deref() == Some("no")
                    || attribute(tag, "mtype").as_deref() == Some("protected") =>
            {
                self.begin_object(range, tag, Some(Role::Field))
            }
            Some(Role::Wrap | Role::WrapContent) => {
                let key = match self.vocabulary.styles {
                    true => self.styles.key(tag),
                    false => Some(WrapKey::Tag),
                };
                let Some(key) = key else {
                    paragraph.point(range, Kind::PlainOpen, false);
                    return Frame::Transparent;
                };
                paragraph.open_wrap(range, key);
                Frame::Wrap
            }
            Some(Role::WrapHead) => Frame::WrapHead { start: range.start },
            _ => self.begin_object(range, tag, role),
        }
    }

    fn start_in_run(
        &mut self,
        range: Range<usize>,
        tag: &BytesStart<'_>,
        role: Option<Role>,
    ) -> Frame {
        let Some(paragraph) = self.paragraphs.last_mut() else { return Frame::Outside };
        match role {
            Some(Role::Properties) if paragraph.is_run_empty() => {
                Frame::Properties { start: range.start }
            }
            Some(Role::Text) => {
                let name = tag.name().0;
                let space = self.vocabulary.space_attribute;
                if paragraph.tags.text[1].is_empty() {
                    let attribute = if space { " xml:space=\"preserve\"" } else { "" };
                    paragraph.tags.text = [format!("<{name}{attribute}>"), format!("</{name}>")];
                }
                let preserve = !space || attribute(tag, "space").as_deref() == Some("preserve");
                self.text.clear();
                Frame::Text { start: range.start, preserve }
            }
            Some(Role::Paragraph | Role::BareParagraph) => {
                paragraph.point(range, Kind::Break, true);
                self.begin_paragraph(role == Some(Role::BareParagraph))
            }
            _ => self.begin_object(range, tag, role),
        }
    }

    fn begin_object(
        &mut self,
        range: Range<usize>,
        tag: &BytesStart<'_>,
        role: Option<Role>,
    ) -> Frame {
        let value = match role {
            Some(Role::Spaces) => attribute(tag, "c"),
            Some(Role::FieldMark) => attribute(tag, "fldCharType"),
            Some(Role::PairBegin) => first_of(tag, &["i", "rid", "id"]),
            Some(Role::PairEnd) => first_of(tag, &["i", "rid", "startRef", "id"]),
            _ => None,
        };
        let (role, frame) = match role {
            Some(Role::Skipped) => (Role::Object, Frame::SkippedObject),
            Some(role) => (role, Frame::Object),
            // If it has text, it is a field.
            None => (Role::Field, Frame::Object),
        };
        let value = value.unwrap_or_default();
        self.objects.push(Object { start: range.start, role, text: String::new(), value });
        frame
    }

    /// The end of the element that is open; `range` is its end tag, or nothing.
    fn end(&mut self, range: Range<usize>) {
        let Some(frame) = self.frames.pop() else { return };
        if frame == Frame::Paragraph {
            return self.end_paragraph();
        }
        if let Frame::Style { start } = frame {
            let raw = self.source.get(start..range.end).unwrap_or_default();
            return self.styles.add(raw, self.vocabulary.ignored);
        }
        let ignored = self.vocabulary.ignored;
        let Some(paragraph) = self.paragraphs.last_mut() else { return };
        match frame {
            Frame::Run => paragraph.end_run(range.end),
            Frame::Properties { start } => {
                let raw = self.source.get(start..range.end).unwrap_or_default();
                paragraph.add_properties(&canonical(raw, ignored, true));
            }
            Frame::Text { start, preserve } => {
                let white = |c: char| c.is_ascii_whitespace();
                let text = if preserve { &self.text } else { self.text.trim_matches(white) };
                let source = start..range.end;
                match self.vocabulary.lines {
                    true => paragraph.lines(source, text),
                    false => paragraph.text(source, text),
                }
            }
            Frame::BareText => paragraph.point(range, Kind::Break, true),
            Frame::Wrap => paragraph.close_wrap(range),
            Frame::Transparent => paragraph.point(range, Kind::PlainClose, false),
            Frame::WrapContent => {
                // The end of what is around it belongs to its own.
                if let Some(head) = self.frames.last_mut() {
                    *head = Frame::WrapTail { start: range.start };
                }
            }
            Frame::WrapTail { start } => paragraph.close_wrap(start..range.end),
            Frame::WrapHead { start } => paragraph.point(start..range.end, Kind::Point, true),
            Frame::Object | Frame::SkippedObject => self.end_object(range.end),
            _ => {}
        }
    }

    fn end_object(&mut self, end: usize) {
        let (Some(object), Some(paragraph)) = (self.objects.pop(), self.paragraphs.last_mut())
        else {
            return;
        };
        let source = object.start..end;
        match object.role {
            Role::Break => paragraph.point(source, Kind::Break, true),
            Role::Spaces if matches!(object.value.as_str(), "" | "1") => {
                paragraph.bare_text(source, " ", true);
            }
            Role::Spaces => paragraph.point(source, Kind::Break, true),
            Role::Character(c) => paragraph.text(source, c.encode_utf8(&mut [0; 4])),
            Role::FieldMark => {
                let kind = match object.value.as_str() {
                    "begin" => Kind::FieldBegin,
                    "separate" => Kind::FieldMiddle,
                    "end" => Kind::FieldEnd,
                    _ => Kind::Point,
                };
                paragraph.point(source, kind, true);
            }
            Role::Instruction => {
                let link = object.text.trim_start().starts_with("HYPERLINK");
                paragraph.point(source, Kind::Instruction(link), false);
            }
            Role::Mark => paragraph.point(source, Kind::Ordered, false),
            Role::Dropped => paragraph.has_asides = false,
            Role::PairBegin => paragraph.pair(source, Kind::PairBegin, object.value),
            Role::PairEnd => paragraph.pair(source, Kind::PairEnd, object.value),
            Role::Field => paragraph.keep(source, &object.text),
            _ => paragraph.point(source, Kind::Point, true),
        }
    }

    fn end_paragraph(&mut self) {
        let Some(paragraph) = self.paragraphs.pop() else { return };
        let (segments, mut asides) = paragraph.finish(!self.paragraphs.is_empty());
        let segments =
            segments.into_iter().map(|(found, runs)| (found, Writing::Runs(Box::new(runs))));
        if let Some(around) = self.paragraphs.last_mut() {
            let own =
                segments.map(|(found, writing)| Aside::new(&found.range, found.segment, writing));
            around.asides.extend(own.chain(asides));
            return;
        }
        asides.sort_by_key(|aside| aside.range().start);
        let mut asides = asides.into_iter().peekable();
        for (found, writing) in segments {
            let mut before = Vec::new();
            let end = found.range.end;
            while let Some(aside) = asides.next_if(|aside| aside.range().start < end) {
                before.push(aside);
            }
            self.places.push_with(Some(found), writing, &mut before);
        }
        asides.for_each(|aside| self.places.push_aside(aside));
    }

    /// Text, with its references replaced.
    fn characters(&mut self, range: Range<usize>, text: &str) {
        match self.frames.last() {
            Some(Frame::Text { .. }) => self.text.push_str(text),
            Some(Frame::Object | Frame::FieldText) => {
                if let Some(object) = self.objects.last_mut() {
                    object.text.push_str(text);
                }
            }
            Some(Frame::BareText) => {
                if let Some(paragraph) = self.paragraphs.last_mut() {
                    paragraph.bare_text(range, text, self.vocabulary.collapse);
                }
            }
            Some(Frame::Paragraph | Frame::Wrap | Frame::Transparent | Frame::WrapContent) => {
                if let Some(paragraph) = self.paragraphs.last_mut().filter(|one| one.bare) {
                    paragraph.bare_text(range, text, self.vocabulary.collapse);
                }
            }
            _ => {}
        }
    }
}
