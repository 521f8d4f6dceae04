//! Places the marks of a source in its translation.

use super::alignment::{Alignment, Diagonal, Mass};
use super::tree::{NodeKind, Texts, tree};
use super::units::{Unit, Units};
use super::{MarkKind, MarkedText, write};
use crate::scripts::split_words;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// The share of a word's attention above which the word belongs to a wrap, or stands for a kept piece.
const INSIDE: f32 = 0.5;
/// By how much punctuation counts less than a word.
const SIGN: f32 = 0.3;
/// What a part without attention counts: a wrap does not begin or end with it.
const UNKNOWN: f32 = -0.01;
/// A wrap contains its kept pieces, whatever the attention says, and rather not those of others.
const OWN_PIECE: f32 = 100.0;
const OTHER_PIECE: f32 = -30.0;
const TAKEN: f32 = -1e6;
/// Of the tokens beside a point, each counts this much of the next nearer one.
const DECAY: f32 = 0.5;
/// How much the tokens on the far side of a space count for a point that touches a word.
const FAR_SIDE: f32 = 0.25;
/// How much a kept piece counts for the place of a point.
const ORDER: f32 = 0.3;

/// A translation, and what is needed to place the marks of its source in it.
///
/// - A wrap is around the words that have most of their attention on the words that it was around: of all runs of words
///   the one with the largest sum of (share of the attention - 1/2). It contains its own kept pieces. A wrap around the
///   whole content of its parent stays that. Wraps are nested or disjoint as in the source. If no word has that much
///   attention, the best free word is wrapped; if every word is in another wrap, the wrap is omitted.
/// - A kept piece replaces its stand-in where the translation has it; else the words that have most of their attention on
///   it; else it is inserted between the words that stand for the words beside it. A stand-in that the translation
///   repeats is removed.
/// - A point stands between the words that stand for the words beside it, and on its side of a space.
/// - Kept `<0>` and `</0>` are placed around words like a wrap.
///
/// # Which attention
///
/// The mean of all heads of a late layer of the decoder, as `Session::align` computes it: row `i` is the step that predicts
/// token `i`. The translator averages the layers after the middle but the last, of two the last. With the demo model, which
/// has two, of 1,147 tags around nouns, adjectives and both these wrap the right words
/// (`cargo test -p simdformer-text --test all -- --ignored --nocapture table_of_layers`):
///
/// | heads | layer 1 | layer 2, the last |
/// |---|---|---|
/// | all | 1048 | 1136 |
/// | one | 1029, 797, 627, 523 | 1134, 1134, 1036, 654 |
/// | all, of the step that reads the token | 5 | 1 |
///
/// [`WordAlignment::mutual`](super::WordAlignment::mutual) is largest for the best of them, so it can choose a layer of
/// another model.
///
/// # Which stand-in
///
/// The demo model has a vocabulary of words, so a placeholder is an unknown word. Of 159 sentences in which a placeholder
/// replaces a name, the translation is that of the name in 155 with the word `Paul`, in 56 with
/// [`StandIn::Nothing`](super::StandIn::Nothing) and in 43 with [`StandIn::Piece`](super::StandIn::Piece): a model needs a
/// word that it knows. A model with subwords copies many pieces, and [`has_stand_ins`](Self::has_stand_ins) says whether it did.
///
/// ```
/// use simdformer_documents::marked_text::{Alignment, Mark, MarkKind, MarkedText, Placement, StandIn, check};
///
/// let kind = MarkKind::Wrap { open: "<b>".into(), close: "</b>".into() };
/// let marks = vec![Mark { range: 7..14, kind, id: 0 }];
/// let source = MarkedText { text: "maison blanche".into(), marks };
/// let weights = [0.1, 0.9, 0.9, 0.1];
/// let alignment = Alignment { weights: &weights, source: &[0..6, 7..14], target: &[0..5, 6..11] };
/// let given = source.for_model(StandIn::Piece);
/// let target = "white house"; // what the model made of `given.text`
/// let placed = Placement { source: &source, given: &given, target, alignment: Some(alignment) }.place();
/// assert_eq!(placed.text, "white house");
/// assert_eq!(placed.marks[0].range, 0..5);
/// assert_eq!(check(&source, &placed), Ok(()));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// The source.
    pub source: &'a MarkedText,
    /// What the model was given: [`MarkedText::for_model`] of the source. With other marks, the source itself is used.
    pub given: &'a MarkedText,
    /// The translation of the text of `given`.
    pub target: &'a str,
    /// The cross-attention, with places in `given` and `target`. Without it, or if the number of its weights is not that
    /// of its tokens, words at the same part of both texts are taken for aligned.
    pub alignment: Option<Alignment<'a>>,
}

impl Placement<'_> {
    /// The translation with the marks of the source. Each kept piece and each point is in it once, and all marks are nested
    /// or disjoint; [`check`](super::check) says which wraps are missing.
    ///
    /// If nothing but white space is left of the text without its kept pieces, the result is the source.
    #[must_use]
    pub fn place(&self) -> MarkedText {
        let given = if self.given.marks.len() == self.source.marks.len() {
            self.given
        } else {
            self.source
        };
        if given.text.trim().is_empty() || self.source.marks.is_empty() {
            let unmarked = || MarkedText { text: self.target.to_owned(), marks: Vec::new() };
            return if self.source.marks.is_empty() { unmarked() } else { self.source.clone() };
        }
        let diagonal;
        let usable = |alignment: &Alignment<'_>| {
            alignment.source.len().checked_mul(alignment.target.len())
                == Some(alignment.weights.len())
        };
        let alignment = match self.alignment.filter(usable) {
            Some(alignment) => alignment,
            None => {
                diagonal = Diagonal::new(&given.text, self.target);
                diagonal.alignment()
            }
        };
        let nodes = tree(self.source);
        let texts =
            Texts { source: self.source, given, target: self.target, alignment, nodes: &nodes };
        let units = texts.units();
        let intervals = texts.intervals(&units);
        write::write(&texts, &units, &intervals)
    }

    /// Whether the translation has the stand-ins of all kept pieces, as often as the text that the model was given, whatever
    /// the case of ASCII letters. If not, the model did not copy one of them, and another [`StandIn`](super::StandIn) may
    /// give a better sentence. A piece that was removed needs no copy.
    #[must_use]
    pub fn has_stand_ins(&self) -> bool {
        let target = self.target.to_ascii_lowercase();
        let given = self.given.text.to_ascii_lowercase();
        let keeps =
            self.given.marks.iter().filter(|mark| matches!(mark.kind, MarkKind::Keep { .. }));
        let pieces = keeps.filter_map(|mark| given.get(mark.range.clone()));
        let mut pieces: Vec<&str> = pieces.filter(|piece| !piece.is_empty()).collect();
        pieces.sort_unstable();
        pieces.dedup();
        let count = |text: &str, piece: &str| occurrences(text, piece).count();
        pieces.into_iter().all(|piece| count(&target, piece) == count(&given, piece))
    }
}

impl Texts<'_> {
    /// The parts of the translation, with the kept pieces among them.
    fn units(&self) -> Units {
        let starts = self.alignment.target.iter().map(|span| span.start);
        let all = split_words(self.target, starts);
        let mut units = Units::new(all, self.given.text.len(), &self.alignment);
        self.replace_stand_ins(&mut units);
        // The words that stand for a piece whose stand-in is not in the translation.
        let keeps = (0..self.nodes.len())
            .filter(|&node| matches!(self.nodes[node].kind, NodeKind::Keep(_)));
        let keeps: Vec<usize> = keeps.filter(|&node| !units.has(node)).collect();
        for &node in &keeps {
            let range = self.given_range(&self.nodes[node]);
            if range.is_empty() {
                continue;
            }
            let value = |(index, unit): (usize, &Unit)| match unit.free() {
                true => units.share(index, &range).map_or(UNKNOWN, |share| share - INSIDE),
                false => TAKEN,
            };
            let values: Vec<f32> = units.list.iter().enumerate().map(value).collect();
            if let Some((run, _)) = best_run(&values) {
                units.replace(run, node);
            }
        }
        units.refresh(self.given.text.len(), &self.alignment);
        // All others are inserted.
        let mut inserted = Vec::new();
        for node in keeps.into_iter().filter(|&node| !units.has(node)) {
            let boundary = self.boundary(&units, node, 0..units.list.len(), |_| true);
            inserted.push((boundary, node));
        }
        units.insert(inserted);
        units
    }

    /// Finds the stand-ins in the translation, whatever the case of ASCII letters: of several, those with most attention on the piece, of equal ones in order.
    fn replace_stand_ins(&self, units: &mut Units) {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let text = self.given.text.get(self.given_range(node)).unwrap_or_default();
            if matches!(node.kind, NodeKind::Keep(_)) && !text.trim().is_empty() {
                groups.entry(text.to_ascii_lowercase()).or_default().push(index);
            }
        }
        // A longer stand-in may contain a shorter one.
        let mut groups: Vec<(String, Vec<usize>)> = groups.into_iter().collect();
        groups.sort_by_key(|(text, _)| Reverse(text.len()));
        let target = self.target.to_ascii_lowercase();
        let given = self.given.text.to_ascii_lowercase();
        let mut edits: Vec<(Range<usize>, Option<usize>)> = Vec::new();
        for (text, nodes) in groups {
            let free = |range: &Range<usize>| {
                edits.iter().all(|(edit, _)| edit.end <= range.start || edit.start >= range.end)
            };
            let found: Vec<Range<usize>> = occurrences(&target, &text).filter(free).collect();
            let own = occurrences(&given, &text).count();
            let mass = Mass::new(&found, &self.alignment, self.given.text.len());
            let mut pairs: Vec<(f32, usize, usize)> = Vec::new();
            for (rank, &node) in nodes.iter().enumerate() {
                let range = self.given_range(&self.nodes[node]);
                let share = |place: usize| mass.share(place, &range).unwrap_or_default();
                // Many equal pieces are placed in their order.
                let near = if nodes.len() * found.len() > 4096 {
                    rank..(rank + 1).min(found.len())
                } else {
                    0..found.len()
                };
                pairs.extend(near.map(|place| (share(place), rank, place)));
            }
            pairs.sort_by(|a, b| {
                b.0.total_cmp(&a.0)
                    .then(a.1.abs_diff(a.2).cmp(&b.1.abs_diff(b.2)))
                    .then(a.1.cmp(&b.1))
            });
            let mut of_place = vec![None; found.len()];
            let mut placed = vec![false; nodes.len()];
            for (_, rank, place) in pairs {
                if !placed[rank] && of_place[place].is_none() {
                    of_place[place] = Some(nodes[rank]);
                    placed[rank] = true;
                }
            }
            // What the text has beside its pieces may be in the translation too.
            let repeated = own <= nodes.len();
            let edit = |(range, node): (Range<usize>, Option<usize>)| {
                (node.is_some() || repeated).then_some((range, node))
            };
            let more: Vec<_> = found.into_iter().zip(of_place).filter_map(edit).collect();
            edits.extend(more);
        }
        edits.sort_by_key(|(range, _)| range.start);
        units.edit(&edits);
        units.refresh(self.given.text.len(), &self.alignment);
    }

    /// For each node, the units that it is around, or the boundary at which it stands. `None` for a wrap that is omitted.
    fn intervals(&self, units: &Units) -> Vec<Option<Range<usize>>> {
        let count = units.list.len();
        let mut intervals: Vec<Option<Range<usize>>> = vec![None; self.nodes.len()];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            children[node.parent].push(index);
        }
        if let Some(root) = intervals.first_mut() {
            *root = Some(0..count);
        }
        for parent in (0..self.nodes.len()).filter(|&parent| !children[parent].is_empty()) {
            // What was in a wrap that is omitted belongs to the next one around it; wraps in it are omitted too.
            let mut outer = parent;
            while intervals[outer].is_none() && outer > 0 {
                outer = self.nodes[outer].parent;
            }
            let around = intervals[outer].clone().unwrap_or(0..count);
            let (mut wraps, points): (Vec<usize>, Vec<usize>) = children[parent]
                .iter()
                .copied()
                .filter(|&node| !matches!(self.nodes[node].kind, NodeKind::Keep(_)))
                .partition(|&node| self.has_words(node));
            let tags = wraps
                .iter()
                .copied()
                .filter(|&node| matches!(self.nodes[node].kind, NodeKind::Tags(..)));
            let tags: Vec<usize> = tags.collect();
            if outer != parent {
                wraps.clear();
            }
            let mut taken = vec![false; count];
            let mut ranked: Vec<(f32, usize)> = Vec::with_capacity(wraps.len());
            for &node in &wraps {
                let values = self.values(units, node, &around, &taken);
                ranked.push((best_run(&values).map_or(0.0, |(_, sum)| sum), node));
            }
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            for (_, node) in ranked {
                let found = self.wrap_interval(units, node, parent, &around, &taken);
                if let Some(range) = &found {
                    taken[range.clone()].fill(true);
                }
                intervals[node] = found;
            }
            // A boundary inside a wrap belongs to the wrap.
            let mut inside = vec![false; count + 1];
            for range in wraps
                .iter()
                .filter_map(|&node| intervals[node].clone())
                .filter(|range| range.len() > 1)
            {
                inside[range.start + 1..range.end].fill(true);
            }
            let lone: Vec<usize> =
                tags.into_iter().filter(|&node| intervals[node].is_none()).collect();
            for node in points.into_iter().chain(lone) {
                let boundary =
                    self.boundary(units, node, around.clone(), |boundary| !inside[boundary]);
                intervals[node] = Some(boundary..boundary);
            }
        }
        intervals
    }

    /// Whether a node is around words or kept pieces, so that it is placed around units.
    fn has_words(&self, node: usize) -> bool {
        let content = self.source.text.get(self.nodes[node].content.clone()).unwrap_or_default();
        !matches!(self.nodes[node].kind, NodeKind::Point(_)) && !content.trim().is_empty()
    }

    /// What each of the units in `around` counts for a wrap.
    fn values(
        &self,
        units: &Units,
        node: usize,
        around: &Range<usize>,
        taken: &[bool],
    ) -> Vec<f32> {
        let content = &self.nodes[node].content;
        let given = self.given_range(&self.nodes[node]);
        let value = |index: usize| {
            let unit = &units.list[index];
            if taken[index] {
                return TAKEN;
            }
            if let Some(piece) = unit.piece {
                let piece = &self.nodes[piece].content;
                let own = content.start <= piece.start && piece.end <= content.end;
                return if own { OWN_PIECE } else { OTHER_PIECE };
            }
            let Some(share) = units.share(index, &given).filter(|_| unit.free()) else {
                return UNKNOWN;
            };
            (share - INSIDE) * if self.is_word(unit) { 1.0 } else { SIGN }
        };
        around.clone().map(value).collect()
    }

    fn is_word(&self, unit: &Unit) -> bool {
        self.target.get(unit.range.clone()).is_some_and(|text| text.contains(char::is_alphanumeric))
    }

    /// The units of a wrap in `around`, the interval of its parent.
    fn wrap_interval(
        &self,
        units: &Units,
        node: usize,
        parent: usize,
        around: &Range<usize>,
        taken: &[bool],
    ) -> Option<Range<usize>> {
        let text = |node: usize| {
            let content = self.nodes[node].content.clone();
            self.source.text.get(content).unwrap_or_default().trim()
        };
        let free = |index: usize| !taken[index] && !units.list[index].gone;
        if text(node).len() == text(parent).len()
            && around.clone().all(|index| !taken[index])
            && !around.is_empty()
        {
            return Some(around.clone());
        }
        let values = self.values(units, node, around, taken);
        if let Some((run, _)) = best_run(&values) {
            return Some(around.start + run.start..around.start + run.end);
        }
        let given = self.given_range(&self.nodes[node]);
        let middle = (self.nodes[node].content.start + self.nodes[node].content.end) as f32 / 2.0;
        let expected =
            middle / self.source.text.len().max(1) as f32 * units.list.len() as f32 - 0.5;
        let quality = |&index: &usize| {
            let unit = &units.list[index];
            let share = units.share(index, &given).unwrap_or_default();
            let weight = if self.is_word(unit) { 1.0 } else { SIGN };
            (share * weight, -(index as f32 - expected).abs())
        };
        let candidates =
            around.clone().filter(|&index| free(index) && units.list[index].piece.is_none());
        let best = candidates.max_by(|a, b| {
            let ((a, near_a), (b, near_b)) = (quality(a), quality(b));
            a.total_cmp(&b).then(near_a.total_cmp(&near_b))
        });
        best.map(|index| index..index + 1)
    }

    /// The boundary in `around` at which a mark stands that is around nothing: where the units before it have most
    /// attention on the tokens before it, and those after it on the tokens after it. Of equal ones, the one at the same
    /// part of the text.
    fn boundary(
        &self,
        units: &Units,
        node: usize,
        around: Range<usize>,
        allowed: impl Fn(usize) -> bool,
    ) -> usize {
        let node = &self.nodes[node];
        let (own, given) = (&node.content, self.given_range(node));
        let text = &self.source.text;
        let before = text.get(..own.start).and_then(|before| before.chars().next_back());
        let after = text.get(own.end..).and_then(|after| after.chars().next());
        let space = |letter: Option<char>| letter.is_none_or(char::is_whitespace);
        let factors = match (space(before), space(after)) {
            (false, true) => [1.0, FAR_SIDE],
            (true, false) => [FAR_SIDE, 1.0],
            _ => [1.0, 1.0],
        };
        let expected = own.start as f32 / text.len().max(1) as f32 * units.list.len() as f32;
        let mut best = (f32::NEG_INFINITY, f32::INFINITY, around.start);
        let mut sum = 0.0;
        for boundary in around.start..=around.end {
            let far = (boundary as f32 - expected).abs();
            let better = sum > best.0 + 1e-6 || (sum > best.0 - 1e-6 && far < best.1);
            if allowed(boundary) && better {
                best = (sum, far, boundary);
            }
            if boundary == around.end {
                break;
            }
            let unit = &units.list[boundary];
            sum += match (unit.piece, unit.row) {
                (Some(piece), _) if self.nodes[piece].content.start < own.start => ORDER,
                (Some(_), _) => -ORDER,
                (None, Some(row)) if !unit.gone => units.mass.side(row, &given, factors, DECAY),
                _ => 0.0,
            };
        }
        best.2
    }
}

/// The run with the largest sum, if that is positive; of equal ones the first and shortest.
fn best_run(values: &[f32]) -> Option<(Range<usize>, f32)> {
    let mut best: Option<(Range<usize>, f32)> = None;
    let (mut start, mut sum) = (0, 0.0);
    for (index, value) in values.iter().enumerate() {
        if sum <= 0.0 {
            (start, sum) = (index, 0.0);
        }
        sum += value;
        if sum > best.as_ref().map_or(0.0, |(_, best)| *best) {
            best = Some((start..index + 1, sum));
        }
    }
    best
}

/// Where `piece` is in `text`, not as a part of a word.
fn occurrences<'t>(text: &'t str, piece: &'t str) -> impl Iterator<Item = Range<usize>> {
    let word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    let (begins, ends) = (word(piece.chars().next()), word(piece.chars().next_back()));
    text.match_indices(piece).filter_map(move |(at, _)| {
        let end = at + piece.len();
        let before = begins && word(text[..at].chars().next_back());
        let after = ends && word(text[end..].chars().next());
        (!before && !after).then_some(at..end)
    })
}
