//! How text looks: what of the properties of a run or of a style counts, so that pieces of equal looks are one.

use crate::formats::inline::narrow;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::collections::HashMap;

/// The value of an attribute, by local name. References are not replaced.
pub(super) fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let mut attributes = tag.attributes();
    let mut attributes = attributes.with_checks(false).flatten();
    let found = attributes.find(|one| one.key.local_name().as_ref() == name)?;
    Some(found.value.into_owned())
}

/// A begin tag without the attributes that do not count.
pub(super) fn canonical_tag(tag: &BytesStart<'_>, ignored: &[&str], empty: bool) -> String {
    let mut out = format!("<{}", tag.name().0);
    for one in tag.attributes().with_checks(false).flatten() {
        if !ignored.contains(&one.key.local_name().as_ref()) {
            let quote = if one.value.contains('"') { "'" } else { "\"" };
            out.extend([" ", one.key.0, "=", quote, &one.value, quote]);
        }
    }
    out.push_str(if empty { "/>" } else { ">" });
    out
}

/// An element that was read, without what does not count; empty if nothing of it counts. `outside`: its own tags belong to it.
pub(super) fn canonical(raw: &str, ignored: &[&str], outside: bool) -> String {
    let mut reader = Reader::from_str(raw);
    let mut out = String::new();
    let mut depth = 0;
    let mut counts = false;
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag)) => {
                if depth > 0 && ignored.contains(&tag.local_name().as_ref()) {
                    if reader.read_to_end(tag.name()).is_err() {
                        return out;
                    }
                    continue;
                }
                let begin = canonical_tag(&tag, ignored, false);
                counts |= depth > 0 || begin.len() > tag.name().0.len() + 2;
                if depth > 0 || outside {
                    out.push_str(&begin);
                }
                depth += 1;
            }
            Ok(Event::Empty(tag)) if depth > 0 && ignored.contains(&tag.local_name().as_ref()) => {}
            Ok(Event::Empty(tag)) => {
                let whole = canonical_tag(&tag, ignored, true);
                counts |= depth > 0 || whole.len() > tag.name().0.len() + 3;
                if depth > 0 || outside {
                    out.push_str(&whole);
                }
            }
            Ok(Event::End(tag)) => {
                depth -= 1;
                if depth > 0 || outside {
                    out.extend(["</", tag.name().0, ">"]);
                }
            }
            Ok(Event::Text(text)) if !text.trim().is_empty() => out.push_str(&text),
            Ok(Event::GeneralRef(reference)) => out.extend(["&", &*reference, ";"]),
            Ok(Event::Eof) | Err(_) => return if counts || !outside { out } else { String::new() },
            Ok(_) => {}
        }
    }
}

/// What two wraps have in common that are one if they touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrapKey {
    /// Looks, by their number.
    Looks(u32),
    /// The whole tag.
    Tag,
    /// Nothing: they are two.
    Alone,
}

/// The styles of words that a document defines.
#[derive(Debug, Default)]
pub(super) struct Styles {
    /// By name, the number of the looks; `None` if it looks like the text around it.
    names: HashMap<String, Option<u32>>,
    /// The numbers of looks: styles of equal looks have the same.
    looks: HashMap<String, u32>,
}

impl Styles {
    /// Whether a tag begins a style of words.
    pub(super) fn is_begin(tag: &BytesStart<'_>) -> bool {
        tag.local_name().as_ref() == "style" && attribute(tag, "family").as_deref() == Some("text")
    }

    /// Adds a style that was read.
    pub(super) fn add(&mut self, raw: &str, ignored: &[&str]) {
        let mut reader = Reader::from_str(raw);
        let Ok(Event::Start(tag) | Event::Empty(tag)) = reader.read_event() else { return };
        let Some(name) = attribute(&tag, "name") else { return };
        // Properties of which nothing counts have only a tag.
        let mut looks = canonical(raw, ignored, false);
        if !looks.contains('"') && !looks.contains('\'') {
            looks.clear();
        }
        if let Some(parent) = attribute(&tag, "parent-style-name") {
            looks.extend([" ", &parent]);
        }
        let new = narrow(self.looks.len());
        let number = (!looks.is_empty()).then(|| *self.looks.entry(looks).or_insert(new));
        self.names.insert(name, number);
    }

    /// What a wrap has in common with those that look like it; `None` if it looks like the text around it.
    pub(super) fn key(&self, tag: &BytesStart<'_>) -> Option<WrapKey> {
        let mut attributes = tag.attributes();
        let mut attributes = attributes.with_checks(false).flatten();
        if let (Some(only), None) = (attributes.next(), attributes.next())
            && only.key.local_name().as_ref() == "style-name"
            && let Some(number) = self.names.get(&*only.value)
        {
            return number.map(WrapKey::Looks);
        }
        Some(WrapKey::Tag)
    }
}
