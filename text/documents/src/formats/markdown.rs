//! Reads Markdown: CommonMark as `pulldown-cmark` reads it, with the bytes of each event.

use super::inline::{Becomes, Inline, WhiteSpace};
use super::markdown_titles::{definitions, title};
use super::markdown_writer::{Context, heading_attributes};
use super::places::{Aside, Places, Writing};
use super::tags::{self, Element, Markup};
use super::{Format, html};
use crate::error::Error;
use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};
use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_FOOTNOTES)
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_MATH)
    .union(Options::ENABLE_GFM)
    .union(Options::ENABLE_DEFINITION_LIST);

/// The name under which [`Inline`] has links; no element has it.
const LINK: &str = "[";

/// The most quotations and lists in each other. The parser looks at each of them at every line.
const DEEPEST: usize = 100;

/// Finds the segments.
pub(super) fn parse(
    source: &str,
    start: usize,
    attributes: bool,
    places: &mut Places,
) -> Result<(), Error> {
    let start = front_matter_end(source, start);
    let deep = source.lines().map(containers).enumerate().find(|&(_, found)| found > DEEPEST);
    if let Some((at, found)) = deep {
        let expected = "at most 100 quotations and lists in each other";
        return Err(Format::Markdown.error(at + 1, expected, found));
    }
    let parser = Parser::new_ext(&source[start..], OPTIONS);
    let definitions = match attributes {
        true => definitions(source, start, parser.reference_definitions()),
        false => VecDeque::new(),
    };
    let mut reader = Reader {
        source,
        attributes,
        inline: Inline::new(source),
        asides: Vec::new(),
        definitions,
        places,
        context: Context::Block,
        skipped: 0,
        done: start,
        quotations: 0,
        line_start: true,
        text_end: source.len(),
        template_end: 0,
        html: false,
        links: Vec::new(),
        image: None,
        row: None,
    };
    for (event, range) in parser.into_offset_iter() {
        reader.event(event, start + range.start..start + range.end);
    }
    reader.end_segment(source.len());
    reader.definitions_before(source.len());
    Ok(())
}

/// Where the front matter ends that a text begins with: lines between two of `---` or of `+++`.
fn front_matter_end(source: &str, start: usize) -> usize {
    let mut lines = source[start..].split_inclusive('\n');
    let first = lines.next().unwrap_or("");
    let sign = first.trim_end();
    if !matches!(sign, "---" | "+++") {
        return start;
    }
    let mut end = start + first.len();
    for (index, line) in lines.enumerate() {
        end += line.len();
        let line = line.trim_end();
        let closes = line == sign || line == "..." && sign == "---";
        if index == 0 && (closes || line.is_empty()) {
            return start;
        }
        if closes {
            return end;
        }
    }
    start
}

/// The quotations and lists that a line begins.
fn containers(line: &str) -> usize {
    let is_rule = |rest: &str| {
        let of = |sign| rest.chars().all(|c| c == sign || c.is_whitespace());
        of('-') || of('*')
    };
    let (mut rest, mut found, mut lists) = (line, 0, 0);
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('>') {
            rest = after;
        } else if lists == 0 && is_rule(rest) {
            return found;
        } else {
            let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            let signs: &[char] =
                if after.len() < rest.len() { &['.', ')'] } else { &['-', '+', '*', ':'] };
            match after.strip_prefix(signs) {
                Some(after) if after.starts_with([' ', '\t']) => rest = after,
                _ => return found,
            }
            lists += 1;
        }
        found += 1;
    }
}

struct OpenLink {
    end: usize,
    /// What its end is in a changed segment, if not the source.
    written: Option<String>,
}

/// An image whose alternative text is read.
struct Image<'s> {
    range: Range<usize>,
    /// The paragraph around it.
    inline: Inline<'s>,
    context: Context,
}

struct Reader<'s, 'p, 'q> {
    source: &'s str,
    attributes: bool,
    inline: Inline<'s>,
    /// Titles, alternative texts and attributes of the paragraph.
    asides: Vec<Aside>,
    /// The titles of definitions of links that are still to come.
    definitions: VecDeque<Aside>,
    places: &'p mut Places<'q>,
    context: Context,
    /// Elements that are open and whose content is not read.
    skipped: usize,
    /// Where the last inline event ended, or where the block begins.
    done: usize,
    quotations: usize,
    line_start: bool,
    /// Where the text of a heading ends: before its attributes.
    text_end: usize,
    /// Where the last line of template tags ends. What Markdown reads in such a line is no text.
    template_end: usize,
    /// The element that is skipped is a block of HTML.
    html: bool,
    links: Vec<OpenLink>,
    image: Option<Image<'s>>,
    /// Where the row of a table begins, before its first cell.
    row: Option<usize>,
}

impl Reader<'_, '_, '_> {
    fn event(&mut self, event: Event, range: Range<usize>) {
        if self.skipped > 0 {
            match event {
                Event::Start(_) => self.skipped += 1,
                Event::End(_) => self.skipped -= 1,
                _ => {}
            }
            if self.skipped == 0 {
                self.done = range.end;
                // Lines of a block in a quotation begin with its sign, which HTML would read as text.
                if self.html && self.quotations == 0 {
                    html::parse(
                        self.source,
                        range,
                        html::Reading { attributes: self.attributes, xml: false },
                        self.places,
                    );
                }
                self.html = false;
            }
            return;
        }
        if range.end <= self.template_end && is_inline(&event) {
            return;
        }
        let line_start = self.line_start;
        match event {
            Event::Start(tag) => return self.start(tag, range),
            Event::End(tag) => return self.end(tag, range),
            Event::Text(text) => self.text(&text, range.clone(), line_start),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.inline.keep(range.clone(), &text);
            }
            Event::InlineHtml(_) => self.inline_html(range.clone()),
            Event::FootnoteReference(_) => self.inline.point(range.clone()),
            Event::SoftBreak => self.inline.line_break(range.clone()),
            Event::HardBreak if self.image.is_some() => self.inline.line_break(range.clone()),
            Event::HardBreak | Event::Rule | Event::TaskListMarker(_) | Event::Html(_) => {
                self.end_segment(range.end);
            }
        }
        self.line_start = false;
        if let Some(b'\n' | b'\r') = self.source.as_bytes().get(range.end.wrapping_sub(1)) {
            self.line_start = true;
        }
        self.done = range.end;
    }

    fn start(&mut self, tag: Tag, range: Range<usize>) {
        match tag {
            Tag::Emphasis => self.open(range, 1),
            Tag::Strong => self.open(range, 2),
            Tag::Strikethrough => {
                let length = self.tildes(&range);
                self.open(range, length);
            }
            Tag::Link { link_type, title, .. } => self.link(link_type, &title, range),
            Tag::Image { link_type, title, .. } => self.image(link_type, &title, range),
            other => {
                self.end_segment(range.start);
                self.definitions_before(range.start);
                self.done = range.start;
                self.line_start = true;
                self.context = match other {
                    Tag::TableCell => {
                        let row = self.row.take();
                        Context::Cell {
                            first: row
                                .is_some_and(|at| self.source.as_bytes().get(at) != Some(&b'|')),
                        }
                    }
                    Tag::Heading { .. } => Context::Heading,
                    _ => Context::Block,
                };
                match other {
                    Tag::CodeBlock(_) | Tag::MetadataBlock(_) => self.skipped = 1,
                    Tag::HtmlBlock => {
                        self.skipped = 1;
                        self.html = true;
                    }
                    Tag::BlockQuote(_) => self.quotations += 1,
                    Tag::TableHead | Tag::TableRow => self.row = Some(range.start),
                    Tag::Heading { .. } => self.text_end = self.heading_end(range),
                    _ => {}
                }
            }
        }
    }

    fn end(&mut self, tag: TagEnd, range: Range<usize>) {
        match tag {
            TagEnd::Emphasis => self.close(range, 1),
            TagEnd::Strong => self.close(range, 2),
            TagEnd::Strikethrough => {
                let length = self.tildes(&range);
                self.close(range, length);
            }
            TagEnd::Image => {
                let Some(Image { range, inline, context }) = self.image.take() else { return };
                let found = mem::replace(&mut self.inline, inline).finish(false);
                let writing = Writing::Markdown(self.context);
                self.asides
                    .extend(found.map(|found| Aside::new(&found.range, found.segment, writing)));
                self.context = context;
                self.done = range.end;
                self.inline.point(range);
            }
            TagEnd::Link => {
                let Some(OpenLink { end, written }) = self.links.pop() else { return };
                self.inline.close(self.done..end, LINK, written);
                self.done = end;
            }
            other => {
                self.end_segment(range.end);
                self.context = Context::Block;
                self.done = range.end;
                self.line_start = true;
                match other {
                    TagEnd::BlockQuote(_) => self.quotations -= 1,
                    TagEnd::Heading(_) => self.text_end = self.source.len(),
                    _ => {}
                }
            }
        }
    }

    /// Ends the segment before byte `at` of the source. The title of a link that goes on after it is for the next one.
    fn end_segment(&mut self, at: usize) {
        let later: Vec<Aside> =
            self.asides.extract_if(.., |aside| aside.range().start >= at).collect();
        let found = self.inline.finish(!self.asides.is_empty());
        // The text of an item of a list is no block, and may follow definitions.
        let starts = || self.asides.iter().map(|aside| aside.range().start);
        let start = found.as_ref().map(|found| found.range.start).or_else(|| starts().max());
        if let Some(start) = start {
            let before = |aside: &mut Aside| aside.range().end <= start;
            self.asides.extend(core::iter::from_fn(|| self.definitions.pop_front_if(before)));
        }
        self.places.push_with(found, Writing::Markdown(self.context), &mut self.asides);
        self.asides = later;
        self.line_start = true;
    }

    /// Adds the titles of definitions that stand before a block.
    fn definitions_before(&mut self, at: usize) {
        let before = |aside: &mut Aside| aside.range().end <= at;
        while let Some(aside) = self.definitions.pop_front_if(before) {
            self.places.push_aside(aside);
        }
    }

    fn is_cell(&self) -> bool {
        matches!(self.context, Context::Cell { .. } | Context::Inside { cell: true })
    }

    /// The begin of an image. Of an image in an alternative text nothing is read.
    fn image(&mut self, link_type: LinkType, text: &str, range: Range<usize>) {
        if !self.attributes || self.image.is_some() || self.inline.is_kept() {
            self.inline.point(range);
            self.skipped = 1;
            return;
        }
        self.title(link_type, text, &range);
        self.done = range.start + 2;
        let inline = mem::replace(&mut self.inline, Inline::new(self.source));
        let context = self.context;
        self.context = Context::Inside { cell: self.is_cell() };
        self.image = Some(Image { range, inline, context });
    }

    /// The title of a link or an image, whose source ends in `"title")`.
    fn title(&mut self, link_type: LinkType, text: &str, range: &Range<usize>) {
        if link_type != LinkType::Inline || !self.attributes || self.image.is_some() {
            return;
        }
        let raw = self.source.get(range.clone()).and_then(|raw| raw.strip_suffix(')'));
        let found = raw.and_then(|raw| title(raw, range.start, text, self.is_cell()));
        self.asides.extend(found);
    }

    fn text(&mut self, text: &str, range: Range<usize>, line_start: bool) {
        let Some(raw) = self.source.get(range.clone()) else { return };
        if range.start >= self.text_end {
            return;
        }
        let end = range.end.min(self.text_end);
        // The range of an escaped character is without its backslash.
        let before = range.start.wrapping_sub(1);
        let escaped =
            before >= self.done && before < range.start && self.source.as_bytes()[before] == b'\\';
        let first = raw.chars().next().map_or(0, char::len_utf8);
        if escaped && first > 0 {
            self.inline.decoded(before..range.start + first, &raw[..first]);
            self.inline.raw(range.start + first..end, WhiteSpace::Preserve);
        } else if line_start && self.context == Context::Block && self.is_directive(range.start) {
            self.end_segment(range.start);
        } else if line_start && self.context == Context::Block && self.is_template(range.start) {
            self.end_segment(range.start);
            self.template_end = self.line_end(range.start);
        } else if raw == text {
            self.inline.raw(range.start..end, WhiteSpace::Preserve);
        } else {
            // An entity, or a character that stands before a line end which is part of the range.
            let end = if raw.starts_with(text) { range.start + text.len() } else { range.end };
            self.inline.decoded(range.start..end, text);
        }
    }

    /// Whether the line is the begin or end of a container (`:::`) or an admonition (`!!! note`), in dialects that have them.
    fn is_directive(&self, at: usize) -> bool {
        // The first colon may have been read as that of a definition.
        let from = if at > 0 && self.source[..at].ends_with(':') { at - 1 } else { at };
        [":::", "!!! ", "??? "].iter().any(|sign| self.source[from..].starts_with(sign))
    }

    /// Whether the line consists of template tags.
    fn is_template(&self, at: usize) -> bool {
        tags::is_template_line(&self.source[at..self.line_end(at)])
    }

    fn line_end(&self, at: usize) -> usize {
        self.source[at..].find(['\n', '\r']).map_or(self.source.len(), |length| at + length)
    }

    fn open(&mut self, range: Range<usize>, length: usize) {
        let delimiter = range.start..range.start + length;
        let name = self.source.get(delimiter.clone()).unwrap_or("");
        self.done = delimiter.end;
        self.inline.open(delimiter, name, Becomes::Wrap);
    }

    fn close(&mut self, range: Range<usize>, length: usize) {
        let delimiter = range.end.saturating_sub(length)..range.end;
        let name = self.source.get(delimiter.clone()).unwrap_or("");
        self.done = range.end;
        self.inline.close(delimiter, name, None);
    }

    fn tildes(&self, range: &Range<usize>) -> usize {
        let text = self.source.get(range.clone()).unwrap_or("");
        if text.starts_with("~~") && text.ends_with("~~") { 2 } else { 1 }
    }

    fn link(&mut self, link_type: LinkType, title: &str, range: Range<usize>) {
        self.title(link_type, title, &range);
        let raw = self.source.get(range.clone()).unwrap_or("");
        let mut end = range.end;
        let label = match link_type {
            LinkType::Inline => None,
            LinkType::Reference | LinkType::ReferenceUnknown => {
                // As it stands; so the whole of a segment is the same mark before and after a change.
                raw.rfind("][").map(|at| &raw[at + 1..])
            }
            LinkType::Collapsed | LinkType::CollapsedUnknown => {
                // The brackets that follow are not in the range.
                if self.source[range.end..].starts_with("[]") {
                    end += 2;
                }
                Some(raw)
            }
            LinkType::Shortcut | LinkType::ShortcutUnknown => Some(raw),
            LinkType::Autolink | LinkType::Email | LinkType::WikiLink { .. } => {
                self.skipped = 1;
                let address =
                    raw.strip_prefix('<').and_then(|raw| raw.strip_suffix('>')).unwrap_or(raw);
                return self.inline.keep(range, address);
            }
        };
        if label.is_some_and(|label| label.contains(['\n', '\r'])) {
            self.skipped = 1;
            return self.inline.keep(range.start..end, raw);
        }
        // A translated text is no label: `[label]` becomes `[text][label]`.
        self.links.push(OpenLink { end, written: label.map(|label| format!("]{label}")) });
        self.done = range.start + 1;
        self.inline.open(range.start..range.start + 1, LINK, Becomes::Wrap);
    }

    fn inline_html(&mut self, range: Range<usize>) {
        let Markup::Tag(tag) = tags::markup_at(self.source, range.start, range.end) else {
            return self.inline.hidden(range);
        };
        if self.attributes && !self.inline.is_kept() && self.image.is_none() {
            html::attributes(self.source, &tag, false, &mut self.asides);
        }
        match tags::element(tag.name) {
            Element::LineEnd | Element::Block if self.image.is_some() => self.inline.hidden(range),
            Element::Block if tag.closing && self.inline.is_kept_in(tag.name) => {
                self.inline.close(range, tag.name, None);
            }
            Element::Block if tag.no_translate && !tag.closing && !tag.empty => {
                self.inline.open(range, tag.name, Becomes::Keep);
            }
            Element::LineEnd | Element::Block => self.end_segment(range.end),
            Element::Void => self.inline.point(range),
            Element::Inline(_)
            | Element::RawText
            | Element::Foreign
            | Element::Preformatted
            | Element::Title
                if tag.closing =>
            {
                self.inline.close(range, tag.name, None);
            }
            _ if tag.empty => self.inline.point(range),
            Element::Inline(_) if tag.no_translate => {
                self.inline.open(range, tag.name, Becomes::Keep)
            }
            Element::Inline(becomes) => self.inline.open(range, tag.name, becomes),
            _ => self.inline.open(range, tag.name, Becomes::Point),
        }
    }

    /// Where the text of a heading ends. Its attributes, `{#name}`, stay.
    fn heading_end(&self, range: Range<usize>) -> usize {
        let Some(heading) = self.source.get(range.clone()) else { return range.end };
        let mut text = heading.trim_end();
        if !heading.trim_start().starts_with('#') {
            // The last line is the underline.
            text = text.rfind('\n').map_or("", |end| &text[..end]).trim_end();
        }
        match heading_attributes(text) {
            Some(at) if text[..at].ends_with([' ', '\t']) => range.start + at,
            _ => range.end,
        }
    }
}

/// Whether an event is of the text of a paragraph, and not of its end or of a block.
fn is_inline(event: &Event) -> bool {
    match event {
        Event::Start(tag) => matches!(
            tag,
            Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. }
        ),
        Event::End(tag) => matches!(
            tag,
            TagEnd::Emphasis
                | TagEnd::Strong
                | TagEnd::Strikethrough
                | TagEnd::Link
                | TagEnd::Image
        ),
        Event::Text(_)
        | Event::Code(_)
        | Event::InlineMath(_)
        | Event::DisplayMath(_)
        | Event::InlineHtml(_)
        | Event::FootnoteReference(_) => true,
        _ => false,
    }
}
