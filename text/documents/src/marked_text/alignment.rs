//! Which words of a translation stand for which words of its source, by cross-attention.

use crate::scripts::split_words;
use std::ops::Range;

/// The cross-attention of one translation, with the place of each token in the texts.
///
/// [`Session::align`](https://docs.rs/simdformer) writes the weights; `Tokenizer::encode_with_spans` and
/// `Tokenizer::decode_with_spans` give the places.
#[derive(Clone, Copy, Debug)]
pub struct Alignment<'a> {
    /// `[target tokens, source tokens]`, row-major: row `i` are the weights with which the token `i` was predicted.
    /// Numbers that are not finite or not positive count as 0, and rows need not be normalized.
    pub weights: &'a [f32],
    /// For each source token, the bytes of the source text; empty for a special token, whose weights are not used.
    pub source: &'a [Range<usize>],
    /// For each target token, the bytes of the target text; empty for a special token.
    pub target: &'a [Range<usize>],
}

/// The word alignment of a sentence and its translation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WordAlignment {
    /// The words and the punctuation of the source, as bytes of its text.
    pub source: Vec<Range<usize>>,
    /// The words and the punctuation of the target.
    pub target: Vec<Range<usize>>,
    /// Sorted by target, then by source.
    pub links: Vec<WordLink>,
}

/// Two words that are aligned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WordLink {
    /// Index of the source word.
    pub source: usize,
    /// Index of the target word.
    pub target: usize,
    /// The part of the target word's attention that the source word has, from 0 to 1, after each weight of a token was
    /// multiplied by its share of all attention to that source token.
    pub weight: f32,
}

impl WordAlignment {
    /// Links each target word to the source word with most of its attention, and to each other source word with at least
    /// half of that. A target word without attention has no link.
    ///
    /// A word is a run of letters and digits; in a script without spaces, a token. The attention of a target word is the
    /// mean over its tokens, that of a source word the sum. If the number of weights is not that of the tokens, there are
    /// no links.
    ///
    /// ```
    /// use simdformer_documents::marked_text::{Alignment, WordAlignment};
    ///
    /// let weights = [0.1, 0.8, 0.1, 0.9, 0.1, 0.0];
    /// let alignment = Alignment { weights: &weights, source: &[0..6, 7..14, 14..14], target: &[0..5, 6..9] };
    /// let words = WordAlignment::new("maison blanche", "white hut", &alignment);
    /// let links: Vec<_> = words.links.iter().map(|link| (link.target, link.source)).collect();
    /// assert_eq!(links, [(0, 1), (1, 0)]);
    /// ```
    #[must_use]
    pub fn new(source: &str, target: &str, alignment: &Alignment<'_>) -> Self {
        let source_words = split_words(source, alignment.source.iter().map(|span| span.start));
        let target_words = split_words(target, alignment.target.iter().map(|span| span.start));
        let mass = Mass::new(&target_words, alignment, source.len());
        let mut links = Vec::new();
        for word in 0..target_words.len() {
            let weights: Vec<f32> = source_words
                .iter()
                .map(|range| mass.share(word, range).unwrap_or_default())
                .collect();
            let most = weights.iter().copied().fold(0.0, f32::max);
            let linked =
                (0..).zip(weights).filter(|&(_, weight)| weight > 0.0 && weight >= most / 2.0);
            links.extend(linked.map(|(source, weight)| WordLink { source, target: word, weight }));
        }
        Self { source: source_words, target: target_words, links }
    }

    /// The share of the words whose link is mutual: of all target words that are the best of a source word's and of which
    /// that source word is the best. A layer of a model whose attention aligns words has a high one, so that the layer can
    /// be chosen without known alignments.
    #[must_use]
    pub fn mutual(&self) -> f32 {
        let mut best: Vec<Option<WordLink>> = vec![None; self.source.len()];
        let mut of_target: Vec<Option<WordLink>> = vec![None; self.target.len()];
        for link in &self.links {
            for best in
                [best.get_mut(link.source), of_target.get_mut(link.target)].into_iter().flatten()
            {
                if best.is_none_or(|best| best.weight < link.weight) {
                    *best = Some(*link);
                }
            }
        }
        let mutual = of_target.iter().flatten().filter(|link| {
            best.get(link.source).copied().flatten().is_some_and(|best| best.target == link.target)
        });
        let mutual = mutual.count();
        2.0 * mutual as f32 / (self.source.len() + self.target.len()).max(1) as f32
    }
}

/// How many tokens on each side decide where a mark without text stands.
const NEAR: usize = 16;

/// The attention of parts of the target to the source tokens, in both directions: each weight is multiplied by its share of
/// the attention that its source token gets. An article without a counterpart attends to its noun, but most attention to
/// the noun is that of its translation. With the demo model this raises the tags that wrap the right words from 557 to 569
/// of 574.
pub(super) struct Mass {
    /// The source tokens that have text, in order.
    spans: Vec<Range<usize>>,
    /// `[parts, spans]`, row-major.
    rows: Vec<f32>,
    totals: Vec<f32>,
}

impl Mass {
    /// The attention of `parts`, bytes of the target text in order, to a source of `source_len` bytes.
    pub(super) fn new(
        parts: &[Range<usize>],
        alignment: &Alignment<'_>,
        source_len: usize,
    ) -> Self {
        let columns = alignment.source.len();
        let all = (0..columns).zip(alignment.source);
        let mut tokens: Vec<(usize, &Range<usize>)> =
            all.filter(|(_, span)| span.start < span.end && span.end <= source_len).collect();
        if alignment.target.len().checked_mul(columns) != Some(alignment.weights.len()) {
            tokens.clear();
        }
        tokens.sort_by_key(|(_, span)| (span.start, span.end));
        let weight = |row: &[f32], token: usize| {
            let weight = row.get(token).copied().unwrap_or_default();
            if weight.is_finite() { weight.max(0.0) } else { 0.0 }
        };
        let all = || alignment.weights.chunks(columns.max(1));
        let sum = |&(token, _): &(usize, _)| all().map(|row| weight(row, token)).sum();
        let sums: Vec<f32> = tokens.iter().map(sum).collect();
        let mut rows = vec![0.0; parts.len() * tokens.len()];
        for (row, span) in all().zip(alignment.target) {
            let first = parts.partition_point(|part| part.end <= span.start);
            let touched = (first..).zip(&parts[first..]);
            for (part, range) in touched.take_while(|(_, part)| part.start < span.end) {
                let bytes = overlap(range, span) as f32;
                let outs = rows[part * tokens.len()..].iter_mut();
                for ((out, &(token, _)), &sum) in outs.zip(&tokens).zip(&sums) {
                    let weight = weight(row, token);
                    // Of all attention to the source token, the part of this target token.
                    *out += if sum > 0.0 { bytes * weight * (weight / sum) } else { 0.0 };
                }
            }
        }
        let spans: Vec<Range<usize>> = tokens.into_iter().map(|(_, span)| span.clone()).collect();
        let row = |part: usize| rows.get(part * spans.len()..(part + 1) * spans.len());
        let totals =
            (0..parts.len()).map(|part| row(part).unwrap_or_default().iter().sum()).collect();
        Self { spans, rows, totals }
    }

    /// The part of the attention of `part` that the bytes `range` of the source have, from 0 to 1. `None` if it has none.
    pub(super) fn share(&self, part: usize, range: &Range<usize>) -> Option<f32> {
        let total =
            self.totals.get(part).copied().filter(|&total| total > 0.0 && total.is_finite())?;
        let row = self.row(part);
        let first = self.spans.partition_point(|span| span.end <= range.start);
        let inside = self.spans[first..].iter().zip(&row[first..]);
        let inside = inside.take_while(|(span, _)| span.start < range.end);
        let sum: f32 = inside
            .map(|(span, weight)| weight * overlap(span, range) as f32 / span.len() as f32)
            .sum();
        Some((sum / total).min(1.0))
    }

    /// How much more of the attention of `part` goes to the tokens before `range` of the source than to those after it, where
    /// each token counts `decay` times as much as the next nearer one. The two factors are for the sides.
    pub(super) fn side(
        &self,
        part: usize,
        range: &Range<usize>,
        factors: [f32; 2],
        decay: f32,
    ) -> f32 {
        let Some(total) =
            self.totals.get(part).copied().filter(|&total| total > 0.0 && total.is_finite())
        else {
            return 0.0;
        };
        let row = self.row(part);
        // From the nearest token on. With a decay of 1/2, the tokens after these count less than 2^-NEAR.
        let faded = |weights: &mut dyn Iterator<Item = &f32>| {
            weights
                .fold((0.0, 1.0), |(sum, factor), weight| (sum + factor * weight, factor * decay))
                .0
        };
        let before = self.spans.partition_point(|span| span.end <= range.start);
        let after = self.spans.partition_point(|span| span.start < range.end).max(before);
        let left = faded(&mut row[..before].iter().rev().take(NEAR));
        let right = faded(&mut row[after..].iter().take(NEAR));
        (factors[0] * left - factors[1] * right) / total
    }

    fn row(&self, part: usize) -> &[f32] {
        let width = self.spans.len();
        self.rows.get(part * width..(part + 1) * width).unwrap_or_default()
    }
}

/// The number of bytes that two ranges have in common.
fn overlap(one: &Range<usize>, two: &Range<usize>) -> usize {
    one.end.min(two.end).saturating_sub(one.start.max(two.start))
}

/// An alignment of a text without attention: words at the same part of both texts.
#[derive(Debug, Default)]
pub(super) struct Diagonal {
    weights: Vec<f32>,
    source: Vec<Range<usize>>,
    target: Vec<Range<usize>>,
}

impl Diagonal {
    pub(super) fn new(source: &str, target: &str) -> Self {
        let (source_words, target_words) = (split_words(source, []), split_words(target, []));
        let (from, to) = (source.len().max(1), target.len().max(1));
        let mut weights = Vec::with_capacity(source_words.len() * target_words.len());
        for word in &target_words {
            // In units of which both texts have `from * to`.
            let place = word.start * from..word.end * from;
            let common =
                source_words.iter().map(|of| overlap(&place, &(of.start * to..of.end * to)) as f32);
            weights.extend(common);
        }
        Self { weights, source: source_words, target: target_words }
    }

    pub(super) fn alignment(&self) -> Alignment<'_> {
        Alignment { weights: &self.weights, source: &self.source, target: &self.target }
    }
}
