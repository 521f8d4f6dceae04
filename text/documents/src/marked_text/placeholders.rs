//! Finds the pieces of a text that a translation must keep: placeholders, addresses, code.

use super::conventions::scan;
use super::{Mark, MarkKind, MarkedText};
use std::cmp::Reverse;
use std::ops::Range;

/// Adds a [`Keep`](MarkKind::Keep) for each placeholder, address and piece of code in the text, and for each range of
/// `others`, such as the matches of a regular expression. Their numbers follow the largest one of the text.
///
/// [`conventions`](super::conventions()) is the table of what is found: the placeholders of i18next, Rails, Laravel, Symfony, Android,
/// Qt, .NET, ICU, WordPress, Vue, Angular, gettext and printf, tags, addresses and code. A word between or after signs that
/// text does not have there, such as `~name~` or `$name`, is kept, too.
///
/// A percentage is not a format: `100%`, `50 % of`, `20%off`. Of ranges that overlap, the first one is used, of those with
/// one start the longest. A range inside a kept piece of the text, or with one inside of it, is not used, nor is one that
/// a wrap of the text cuts. Other marks may lie inside a range.
///
/// The time is linear in the text.
///
/// ```
/// use simdformer_documents::marked_text::{MarkedText, placeholders};
///
/// let text = "Save 50 % of {count} files at Acme, see https://example.org.";
/// let source = MarkedText { text: text.into(), marks: Vec::new() };
/// let names = text.match_indices("Acme").map(|(at, name)| at..at + name.len());
/// let found = placeholders(&source, names);
/// let found: Vec<&str> = found.marks.iter().map(|mark| &text[mark.range.clone()]).collect();
/// assert_eq!(found, ["{count}", "Acme", "https://example.org"]);
/// ```
#[must_use]
pub fn placeholders(
    source: &MarkedText,
    others: impl IntoIterator<Item = Range<usize>>,
) -> MarkedText {
    let mut found = scan(&source.text);
    found.extend(others);
    add_keeps(source, found)
}

/// Adds a [`Keep`](MarkKind::Keep) for each of the ranges that may have one, as [`placeholders`] does.
#[must_use]
pub fn add_keeps(source: &MarkedText, mut found: Vec<Range<usize>>) -> MarkedText {
    found.retain(|range| !range.is_empty());
    found.sort_unstable_by_key(|range| (range.start, Reverse(range.end)));
    let existing = Existing::new(source);
    let (mut at, mut next) =
        (0, source.marks.iter().map(|mark| mark.id.saturating_add(1)).max().unwrap_or(0));
    let mut marks = Vec::with_capacity(source.marks.len() + found.len());
    let mut old = source.marks.iter().peekable();
    for range in found {
        if range.start < at || !existing.allow(&range) {
            continue;
        }
        at = range.end;
        // Of two marks that begin at one place, the outer one is first. A point there is before the piece.
        let first = |mark: &&Mark| {
            let (start, end) = (mark.range.start, mark.range.end);
            start < range.start || (start == range.start && (end >= range.end || end == start))
        };
        while let Some(mark) = old.next_if(first) {
            marks.push(mark.clone());
        }
        marks.push(Mark { range, kind: MarkKind::Keep { source: None }, id: next });
        next += 1;
    }
    marks.extend(old.cloned());
    MarkedText { text: source.text.clone(), marks }
}

/// The marks that a text has, sorted for searches.
struct Existing<'m> {
    by_start: Vec<&'m Mark>,
    by_end: Vec<&'m Mark>,
    keeps: Vec<&'m Mark>,
}

impl<'m> Existing<'m> {
    fn new(text: &'m MarkedText) -> Self {
        let mut by_start: Vec<&Mark> =
            text.marks.iter().filter(|mark| !mark.range.is_empty()).collect();
        let mut by_end = by_start.clone();
        by_start.sort_by_key(|mark| mark.range.start);
        by_end.sort_by_key(|mark| mark.range.end);
        let keeps = by_end.iter().copied().filter(|mark| is_keep(mark)).collect();
        Self { by_start, by_end, keeps }
    }

    /// Whether a piece may be there: no kept piece overlaps it, and no wrap begins or ends in it and has its other end
    /// outside.
    fn allow(&self, piece: &Range<usize>) -> bool {
        let from = self.by_start.partition_point(|mark| mark.range.start < piece.start);
        let mut beginning =
            self.by_start[from..].iter().take_while(|mark| mark.range.start < piece.end);
        let from = self.by_end.partition_point(|mark| mark.range.end <= piece.start);
        let mut ending = self.by_end[from..].iter().take_while(|mark| mark.range.end <= piece.end);
        // Kept pieces are disjoint, so one that covers the place is the first that ends after it.
        let after = self.keeps.partition_point(|mark| mark.range.end <= piece.start);
        let covered = self.keeps.get(after).is_some_and(|mark| mark.range.start < piece.end);
        !covered
            && !beginning.any(|mark| mark.range.end > piece.end && mark.range.start > piece.start)
            && !ending.any(|mark| mark.range.start < piece.start && mark.range.end < piece.end)
    }
}

fn is_keep(mark: &Mark) -> bool {
    matches!(mark.kind, MarkKind::Keep { .. })
}
