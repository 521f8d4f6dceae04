//! Tags, elements and character references of HTML, with their bytes, and tags of templates. Everything that a browser reads is read, and nothing is corrected.

use super::inline::Becomes;
use pulldown_cmark::{Event, Parser};
use std::ops::Range;

/// What begins at a `<`.
pub(super) enum Markup<'s> {
    Tag(Tag<'s>),
    /// A comment, a declaration or a processing instruction; it ends before this byte.
    Other(usize),
    /// A character of the text.
    Literal,
    /// A tag or comment without an end. Browsers show nothing of what follows.
    Unfinished,
}

/// A begin or end tag.
pub(super) struct Tag<'s> {
    pub(super) name: &'s str,
    /// The byte after `>`.
    pub(super) end: usize,
    pub(super) closing: bool,
    /// `<x/>`
    pub(super) empty: bool,
    /// `translate="no"` or `class="notranslate"`
    pub(super) no_translate: bool,
    /// The first of each name that [`Tag::readable`] looks at.
    attributes: Vec<Attribute<'s>>,
}

/// An attribute of a tag.
struct Attribute<'s> {
    name: &'s str,
    value: &'s str,
    /// Bytes of the source, without quotation marks.
    range: Range<usize>,
    quote: Option<char>,
}

/// Attributes that people read, of every element.
const READABLE: [&str; 6] = [
    "title",
    "aria-label",
    "aria-description",
    "aria-placeholder",
    "aria-roledescription",
    "aria-valuetext",
];
/// Those that people read, or that say what another one is, of some elements.
const OTHERS: [&str; 8] =
    ["alt", "placeholder", "label", "value", "content", "type", "name", "property"];
/// The names of descriptions and titles of a page.
const DESCRIPTIONS: [&str; 11] = [
    "description",
    "og:title",
    "og:description",
    "og:image:alt",
    "twitter:title",
    "twitter:description",
    "twitter:image:alt",
    "dc.title",
    "dc.description",
    "dcterms.title",
    "dcterms.description",
];

impl Tag<'_> {
    /// The values of attributes that people read: their bytes of the source, and the quotation mark around them.
    pub(super) fn readable(&self) -> impl Iterator<Item = (Range<usize>, Option<char>)> {
        let any = |names: &[&str]| names.iter().any(|name| self.name.eq_ignore_ascii_case(name));
        let has = |name: &str, values: &[&str]| {
            self.attributes.iter().any(|attribute| {
                let value = attribute.value.trim();
                attribute.name.eq_ignore_ascii_case(name)
                    && values.iter().any(|one| value.eq_ignore_ascii_case(one))
            })
        };
        // The title of a style sheet is a name that programs compare.
        let closed = self.closing || self.no_translate || any(&["link", "style"]);
        let described = has("name", &DESCRIPTIONS) || has("property", &DESCRIPTIONS);
        let button = has("type", &["submit", "reset", "button"]);
        let read = move |name: &str| match name.to_ascii_lowercase().as_str() {
            "alt" => any(&["img", "area", "input"]),
            "placeholder" => any(&["input", "textarea"]),
            "label" => any(&["option", "optgroup", "track"]),
            "value" => button && any(&["input"]),
            "content" => described && any(&["meta"]),
            other => READABLE.contains(&other),
        };
        let all = self.attributes.iter().filter(move |attribute| !closed && read(attribute.name));
        all.map(|attribute| (attribute.range.clone(), attribute.quote))
    }
}

/// What an element does to the text around it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    /// Text before it and text in it are different segments.
    Block,
    /// `<pre>`: a block, all of which stays.
    Preformatted,
    /// `<title>`: a block without tags in it.
    Title,
    /// `<br>` and `<hr>` end a segment.
    LineEnd,
    Inline(Becomes),
    /// An element without content.
    Void,
    /// `<script>`: tags in it are text.
    RawText,
    /// `<svg>`, `<math>`
    Foreign,
}

/// The part that an element has. Elements with a hyphen in their name are blocks, other unknown ones inline.
pub(super) fn element(name: &str) -> Element {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "address" | "applet" | "article" | "aside" | "audio" | "blockquote" | "body" | "button"
        | "canvas" | "caption" | "center" | "col" | "colgroup" | "datalist" | "dd" | "details"
        | "dialog" | "dir" | "div" | "dl" | "dt" | "fieldset" | "figcaption" | "figure"
        | "footer" | "form" | "frame" | "frameset" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6"
        | "head" | "header" | "hgroup" | "html" | "legend" | "li" | "main" | "map" | "marquee"
        | "menu" | "menuitem" | "nav" | "noscript" | "object" | "ol" | "optgroup" | "option"
        | "p" | "search" | "section" | "select" | "slot" | "summary" | "table" | "tbody" | "td"
        | "template" | "tfoot" | "th" | "thead" | "tr" | "ul" | "video" => Element::Block,
        "pre" | "listing" => Element::Preformatted,
        "title" => Element::Title,
        "br" | "hr" => Element::LineEnd,
        "area" | "base" | "embed" | "img" | "input" | "link" | "meta" | "param" | "source"
        | "track" | "wbr" => Element::Void,
        "script" | "style" | "textarea" | "xmp" | "iframe" | "noembed" | "noframes"
        | "plaintext" => Element::RawText,
        "svg" | "math" => Element::Foreign,
        "code" | "kbd" | "samp" | "var" | "tt" => Element::Inline(Becomes::Keep),
        // The reading of a character is no part of the sentence.
        "rt" | "rp" => Element::Inline(Becomes::Point),
        name if name.contains('-') => Element::Block,
        _ => Element::Inline(Becomes::Wrap),
    }
}

/// Reads what begins at `at`, where `source` has a `<`. It ends before `limit`.
pub(super) fn markup_at(source: &str, at: usize, limit: usize) -> Markup<'_> {
    let Some(text) = source.get(at..limit) else { return Markup::Literal };
    let bytes = text.as_bytes();
    match bytes.get(1) {
        Some(b'!') if text.starts_with("<!--") => match text[2..].find("-->") {
            Some(end) => Markup::Other(at + 2 + end + 3),
            None => Markup::Unfinished,
        },
        Some(b'!' | b'?') => match text.find('>') {
            Some(end) => Markup::Other(at + end + 1),
            None => Markup::Unfinished,
        },
        Some(b'/') if bytes.get(2).is_some_and(u8::is_ascii_alphabetic) => tag(text, at, 2),
        Some(byte) if byte.is_ascii_alphabetic() => tag(text, at, 1),
        _ => Markup::Literal,
    }
}

/// Where the element ends whose begin tag ends at `from`: after the end tag of its name, tags of the same name inside it
/// not counted.
pub(super) fn element_end(source: &str, mut from: usize, limit: usize, name: &str) -> usize {
    let mut depth = 1;
    while let Some(at) = find(source, from, limit, b'<') {
        match markup_at(source, at, limit) {
            Markup::Tag(tag) => {
                from = tag.end;
                if tag.name.eq_ignore_ascii_case(name) {
                    if tag.closing {
                        depth -= 1;
                    } else if !tag.empty {
                        depth += 1;
                    }
                    if depth == 0 {
                        return from;
                    }
                } else if !tag.closing && element(tag.name) == Element::RawText {
                    from = raw_text_end(source, from, limit, tag.name).1;
                }
            }
            Markup::Other(end) => from = end,
            Markup::Literal => from = at + 1,
            Markup::Unfinished => return limit,
        }
    }
    limit
}

/// Where the text of an element ends in which only its end tag is a tag, and where that tag ends.
pub(super) fn raw_text_end(
    source: &str,
    mut from: usize,
    limit: usize,
    name: &str,
) -> (usize, usize) {
    while let Some(at) = find(source, from, limit, b'<') {
        from = at + 1;
        let after = at + 2 + name.len();
        if source.get(at..at + 2) == Some("</")
            && source.get(at + 2..after).is_some_and(|found| found.eq_ignore_ascii_case(name))
            && !source.as_bytes().get(after).is_some_and(u8::is_ascii_alphanumeric)
        {
            return match find(source, after, limit, b'>') {
                Some(end) => (at, end + 1),
                None => (at, limit),
            };
        }
    }
    (limit, limit)
}

/// The next such byte of `from..limit`.
pub(super) fn find(source: &str, from: usize, limit: usize, byte: u8) -> Option<usize> {
    let at = source.as_bytes().get(from..limit)?.iter().position(|&found| found == byte)?;
    Some(from + at)
}

/// Reads a tag: `text` begins with it at byte `at` of the source, and its name at byte `begin` of `text`.
fn tag(text: &str, at: usize, begin: usize) -> Markup<'_> {
    let bytes = text.as_bytes();
    let until = |from: usize, stops: fn(u8) -> bool| {
        bytes[from..]
            .iter()
            .position(|&byte| stops(byte))
            .map_or(bytes.len(), |length| from + length)
    };
    let mut i = until(begin, |byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>'));
    let name = &text[begin..i];
    let mut no_translate = false;
    let mut attributes: Vec<Attribute> = Vec::new();
    loop {
        i = until(i, |byte| !byte.is_ascii_whitespace() && byte != b'/');
        match bytes.get(i) {
            None => return Markup::Unfinished,
            Some(b'>') => {
                let (closing, empty) = (begin == 2, bytes[i - 1] == b'/');
                let end = at + i + 1;
                return Markup::Tag(Tag { name, end, closing, empty, no_translate, attributes });
            }
            _ => {}
        }
        // An equals sign may begin a name.
        let name_end =
            until(i + 1, |byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>' | b'='));
        let attribute = text.get(i..name_end).unwrap_or("");
        i = until(name_end, |byte| !byte.is_ascii_whitespace());
        if bytes.get(i) != Some(&b'=') {
            continue;
        }
        i = until(i + 1, |byte| !byte.is_ascii_whitespace());
        let (from, to) = match bytes.get(i) {
            Some(b'"') => (i + 1, until(i + 1, |byte| byte == b'"')),
            Some(b'\'') => (i + 1, until(i + 1, |byte| byte == b'\'')),
            _ => (i, until(i, |byte| byte.is_ascii_whitespace() || byte == b'>')),
        };
        let quote_at = i;
        i = if from > i { to + 1 } else { to };
        let Some(value) = text.get(from..to).filter(|_| i <= bytes.len()) else {
            return Markup::Unfinished;
        };
        let known = |name: &&str| name.eq_ignore_ascii_case(attribute);
        let first = || !attributes.iter().any(|found| found.name.eq_ignore_ascii_case(attribute));
        if READABLE.iter().chain(&OTHERS).any(known) && first() {
            let quote = (from > quote_at).then(|| char::from(bytes[quote_at]));
            attributes.push(Attribute { name: attribute, value, range: at + from..at + to, quote });
        }
        no_translate |= attribute.eq_ignore_ascii_case("translate")
            && value.eq_ignore_ascii_case("no")
            || attribute.eq_ignore_ascii_case("class")
                && value.split_ascii_whitespace().any(|class| class == "notranslate");
    }
}

/// Begin and end of tags that templates have around text: of Jinja and Liquid (and its comments), and of Hugo.
const TEMPLATE_TAGS: [(&str, &str); 4] =
    [("{%", "%}"), ("{#", "#}"), ("{{<", ">}}"), ("{{%", "%}}")];

/// Whether a line consists of template tags: `{% block content %}`.
pub(super) fn is_template_line(line: &str) -> bool {
    let mut rest = line.trim();
    let some = !rest.is_empty();
    while !rest.is_empty() {
        let end = TEMPLATE_TAGS.iter().find_map(|(begin, end)| {
            let inside = rest.strip_prefix(begin)?;
            inside.find(end).map(|at| begin.len() + at + end.len())
        });
        let Some(end) = end else { return false };
        rest = rest[end..].trim_start();
    }
    some
}

/// The longest name, `CounterClockwiseContourIntegral`, has 31 bytes.
const LONGEST_NAME: usize = 32;

/// The characters of the reference that `text` begins with, and its length. `text` begins with `&`.
///
/// Without a semicolon only the names are references that were so in HTML 2: those of Latin-1 and of `&`, `<`, `>` and `"`.
pub(super) fn decode_reference(text: &str) -> Option<(String, usize)> {
    let name = text
        .get(1..)?
        .bytes()
        .take(LONGEST_NAME)
        .take_while(|&byte| byte == b'#' || byte.is_ascii_alphanumeric())
        .count();
    let reference = text.get(..=name)?;
    if name == 0 {
        return None;
    }
    if text[name + 1..].starts_with(';') {
        let characters = named(&format!("{reference};"))?;
        return Some((characters, name + 2));
    }
    let characters = named(&format!("{reference};"))?;
    let old = matches!(characters.as_str(), "&" | "<" | ">" | "\"")
        || characters.chars().all(|c| ('\u{a0}'..='\u{ff}').contains(&c));
    (old && !reference.contains('#')).then_some((characters, name + 1))
}

/// Markdown has the same references, and its parser has their table.
fn named(reference: &str) -> Option<String> {
    let mut texts = Parser::new(reference).filter_map(|event| match event {
        Event::Text(text) => Some(text),
        _ => None,
    });
    let text = texts.next()?;
    (texts.next().is_none() && *text != *reference).then(|| text.to_string())
}
