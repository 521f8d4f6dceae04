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
    /// Whether it controls the model: begin, end, padding, unknown, a language. A mask or a sentinel does not.
    pub(crate) control: bool,
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

    /// Whether `text` is that of a token that controls the model.
    pub(crate) fn is_control(&self, text: &str) -> bool {
        self.at(text.as_bytes()).is_some_and(|(len, token)| len == text.len() && token.control)
    }

    /// The longest token at the begin of `bytes`, and its length.
    fn at(&self, bytes: &[u8]) -> Option<(usize, &Special)> {
        let len = self.trie.longest(bytes)?;
        let token = self.trie.find(bytes.get(..len)?)?;
        Some((len, self.tokens.get(token as usize)?))
    }

    /// The places inside of `text` where it is cut so that no token that controls the model is in a part.
    #[cfg(feature = "json")]
    pub(crate) fn cuts(&self, text: &str) -> Vec<usize> {
        let (mut cuts, mut at) = (Vec::new(), 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let first = rest.chars().next().map_or(1, char::len_utf8);
            match self.at(rest.as_bytes()) {
                Some((len, token)) if !token.control => at += len,
                Some(_) => {
                    at += first;
                    cuts.push(at);
                }
                None => at += first,
            }
        }
        cuts
    }

    /// Calls `each` with the parts of `text` in order and their bytes; text parts are not empty. If `plain` is set, a token
    /// that controls the model is text.
    pub(crate) fn split<'t, E>(
        &self,
        text: &'t str,
        plain: bool,
        mut each: impl FnMut(Range<usize>, Part<'t>) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = text.as_bytes();
        let (mut from, mut at) = (0, 0);
        while at < bytes.len() {
            // Keys are whole characters, so a match begins and ends at a character boundary.
            let Some((len, token)) =
                self.at(&bytes[at..]).filter(|(_, token)| !(plain && token.control))
            else {
                at += 1;
                continue;
            };
            let mut before = text.get(from..at).unwrap_or_default();
            if token.left {
                before = before.trim_end();
            }
            if !before.is_empty() {
                each(from..from + before.len(), Part::Text(before))?;
            }
            each(at..at + len, Part::Token(token.id))?;
            at += len;
            from = at;
        }
        match text.get(from..) {
            Some(rest) if !rest.is_empty() => each(from..bytes.len(), Part::Text(rest)),
            _ => Ok(()),
        }
    }
}
