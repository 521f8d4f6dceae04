//! Titles of links and images in Markdown: `[a](b "title")`, `[a]: b "title"`.

use super::markdown_writer::Context;
use super::places::{Aside, Writing};
use crate::marked_text::MarkedText;
use pulldown_cmark::RefDefs;
use std::collections::VecDeque;

/// The titles of definitions, in the order of the source. The parser read it from byte `start` on.
pub(super) fn definitions(source: &str, start: usize, definitions: &RefDefs) -> VecDeque<Aside> {
    let mut all: Vec<Aside> = definitions
        .iter()
        .filter_map(|(_, definition)| {
            let span = start + definition.span.start..start + definition.span.end;
            title(source.get(span.clone())?, span.start, definition.title.as_deref()?, false)
        })
        .collect();
    all.sort_unstable_by_key(|aside| aside.range().start);
    all.into()
}

/// The title that `raw` ends in, which begins at byte `begin` of the source. `text` is what it says.
pub(super) fn title(raw: &str, begin: usize, text: &str, cell: bool) -> Option<Aside> {
    let inside = raw.trim_end();
    let quote = inside.chars().next_back().filter(|c| "\"')".contains(*c))?;
    let inside = &inside[..inside.len() - 1];
    let open = if quote == ')' { '(' } else { quote };
    // An escaped sign does not begin the title.
    let escapes = |before: &str| before.len() - before.trim_end_matches('\\').len();
    let (at, _) = inside.rmatch_indices(open).find(|&(at, _)| escapes(&inside[..at]) % 2 == 0)?;
    let value = &inside[at + 1..];
    let text = text.replace(['\n', '\r'], " ");
    let text = text.trim();
    if value.trim().is_empty() || !text.contains(char::is_alphabetic) {
        return None;
    }
    let start = begin + at + 1 + value.len() - value.trim_start().len();
    let range = start..start + value.trim().len();
    let segment = MarkedText { text: text.to_string(), marks: Vec::new() };
    let writing = Writing::Markdown(Context::Title { quote, cell });
    Some(Aside::new(&range, segment, writing))
}
