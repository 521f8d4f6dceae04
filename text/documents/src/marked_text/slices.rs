//! Parts of a marked text: sentences, and what stands between kept pieces.

use super::{Mark, MarkKind, MarkedText};
use std::ops::Range;

/// A part of a text between kept pieces, or a kept piece: see [`MarkedText::split_at_keeps`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepSplit {
    /// Bytes of the text.
    pub range: Range<usize>,
    /// Whether it is a kept piece.
    pub keep: bool,
}

impl MarkedText {
    /// The part of the text in `range`, with its marks.
    ///
    /// A wrap that crosses an end of the range is cut there: each part of it has the same number, and [`join`](Self::join)
    /// makes one wrap of parts that touch. A mark without text belongs to the slice that begins at it or contains it; one
    /// at the end of the text belongs to the slice that ends there. So slices of consecutive ranges, joined, are the
    /// whole, with each mark once. A kept piece is cut like a wrap; [`whole_keeps`](Self::whole_keeps) avoids that.
    ///
    /// A range beyond the text is cut to the text, and an end inside a character moves to its first byte.
    ///
    /// ```
    /// use simdformer_documents::marked_text::{Mark, MarkKind, MarkedText};
    ///
    /// let kind = MarkKind::Wrap { open: "<b>".into(), close: "</b>".into() };
    /// let whole = MarkedText { text: "One. Two.".into(), marks: vec![Mark { range: 0..8, kind, id: 0 }] };
    /// let sentences = [0..4, 4..5, 5..9].map(|range| whole.slice(range));
    /// assert_eq!(sentences[2].text, "Two.");
    /// assert_eq!(sentences[2].marks[0].range, 0..3);
    /// assert_eq!(MarkedText::join(&sentences), whole);
    /// ```
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let len = self.text.len();
        let start = self.text.floor_char_boundary(range.start.min(len));
        let end = self.text.floor_char_boundary(range.end.min(len)).max(start);
        let inside = |at: usize| (start..end).contains(&at) || (at == end && end == len);
        let marks = self.marks.iter().filter_map(|mark| {
            let part = mark.range.start.max(start)..mark.range.end.min(end);
            let kept =
                if mark.range.is_empty() { inside(mark.range.start) } else { !part.is_empty() };
            let range = part.start.saturating_sub(start)..part.end.saturating_sub(start);
            kept.then(|| Mark { range, ..mark.clone() })
        });
        Self {
            text: self.text.get(start..end).unwrap_or_default().to_owned(),
            marks: marks.collect(),
        }
    }

    /// The parts one after the other. A mark that ends a part and one with the same number that begins the next part
    /// become one; if text stands between them, the markup of a wrap appears in both parts.
    #[must_use]
    pub fn join<'p>(parts: impl IntoIterator<Item = &'p Self>) -> Self {
        let mut whole = Self::default();
        // The marks that end where the text ends, the outer ones first.
        let mut open: Vec<usize> = Vec::new();
        for part in parts {
            let (at, len) = (whole.text.len(), part.text.len());
            let mut still_open = Vec::new();
            // The outer mark is continued before the inner one, so that no two marks cross.
            let mut continued = open.iter();
            let mut continuing = true;
            for mark in &part.marks {
                let ends = !mark.range.is_empty() && mark.range.end == len;
                continuing &= mark.range.start == 0 && !mark.range.is_empty();
                let before = continuing.then(|| continued.next()).flatten();
                let before = before.and_then(|&index| Some((index, whole.marks.get_mut(index)?)));
                let same =
                    before.filter(|(_, before)| before.id == mark.id && before.kind == mark.kind);
                let index = match same {
                    Some((index, before)) => {
                        before.range.end = at + mark.range.end;
                        index
                    }
                    None => {
                        continuing = false;
                        let range = at + mark.range.start..at + mark.range.end;
                        whole.marks.push(Mark { range, ..mark.clone() });
                        whole.marks.len() - 1
                    }
                };
                if ends {
                    still_open.push(index);
                }
            }
            if len > 0 {
                open = still_open;
            }
            whole.text.push_str(&part.text);
        }
        whole
    }

    /// The ranges, which are in order and disjoint, without one that cuts a kept piece: an end inside a piece moves to the
    /// end of the piece, and ranges that then touch the same piece are one.
    #[must_use]
    pub fn whole_keeps(&self, ranges: &[Range<usize>]) -> Vec<Range<usize>> {
        let keeps: Vec<&Range<usize>> = self.keeps().map(|mark| &mark.range).collect();
        let around = |at: usize| {
            let next = keeps.partition_point(|keep| keep.end <= at);
            keeps.get(next).filter(|keep| keep.start < at)
        };
        let mut whole: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            let start = around(range.start).map_or(range.start, |keep| keep.start);
            let end = around(range.end).map_or(range.end, |keep| keep.end);
            match whole.last_mut() {
                Some(last) if start < last.end => last.end = last.end.max(end),
                _ => whole.push(start..end),
            }
        }
        whole
    }

    /// Splits the text at its kept pieces. The ranges are consecutive and cover the text.
    ///
    /// If a translation has lost a piece, its parts are translated alone and joined: then no piece can be lost.
    ///
    /// ```
    /// use simdformer_documents::marked_text::{Mark, MarkKind, MarkedText};
    ///
    /// let kind = MarkKind::Keep { source: None };
    /// let text = MarkedText { text: "see %s now".into(), marks: vec![Mark { range: 4..6, kind, id: 0 }] };
    /// let parts = text.split_at_keeps();
    /// assert_eq!(parts.iter().map(|part| part.keep).collect::<Vec<_>>(), [false, true, false]);
    /// // The parts that are not kept would be translated here.
    /// let parts: Vec<_> = parts.into_iter().map(|part| text.slice(part.range)).collect();
    /// assert_eq!(MarkedText::join(&parts), text);
    /// ```
    #[must_use]
    pub fn split_at_keeps(&self) -> Vec<KeepSplit> {
        let mut parts = Vec::new();
        let mut at = 0;
        for keep in self.keeps().map(|mark| mark.range.clone()).filter(|range| !range.is_empty()) {
            if keep.start < at {
                continue;
            }
            if keep.start > at {
                parts.push(KeepSplit { range: at..keep.start, keep: false });
            }
            at = keep.end;
            parts.push(KeepSplit { range: keep, keep: true });
        }
        if at < self.text.len() {
            parts.push(KeepSplit { range: at..self.text.len(), keep: false });
        }
        parts
    }

    /// The kept pieces, in the order of the marks.
    pub fn keeps(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter().filter(|mark| matches!(mark.kind, MarkKind::Keep { .. }))
    }
}
