//! Where the lines of a changed paragraph end.

use crate::lines::{count_columns, join_without_space};
use crate::marked_text::{Mark, MarkKind};
use std::ops::Range;

/// A space at which a line may end.
struct Space {
    /// Byte of the text.
    at: usize,
    /// Columns before it.
    columns: usize,
}

/// `text` with line ends in place of some spaces, so that lines have at most `width` columns where words allow it.
pub(super) fn to_width(text: &str, marks: &[Mark], width: usize) -> String {
    let (spaces, total) = spaces(text, marks);
    replace(text, &ends(&spaces, total, width))
}

/// The same with at most `lines` lines, of the least width that allows it.
pub(super) fn to_lines(text: &str, marks: &[Mark], lines: usize) -> String {
    let (spaces, total) = spaces(text, marks);
    let (mut low, mut high) = (total / lines.max(1), total);
    while low < high {
        let middle = low + (high - low) / 2;
        if ends(&spaces, total, middle).len() < lines {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    replace(text, &ends(&spaces, total, high))
}

/// The spaces at which a line may end, and the columns of the text. Not before a dash or another sign that would begin
/// an item or a quotation, not in a kept piece whose source is written in its place, and not where lines are joined without a
/// space.
fn spaces(text: &str, marks: &[Mark]) -> (Vec<Space>, usize) {
    let kept: Vec<&Range<usize>> = marks
        .iter()
        .filter(|mark| matches!(mark.kind, MarkKind::Keep { source: Some(_) }))
        .map(|mark| &mark.range)
        .collect();
    let mut kept = kept.into_iter().peekable();
    let mut spaces = Vec::new();
    let mut done = 0;
    let mut before = None;
    let mut characters = text.char_indices().peekable();
    let mut at_columns = 0;
    while let Some((at, c)) = characters.next() {
        while kept.next_if(|range| range.end <= at).is_some() {}
        let next = characters.peek().map(|&(_, next)| next);
        if c == ' '
            && !kept.peek().is_some_and(|range| range.contains(&at))
            && let (Some(before), Some(next)) = (before, next)
            && !char::is_whitespace(before)
            && !char::is_whitespace(next)
            && !next.is_ascii_digit()
            && !"-–—>*+•·◦‣<{(".contains(next)
            && !join_without_space(before, next)
        {
            at_columns += count_columns(&text[done..at]);
            done = at;
            spaces.push(Space { at, columns: at_columns });
        }
        before = Some(c);
    }
    (spaces, at_columns + count_columns(&text[done..]))
}

/// The spaces that end lines when each line takes as many words as fit.
fn ends(spaces: &[Space], total: usize, width: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut begin = 0;
    let mut fits: Option<&Space> = None;
    for space in spaces.iter().map(Some).chain([None]) {
        let end = space.map_or(total, |space| space.columns);
        if end.saturating_sub(begin) > width
            && let Some(last) = fits
        {
            ends.push(last.at);
            begin = last.columns + 1;
        }
        fits = space;
    }
    ends
}

fn replace(text: &str, ends: &[usize]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for &end in ends {
        out.push_str(&text[at..end]);
        out.push('\n');
        at = end + 1;
    }
    out.push_str(&text[at..]);
    out
}
