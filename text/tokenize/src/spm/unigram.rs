//! The segmentation with the highest score: Viterbi over bytes, where each end stores its best start.

use super::file::Kind;
use super::model::{Segment, SentencePiece};
use super::normalized::character_len;
use crate::trie::ROOT;

/// The penalty, relative to the worst piece, of a character with which no piece begins.
const UNKNOWN_PENALTY: f32 = 10.0;
const NOWHERE: u32 = u32::MAX;

/// The best segmentation up to a position.
#[derive(Clone, Copy)]
struct Best {
    score: f32,
    start: u32,
    id: u32,
}

impl Best {
    /// Of equal scores, the first one stays.
    #[inline]
    fn improve(&mut self, score: f32, start: usize, id: u32) {
        if self.start == NOWHERE || score > self.score {
            *self = Self { score, start: start as u32, id };
        }
    }
}

impl SentencePiece {
    pub(super) fn unigram(&self, text: &[u8]) -> Vec<Segment> {
        let unknown_score = self.lowest - UNKNOWN_PENALTY;
        let mut best = vec![Best { score: 0.0, start: NOWHERE, id: 0 }; text.len() + 1];
        let mut start = 0;
        while start < text.len() {
            let here = best[start].score;
            let character = character_len(&text[start..]);
            let mut node = ROOT;
            let mut whole_character = false;
            for (before, &byte) in text[start..].iter().enumerate() {
                let Some(child) = self.trie.child(node, byte) else { break };
                node = child;
                let Some(id) = self.trie.id(node) else { continue };
                let len = before + 1;
                let score = match self.pieces.kind(id) {
                    Kind::Unused => continue,
                    Kind::UserDefined => len as f32 * self.highest - 0.1,
                    _ => self.pieces.score(id),
                };
                best[start + len].improve(score + here, start, id);
                whole_character |= len == character;
            }
            if !whole_character {
                best[start + character].improve(unknown_score + here, start, self.unknown);
            }
            start += character;
        }
        let mut segments = Vec::new();
        let mut end = text.len();
        while end > 0 {
            let Best { start, id, .. } = best[end];
            // Every end of a character is reachable by that character. A piece that ends inside a character is
            // followed by no piece.
            if start == NOWHERE {
                break;
            }
            segments.push(Segment { start, end: end as u32, id });
            end = start as usize;
        }
        segments.reverse();
        segments
    }
}
