//! BPE: merges neighbors, the best score first and the leftmost of equal ones, until no two neighbors form a piece.

use super::file::Kind;
use super::model::{Segment, SentencePiece};
use super::normalized::character_len;
use crate::trie::ROOT;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

const NONE: u32 = u32::MAX;

/// A part of the text between merges; empty after it was merged into its left neighbor.
#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    len: u32,
    previous: u32,
    next: u32,
    /// The trie node of its text, from which the right neighbor's text continues.
    node: u32,
    /// User-defined: never merged.
    frozen: bool,
}

/// Two neighbors whose concatenated text is a piece.
struct Pair {
    score: f32,
    left: u32,
    right: u32,
    len: u32,
    node: u32,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

struct Merging<'m, 't> {
    model: &'m SentencePiece,
    text: &'t [u8],
    symbols: Vec<Symbol>,
    agenda: BinaryHeap<Pair>,
    /// For each unused piece that was merged: the length of its left part.
    unused: HashMap<&'t [u8], u32>,
}

impl SentencePiece {
    pub(super) fn bpe(&self, text: &[u8]) -> Vec<Segment> {
        let mut merging = Merging {
            model: self,
            text,
            symbols: Vec::with_capacity(text.len()),
            agenda: BinaryHeap::new(),
            unused: HashMap::new(),
        };
        merging.split();
        for right in 1..merging.symbols.len() as u32 {
            merging.consider(right - 1, right);
        }
        merging.merge();
        merging.segments()
    }
}

impl Merging<'_, '_> {
    /// Splits the text into characters and user-defined symbols.
    fn split(&mut self) {
        let (mut start, mut index) = (0, 0);
        while start < self.text.len() {
            let rest = &self.text[start..];
            let symbol = self.model.normalizer.symbol(rest);
            let len = symbol.unwrap_or_else(|| character_len(rest));
            let node = self.model.trie.walk(ROOT, &rest[..len]).unwrap_or(NONE);
            start += len;
            self.symbols.push(Symbol {
                start: (start - len) as u32,
                len: len as u32,
                previous: if index == 0 { NONE } else { index - 1 },
                next: if start == self.text.len() { NONE } else { index + 1 },
                node,
                frozen: symbol.is_some(),
            });
            index += 1;
        }
    }

    /// Queues two neighbors if their concatenated text is a piece.
    fn consider(&mut self, left: u32, right: u32) {
        let text = self.text;
        let (Some(a), Some(b)) =
            (self.symbols.get(left as usize), self.symbols.get(right as usize))
        else {
            return;
        };
        if a.frozen || b.frozen || a.node == NONE {
            return;
        }
        let trie = &self.model.trie;
        let (from, to) = (b.start as usize, (b.start + b.len) as usize);
        let Some(node) = trie.walk(a.node, &text[from..to]) else { return };
        let Some(id) = trie.id(node) else { return };
        let score = self.model.pieces.score(id);
        self.agenda.push(Pair { score, left, right, len: a.len + b.len, node });
        if self.model.pieces.kind(id) == Kind::Unused {
            self.unused.insert(&text[a.start as usize..to], a.len);
        }
    }

    fn merge(&mut self) {
        while let Some(pair) = self.agenda.pop() {
            let (left, right) = (pair.left as usize, pair.right as usize);
            let (a, b) = (self.symbols[left], self.symbols[right]);
            if a.len == 0 || b.len == 0 || a.len + b.len != pair.len {
                continue;
            }
            self.symbols[left] = Symbol { len: pair.len, next: b.next, node: pair.node, ..a };
            if let Some(after) = self.symbols.get_mut(b.next as usize) {
                after.previous = pair.left;
            }
            self.symbols[right].len = 0;
            self.consider(a.previous, pair.left);
            self.consider(pair.left, b.next);
        }
    }

    /// The remaining segments; unused pieces are split again.
    fn segments(&self) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut apart = Vec::new();
        for symbol in self.symbols.iter().filter(|symbol| symbol.len > 0) {
            apart.push((symbol.start, symbol.start + symbol.len));
            while let Some((start, end)) = apart.pop() {
                let piece = &self.text[start as usize..end as usize];
                let id = self.id_of(piece);
                let left = match self.model.pieces.kind(id) {
                    Kind::Unused => self.unused.get(piece),
                    _ => None,
                };
                match left {
                    Some(&left) => apart.extend([(start + left, end), (start, start + left)]),
                    None => segments.push(Segment { start, end, id }),
                }
            }
        }
        segments
    }

    fn id_of(&self, piece: &[u8]) -> u32 {
        let id = str::from_utf8(piece).ok().and_then(|piece| self.model.id(piece));
        id.unwrap_or(self.model.unknown)
    }
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use crate::SentencePiece;

    /// A protobuf field of fewer than 128 bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
        let score = [&[0x15], &score.to_le_bytes()[..]].concat();
        field(1, &[field(1, text.as_bytes()), score, vec![0x18, kind]].concat())
    }

    /// All neighbors are compared before each merge. `known`: the pieces with their scores, and whether they are
    /// user-defined.
    fn naive(text: &str, known: &[(String, f32, bool)]) -> Vec<String> {
        let find = |text: &str| known.iter().find(|(piece, ..)| piece == text);
        let mut parts: Vec<(String, bool)> = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let symbols = known.iter().filter(|(piece, _, own)| *own && rest.starts_with(piece));
            let longest = symbols.map(|(piece, ..)| piece.len()).max();
            let (part, after) = rest.split_at(longest.unwrap_or(1));
            parts.push((part.to_owned(), longest.is_some()));
            rest = after;
        }
        loop {
            let mut best: Option<(usize, String, f32)> = None;
            for (at, pair) in parts.windows(2).enumerate() {
                let joined = format!("{}{}", pair[0].0, pair[1].0);
                if let Some((_, score, _)) = find(&joined).filter(|_| !pair[0].1 && !pair[1].1)
                    && best.as_ref().is_none_or(|(_, _, most)| score > most)
                {
                    best = Some((at, joined, *score));
                }
            }
            let Some((at, joined, _)) = best else { break };
            parts.splice(at..at + 2, [(joined, false)]);
        }
        let known = |part: String| if find(&part).is_some() { part } else { "<unk>".to_owned() };
        let mut pieces: Vec<String> = parts.into_iter().map(|(part, _)| known(part)).collect();
        pieces.dedup_by(|next, piece| next == piece && *piece == "<unk>");
        pieces
    }

    /// Random models of few letters and scores: ties are frequent, and pieces join user-defined symbols with their
    /// neighbors on both sides.
    #[test]
    fn segments_are_those_of_the_rule() {
        let mut state = 1u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let (mut symbols, mut merged) = (0, 0);
        for _ in 0..300 {
            let mut known: Vec<(String, f32, bool)> = Vec::new();
            for _ in 0..4 + below(12) {
                let text: String =
                    (0..1 + below(4)).map(|_| ['a', 'b', 'c'][below(3) as usize]).collect();
                if known.iter().all(|(piece, ..)| *piece != text) {
                    known.push((text, below(4) as f32 - 3.0, below(5) == 0));
                }
            }
            let all = known
                .iter()
                .map(|(text, score, own)| piece(text, *score, if *own { 4 } else { 1 }));
            let all: Vec<u8> = all.flatten().collect();
            // BPE, without rules for spaces.
            let (bpe, plain) = (field(2, &[0x18, 2]), field(3, &[0x18, 0, 0x20, 0, 0x28, 0]));
            let file = [piece("<unk>", 0.0, 2), all, bpe, plain].concat();
            let model = SentencePiece::from_bytes(&file).unwrap();
            for _ in 0..10 {
                let text: String =
                    (0..below(12)).map(|_| ['a', 'b', 'c'][below(3) as usize]).collect();
                let ids = model.encode(&text).unwrap();
                let found: Vec<&str> = ids.iter().filter_map(|&id| model.piece(id)).collect();
                let expected = naive(&text, &known);
                assert_eq!(found, expected, "{text} {known:?}");
                symbols += known
                    .iter()
                    .filter(|(piece, _, own)| *own && text.contains(&piece[..]))
                    .count();
                merged += expected.iter().filter(|part| part.len() > 1).count();
            }
        }
        assert!(symbols > 300 && merged > 1000, "{symbols} {merged}");
    }
}
