//! Joins pieces to words and words to a text, as Moses does: punctuation without a space before it, quotation marks by
//! turns, and what a language writes without spaces. Pieces arrive one at a time.

use super::classes::{is_cjk, is_currency, is_letter, is_space};
use super::codes::PART;
use super::letters::{ESCAPES, OLDER_ESCAPES};
use std::collections::HashSet;
use std::ops::Range;

/// Between two words that are joined by a hyphen.
const HYPHEN: &str = "@-@";

/// A word, and the numbers of its pieces.
#[derive(Clone, Debug, Default)]
struct Word {
    text: String,
    pieces: Range<usize>,
}

/// Receives the text of a word with the space before it, and the numbers of its pieces.
pub(super) type Output<'o> = &'o mut dyn FnMut(&str, Range<usize>);

/// The words that were read but not yet written, and what their spaces depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detokenizer {
    /// How many pieces were read, those without text included.
    pieces: usize,
    /// A word whose next piece is still to come.
    open: Option<Word>,
    /// A word that a hyphen may continue, and whether one has.
    hyphened: Option<Word>,
    joins: bool,
    /// A word whose space depends on the one after it.
    held: Option<Word>,
    /// The last word that was written and the one before it.
    last: [Option<String>; 2],
    /// Quotation marks that are open.
    quotes: HashSet<String>,
    /// Whether no space follows the last word.
    attaches: bool,
}

impl Detokenizer {
    /// Reads a piece; `None` is one without text.
    pub(super) fn push(&mut self, piece: Option<&str>, code: &str, out: Output<'_>) {
        let number = self.pieces;
        self.pieces += 1;
        let Some(piece) = piece else { return };
        let (text, ends) = piece.strip_suffix(PART).map_or((piece, true), |part| (part, false));
        let mut word =
            self.open.take().unwrap_or(Word { pieces: number..number, ..Word::default() });
        word.text.push_str(text);
        word.pieces.end = number + 1;
        match ends {
            true => self.push_word(word, code, out),
            false => self.open = Some(word),
        }
    }

    /// Writes what was held back.
    pub(super) fn finish(&mut self, code: &str, out: Output<'_>) {
        if let Some(mut word) = self.open.take() {
            // The mark of a word that is not continued.
            word.text.push_str(PART);
            self.push_word(word, code, out);
        }
        if let Some(word) = self.hyphened.take() {
            self.push_unescaped(word, code, out);
        }
        if let Some(word) = self.held.take() {
            self.write(&word, None, code, out);
        }
        *self = Self::default();
    }

    fn push_word(&mut self, word: Word, code: &str, out: Output<'_>) {
        let hyphen = word.text == HYPHEN && !self.joins;
        match &mut self.hyphened {
            Some(first) if hyphen || self.joins => {
                first.text.push_str(if hyphen { "-" } else { &word.text });
                first.pieces.end = word.pieces.end;
            }
            first => {
                let text = if hyphen { "-".to_owned() } else { word.text };
                if let Some(before) = first.replace(Word { text, ..word }) {
                    self.push_unescaped(before, code, out);
                }
            }
        }
        self.joins = hyphen;
    }

    /// Replaces the names of special characters, and divides a word at white space, which no piece should have.
    fn push_unescaped(&mut self, word: Word, code: &str, out: Output<'_>) {
        let mut text = String::with_capacity(word.text.len());
        let mut rest = word.text.as_str();
        while let Some(at) = rest.find('&') {
            text.push_str(&rest[..at]);
            rest = &rest[at..];
            let mut names = ESCAPES.iter().chain(&OLDER_ESCAPES);
            let (char, name) =
                names.find(|(_, name)| rest.starts_with(name)).unwrap_or(&('&', "&"));
            text.push(*char);
            rest = &rest[name.len()..];
        }
        text.push_str(rest);
        let mut pieces = word.pieces;
        for part in text.split(is_space).filter(|part| !part.is_empty()) {
            let next = Word { text: part.to_owned(), pieces: pieces.clone() };
            // All pieces have the place of the first part.
            pieces.start = pieces.end;
            if let Some(word) = self.held.take() {
                self.write(&word, Some(part), code, out);
            }
            match code {
                "fr" | "it" | "ga" => self.held = Some(next),
                _ => self.write(&next, None, code, out),
            }
        }
    }

    /// Writes a word. `next` is the word after it, if the language needs it.
    fn write(&mut self, word: &Word, next: Option<&str>, code: &str, out: Output<'_>) {
        let text = word.text.as_str();
        let all = |is: &dyn Fn(char) -> bool| text.chars().all(is);
        let last = self.last[0].as_deref();
        let first = last.is_none();
        // Whether a space is before the word, and whether it takes the next word to it.
        let mut space = !self.attaches;
        let mut attaches = false;
        if code != "ko" && text.starts_with(is_cjk) {
            space &= !last.is_some_and(|last| last.ends_with(is_cjk));
        } else if all(&|char| is_currency(char) || "([{¿¡".contains(char)) {
            attaches = true;
        } else if all(&|char| ",.?!:;\\%}])".contains(char)) {
            space = code == "fr" && matches!(text, "?" | "!" | ":" | ";" | "\\" | "%");
        } else if code == "en" && !first && is_contraction(text)
            || code == "cs" && is_number(text) && self.follows_a_separator()
        {
            space = false;
        } else if ends_with_elision(text) && next.is_some_and(|next| next.starts_with(is_letter)) {
            attaches = true;
        } else if all(&|char| "'\"„“`".contains(char)) {
            let mark = if all(&|char| matches!(char, '„' | '“')) { "\"" } else { text };
            match (code, text) {
                ("cs", "„") => drop(self.quotes.remove(mark)),
                ("cs", "“") => drop(self.quotes.insert(mark.to_owned())),
                _ => (),
            }
            let possessive =
                || code == "en" && text == "'" && last.is_some_and(|last| last.ends_with('s'));
            attaches = !(self.quotes.remove(mark) || possessive());
            space &= attaches;
            if attaches {
                self.quotes.insert(mark.to_owned());
            }
        }
        match space && !first {
            true => out(&format!(" {text}"), word.pieces.clone()),
            false => out(text, word.pieces.clone()),
        }
        self.attaches = attaches;
        self.last.swap(0, 1);
        self.last[0] = Some(text.to_owned());
    }

    /// Whether the last two words are a number and a separator of numbers.
    fn follows_a_separator(&self) -> bool {
        let [last, before] = self.last.each_ref().map(Option::as_deref);
        matches!(last, Some("." | ",")) && before.is_some_and(is_number)
    }
}

/// `'s`, `'ll`.
fn is_contraction(word: &str) -> bool {
    word.strip_prefix('\'').is_some_and(|rest| rest.starts_with(is_letter))
}

/// `l'`, `dell'`.
fn ends_with_elision(word: &str) -> bool {
    word.strip_suffix('\'').is_some_and(|rest| rest.ends_with(is_letter))
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}
