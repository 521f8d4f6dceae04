//! The text that a model is given for a text with marks.

use super::tree::Tag;
use super::{Mark, MarkedText};
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
    /// use simdformer_text::marked_text::{Mark, MarkKind, MarkedText, StandIn};
    ///
    /// let mark = Mark { range: 14..17, kind: MarkKind::Keep { source: None }, id: 0 };
    /// let text = MarkedText { text: "la voiture de {x} est ici".into(), marks: vec![mark] };
    /// assert_eq!(text.for_model(StandIn::Word("Paul")).text, "la voiture de Paul est ici");
    /// assert_eq!(text.for_model(StandIn::Nothing).text, "la voiture de est ici");
    /// ```
    #[must_use]
    pub fn for_model(&self, stand_in: StandIn<'_>) -> Self {
        let mut text = String::with_capacity(self.text.len());
        // Each copied part, and where it begins in the new text.
        let mut moves: Vec<(Range<usize>, usize)> = Vec::new();
        let mut at = 0;
        for keep in self.keeps().filter(|mark| !mark.range.is_empty()) {
            let piece = self.text.get(keep.range.clone()).filter(|_| keep.range.start >= at);
            let Some(piece) = piece else { continue };
            let given = match stand_in {
                _ if Tag::of(piece).is_some() => "",
                StandIn::Piece => piece,
                StandIn::Word(word) => word,
                StandIn::Nothing => "",
            };
            moves.push((at..keep.range.start, text.len()));
            text.push_str(self.text.get(at..keep.range.start).unwrap_or_default());
            at = keep.range.end;
            if given.is_empty() && (text.is_empty() || text.ends_with(char::is_whitespace)) {
                let after = self.text.get(at..).unwrap_or_default().chars().next();
                at += after.filter(|next| next.is_whitespace()).map_or(0, char::len_utf8);
            }
            text.push_str(given);
        }
        moves.push((at..self.text.len(), text.len()));
        text.push_str(self.text.get(at..).unwrap_or_default());
        // The start of a replaced piece is the end of the part before it.
        let place = |at: usize| {
            let part = moves.partition_point(|(part, _)| part.end < at).min(moves.len() - 1);
            let (part, start) = &moves[part];
            start + at.clamp(part.start, part.end) - part.start
        };
        let moved = |mark: &Mark| {
            let start = place(mark.range.start);
            Mark { range: start..place(mark.range.end).max(start), ..mark.clone() }
        };
        let marks = self.marks.iter().map(moved).collect();
        Self { text, marks }
    }
}
