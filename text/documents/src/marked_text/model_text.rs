//! The text that a model is given for a text with marks.

use super::tree::Tag;
use super::{Mark, MarkedText};
use crate::scripts::is_spaceless;
use std::ops::Range;

/// What a model is given in the place of a kept piece.
///
/// Tags among the kept pieces, such as `<0>`, are always removed, because they have no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandIn<'w> {
    /// The piece. Models with subwords copy many placeholders, numbers and addresses.
    Piece,
    /// A word that the model copies, such as a name: the sentence keeps its grammar, and the attention to the word gives
    /// the place.
    Word(&'w str),
    /// Nothing. The attention of the words around gives the place.
    Nothing,
}

impl MarkedText {
    /// The text for a model: each kept piece is replaced as `stand_in` says. The marks are those of this text, in the same
    /// order, with their ranges in the new text; where a piece was removed, they are empty.
    ///
    /// Of the white space on both sides of a removed piece, that before it stays.
    ///
    /// ```
    /// use simdformer_documents::marked_text::{Mark, MarkKind, MarkedText, StandIn};
    ///
    /// let mark = Mark { range: 14..17, kind: MarkKind::Keep { source: None }, id: 0 };
    /// let text = MarkedText { text: "la voiture de {x} est ici".into(), marks: vec![mark] };
    /// assert_eq!(text.for_model(StandIn::Word("Paul")).text, "la voiture de Paul est ici");
    /// assert_eq!(text.for_model(StandIn::Nothing).text, "la voiture de est ici");
    /// ```
    #[must_use]
    pub fn for_model(&self, stand_in: StandIn<'_>) -> Self {
        self.for_model_each(|_| stand_in).marked
    }

    /// [`for_model`](Self::for_model) with a stand-in for each kept piece. A piece between letters that is removed leaves a
    /// space, unless it is a tag.
    #[must_use]
    pub fn for_model_each<'w>(&self, stand_in: impl Fn(&Mark) -> StandIn<'w>) -> Rewritten {
        let mut edits: Vec<Edit> = Vec::new();
        // The last character of the new text before `at`.
        let (mut at, mut last) = (0, None);
        let letter = |letter: Option<char>| {
            letter.is_some_and(|letter| letter.is_alphanumeric() && !is_spaceless(letter))
        };
        for keep in self.keeps().filter(|mark| !mark.range.is_empty()) {
            let Range { start, mut end } = keep.range.clone();
            let piece = self.text.get(start..end).filter(|_| start >= at);
            let Some(piece) = piece else { continue };
            last = self.text.get(at..start).and_then(|copied| copied.chars().next_back()).or(last);
            let tag = Tag::from_piece(piece).is_some();
            let given = match stand_in(keep) {
                StandIn::Piece if !tag => piece,
                StandIn::Word(word) if !tag => word,
                _ => {
                    let after = self.text.get(end..).and_then(|after| after.chars().next());
                    // Of the white space on both sides that before it stays.
                    if last.is_none_or(char::is_whitespace) {
                        let white = after.filter(|after| after.is_whitespace());
                        end += white.map_or(0, char::len_utf8);
                    }
                    if !tag && letter(last) && letter(after) { " " } else { "" }
                }
            };
            last = given.chars().next_back().or(last);
            at = end;
            edits.push((start..end, given.to_owned()));
        }
        self.replace(edits)
    }

    /// The text with other parts in the place of some, which are in order and disjoint. The marks move with the text.
    #[must_use]
    pub fn replace(&self, edits: impl IntoIterator<Item = Edit>) -> Rewritten {
        let mut text = String::with_capacity(self.text.len());
        // Each copied part, and where it begins in the new text.
        let mut parts: Vec<(Range<usize>, usize)> = Vec::new();
        let mut at = 0;
        for (range, new) in edits {
            parts.push((at..range.start, text.len()));
            text.push_str(self.text.get(at..range.start).unwrap_or_default());
            at = range.end;
            text.push_str(&new);
        }
        parts.push((at..self.text.len(), text.len()));
        text.push_str(self.text.get(at..).unwrap_or_default());
        // The start of a replaced piece is the end of the part before it.
        let place = |at: usize| {
            let part = parts.partition_point(|(part, _)| part.end < at).min(parts.len() - 1);
            let (part, start) = &parts[part];
            start + at.clamp(part.start, part.end) - part.start
        };
        let moved = |mark: &Mark| {
            let start = place(mark.range.start);
            Mark { range: start..place(mark.range.end).max(start), ..mark.clone() }
        };
        let marks = self.marks.iter().map(moved).collect();
        Rewritten { marked: Self { text, marks }, parts }
    }
}

/// A part of a text, and what is put in its place.
pub type Edit = (Range<usize>, String);

/// A text of which parts were replaced.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The new text, with the marks of the old one in the same order.
    pub marked: MarkedText,
    /// Each copied part of the old text, and where it begins in the new text.
    parts: Vec<(Range<usize>, usize)>,
}

impl Rewritten {
    /// The bytes of the old text for bytes of the new one. An end inside of a replaced part is that of the part.
    #[must_use]
    pub fn old_range(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.parts.partition_point(|(_, start)| *start <= range.start);
        let start = match start.checked_sub(1).and_then(|part| self.parts.get(part)) {
            Some((part, start)) => (part.start + range.start - start).min(part.end),
            None => 0,
        };
        let end = self.parts.partition_point(|(part, start)| start + part.len() < range.end);
        let end = match self.parts.get(end) {
            Some((part, start)) => part.start + range.end.saturating_sub(*start),
            None => self.parts.last().map_or(0, |(part, _)| part.end),
        };
        start..end.max(start)
    }
}
