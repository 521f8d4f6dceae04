//! The parts of a translation among which marks are placed: words, punctuation and kept pieces.

use super::alignment::{Alignment, Mass};
use std::ops::Range;

/// A part of the translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Bytes of the translation; empty for a piece that is inserted.
    pub(super) range: Range<usize>,
    /// The node of the kept piece that stands here.
    pub(super) piece: Option<usize>,
    /// A copy of a piece, which is omitted.
    pub(super) gone: bool,
    /// The row of its attention.
    pub(super) row: Option<usize>,
}

impl Unit {
    /// Whether it is a word or punctuation of the translation.
    pub(super) fn free(&self) -> bool {
        self.piece.is_none() && !self.gone
    }
}

/// The parts in order, and their attention.
pub(super) struct Units {
    pub(super) list: Vec<Unit>,
    pub(super) mass: Mass,
}

impl Units {
    pub(super) fn new(
        words: Vec<Range<usize>>,
        source_len: usize,
        alignment: &Alignment<'_>,
    ) -> Self {
        let mass = Mass::new(&words, alignment, source_len);
        let unit = |(row, range)| Unit { range, piece: None, gone: false, row: Some(row) };
        Self { list: words.into_iter().enumerate().map(unit).collect(), mass }
    }

    /// Computes the attention of the parts again, after they have changed.
    pub(super) fn refresh(&mut self, source_len: usize, alignment: &Alignment<'_>) {
        let ranges: Vec<Range<usize>> = self.list.iter().map(|unit| unit.range.clone()).collect();
        self.mass = Mass::new(&ranges, alignment, source_len);
        for (row, unit) in self.list.iter_mut().enumerate() {
            unit.row = Some(row);
        }
    }

    /// Whether the kept piece of a node has its place.
    pub(super) fn has(&self, node: usize) -> bool {
        self.list.iter().any(|unit| unit.piece == Some(node))
    }

    /// The part of the attention of a unit that `range` of the source has.
    pub(super) fn share(&self, unit: usize, range: &Range<usize>) -> Option<f32> {
        self.list.get(unit)?.row.and_then(|row| self.mass.share(row, range))
    }

    /// Puts pieces in the place of ranges of the translation, which are in order and disjoint; without a piece the range is
    /// omitted. Of a word that lies partly in such a range, the rest stays.
    pub(super) fn edit(&mut self, edits: &[(Range<usize>, Option<usize>)]) {
        if edits.is_empty() {
            return;
        }
        let mut list = Vec::with_capacity(self.list.len() + edits.len());
        let mut edits = edits.iter().peekable();
        let edited = |(range, piece): &(Range<usize>, Option<usize>)| Unit {
            range: range.clone(),
            piece: *piece,
            gone: piece.is_none(),
            row: None,
        };
        let mut done = 0;
        for unit in self.list.drain(..) {
            let mut start = unit.range.start.max(done);
            while let Some(edit) = edits.next_if(|(range, _)| range.start < unit.range.end) {
                if start < edit.0.start {
                    list.push(Unit { range: start..edit.0.start, ..unit.clone() });
                }
                list.push(edited(edit));
                done = edit.0.end;
                start = start.max(done);
            }
            if start < unit.range.end {
                list.push(Unit { range: start..unit.range.end, ..unit });
            }
        }
        list.extend(edits.map(edited));
        self.list = list;
    }

    /// Puts the piece of a node in the place of a run of units.
    pub(super) fn replace(&mut self, run: Range<usize>, node: usize) {
        let (Some(first), Some(last)) =
            (self.list.get(run.start), self.list.get(run.end.wrapping_sub(1)))
        else {
            return;
        };
        let range = first.range.start..last.range.end;
        let row = first.row;
        let unit = Unit { range, piece: Some(node), gone: false, row };
        self.list.splice(run, [unit]);
    }

    /// Inserts pieces at boundaries: `(boundary, node)`, in the order of the source.
    pub(super) fn insert(&mut self, mut pieces: Vec<(usize, usize)>) {
        pieces.sort_by_key(|&(boundary, _)| boundary);
        let mut list = Vec::with_capacity(self.list.len() + pieces.len());
        let mut pieces = pieces.into_iter().peekable();
        let mut end = 0;
        let old = std::mem::take(&mut self.list);
        let count = old.len();
        for (boundary, unit) in old.into_iter().map(Some).chain([None]).enumerate() {
            while let Some((_, node)) =
                pieces.next_if(|&(place, _)| place <= boundary || boundary == count)
            {
                list.push(Unit { range: end..end, piece: Some(node), gone: false, row: None });
            }
            if let Some(unit) = unit {
                end = unit.range.end;
                list.push(unit);
            }
        }
        self.list = list;
    }
}
