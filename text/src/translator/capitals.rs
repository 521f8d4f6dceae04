//! Capitals and small letters of a text, but for its kept pieces.

use super::spellings::characters;
use crate::marked_text::{Edit, MarkedText};
use crate::sentences::language_code;

/// Whether the text has a word of two capitals and no small letter, outside of its kept pieces.
pub(super) fn in_capitals(text: &MarkedText) -> bool {
    let parts = text.split_at_keeps().into_iter().filter(|part| !part.keep);
    let (mut capitals, mut word) = (0, false);
    for part in parts.filter_map(|part| text.text.get(part.range)) {
        for letter in part.chars() {
            if letter.is_lowercase() {
                return false;
            }
            capitals = if letter.is_uppercase() { capitals + 1 } else { 0 };
            word |= capitals > 1;
        }
    }
    word
}

/// What puts a text into small letters, but for its kept pieces.
pub(super) fn lower(text: &MarkedText, language: Option<&str>) -> Vec<Edit> {
    let dotless = is_dotless(language);
    change(text, |letter, [before, after]| match letter {
        'I' if dotless => "\u{131}".to_owned(),
        '\u{130}' if dotless => "i".to_owned(),
        // At the end of a word.
        '\u{3a3}' if is_letter(before) && !is_letter(after) => "\u{3c2}".to_owned(),
        _ => letter.to_lowercase().collect(),
    })
}

/// What puts a text into capitals, but for its kept pieces.
pub(super) fn upper(text: &MarkedText, language: Option<&str>) -> Vec<Edit> {
    let dotless = is_dotless(language);
    change(text, |letter, _| match letter {
        'i' if dotless => "\u{130}".to_owned(),
        _ => letter.to_uppercase().collect(),
    })
}

fn is_letter(letter: Option<char>) -> bool {
    letter.is_some_and(char::is_alphabetic)
}

/// Whether the capital of `i` has a dot.
fn is_dotless(language: Option<&str>) -> bool {
    language.is_some_and(|language| matches!(language_code(language), "tr" | "az"))
}

/// The letters that differ outside of the kept pieces.
fn change(text: &MarkedText, other: impl Fn(char, [Option<char>; 2]) -> String) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    characters(text, |at, letter, beside| {
        let new = other(letter, beside);
        if !new.chars().eq([letter]) {
            edits.push((at..at + letter.len_utf8(), new));
        }
    });
    edits
}
