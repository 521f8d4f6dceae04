//! A text that is rewritten rule by rule, with the place in the original of each character.

use super::classes::is_space;
use std::ops::Range;

/// What special characters are written as.
pub(super) const ESCAPES: [(char, &str); 8] = [
    ('&', "&amp;"),
    ('|', "&#124;"),
    ('<', "&lt;"),
    ('>', "&gt;"),
    ('\'', "&apos;"),
    ('"', "&quot;"),
    ('[', "&#91;"),
    (']', "&#93;"),
];
/// What older models may write.
pub(super) const OLDER_ESCAPES: [(char, &str); 3] =
    [('|', "&bar;"), ('[', "&bra;"), (']', "&ket;")];

/// A character, and the bytes of the original text that it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter {
    pub(super) char: char,
    start: u32,
    end: u32,
}

impl Letter {
    /// Another character for the same bytes.
    pub(super) fn with(self, char: char) -> Self {
        Self { char, ..self }
    }

    /// The bytes of the original text.
    pub(super) fn place(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The text, and the buffer for the next one.
#[derive(Debug)]
pub(super) struct Letters {
    pub(super) text: Vec<Letter>,
    spare: Vec<Letter>,
}

impl Letters {
    /// The characters of a text of less than 4 GiB.
    pub(super) fn new(text: &str) -> Self {
        let letter = |(start, char): (usize, char)| {
            let end = (start + char.len_utf8()) as u32;
            Letter { char, start: start as u32, end }
        };
        Self { text: text.char_indices().map(letter).collect(), spare: Vec::new() }
    }

    /// Calls `rule` with the rest of the text, from left to right. It appends what takes the place of the first letters
    /// and returns how many they are; if it returns 0, the first letter is kept. Nothing is replaced twice.
    pub(super) fn rewrite(&mut self, mut rule: impl FnMut(&[Letter], &mut Vec<Letter>) -> usize) {
        self.spare.clear();
        let mut rest = &self.text[..];
        while let Some(first) = rest.first() {
            let used = rule(rest, &mut self.spare);
            if used == 0 {
                self.spare.push(*first);
            }
            rest = &rest[used.max(1)..];
        }
        std::mem::swap(&mut self.text, &mut self.spare);
    }

    /// Replaces every occurrence of `from`.
    pub(super) fn replace(&mut self, from: &str, to: &str) {
        let Some(first) = from.chars().next() else { return };
        if !self.text.iter().any(|letter| letter.char == first) {
            return;
        }
        let len = from.chars().count();
        self.rewrite(|rest, out| {
            if rest.len() < len || !from.chars().zip(rest).all(|(char, letter)| letter.char == char)
            {
                return 0;
            }
            let (start, end) = (rest[0].start, rest[len - 1].end);
            out.extend(to.chars().map(|char| Letter { char, start, end }));
            len
        });
    }

    /// Replaces each run of characters that `is` accepts by a space.
    pub(super) fn join(&mut self, is: impl Fn(char) -> bool) {
        self.rewrite(|rest, out| {
            let len = rest.iter().take_while(|letter| is(letter.char)).count();
            out.extend(rest.first().filter(|_| len > 0).map(|first| first.with(' ')));
            len
        });
    }

    /// Removes white space at both ends.
    pub(super) fn trim(&mut self) {
        let last = self.text.iter().rposition(|letter| !is_space(letter.char));
        self.text.truncate(last.map_or(0, |last| last + 1));
        let first = self.text.iter().position(|letter| !is_space(letter.char));
        self.text.drain(..first.unwrap_or(0));
    }
}
