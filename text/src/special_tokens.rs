//! Special tokens, which are matched in the text before segmentation.

use crate::trie::Trie;
use std::ops::Range;

/// A token that is matched wherever its text occurs.
#[derive(Clone, Debug)]
pub(crate) struct Special {
    pub(crate) text: String,
    pub(crate) id: u32,
    /// Whether the token includes the spaces before it.
    pub(crate) left: bool,
}

/// All special tokens; the leftmost match is used, and at one position the longest.
#[derive(Debug)]
pub(crate) struct Specials {
    tokens: Vec<Special>,
    trie: Trie,
}

/// A part of a text.
#[derive(Clone, Copy)]
pub(crate) enum Part<'t> {
    Text(&'t str),
    Token(u32),
}

impl Specials {
    pub(crate) fn new(tokens: Vec<Special>) -> Self {
        let trie = Trie::new(tokens.iter().enumerate().map(|(i, t)| (t.text.as_bytes(), i as u32)));
        Self { tokens, trie }
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        self.tokens.iter().map(|token| token.id)
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(|token| token.text.as_str())
    }

    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        self.tokens.iter().find(|token| token.id == id).map(|token| token.text.as_str())
    }

    /// Calls `each` with the parts of `text` in order and their bytes; text parts are not empty.
    pub(crate) fn split<'t, E>(
        &self,
        text: &'t str,
        mut each: impl FnMut(Range<usize>, Part<'t>) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = text.as_bytes();
        let (mut from, mut at) = (0, 0);
        while at < bytes.len() {
            let Some(len) = self.trie.longest(&bytes[at..]) else {
                at += 1;
                continue;
            };
            // Keys are whole characters, so a match begins and ends at a character boundary.
            let found = self.trie.find(&bytes[at..at + len]);
            if let Some(token) = found.and_then(|i| self.tokens.get(i as usize)) {
                let mut before = text.get(from..at).unwrap_or_default();
                if token.left {
                    before = before.trim_end();
                }
                if !before.is_empty() {
                    each(from..from + before.len(), Part::Text(before))?;
                }
                each(at..at + len, Part::Token(token.id))?;
            }
            at += len;
            from = at;
        }
        match text.get(from..) {
            Some(rest) if !rest.is_empty() => each(from..bytes.len(), Part::Text(rest)),
            _ => Ok(()),
        }
    }
}
