//! Ways to write a text for a model that does not know it as it is written, outside of its kept pieces: white space, characters
//! that cannot be seen, apostrophes and hyphens, small letters.

use simdformer_documents::marked_text::{Edit, MarkedText};
use simdformer_documents::scripts::is_spaceless;
use simdformer_documents::sentences::language_code;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Calls `edit` with each character outside of the kept pieces, its place, and the visible characters before and after it.
pub(super) fn characters(text: &MarkedText, mut edit: impl FnMut(usize, char, [Option<char>; 2])) {
    let letters: Vec<(usize, char)> = text.text.char_indices().collect();
    let mut next = vec![None; letters.len()];
    let mut after = None;
    for (next, &(_, letter)) in next.iter_mut().zip(&letters).rev() {
        *next = after;
        after = Some(letter).filter(|&letter| !is_invisible(letter)).or(after);
    }
    let mut keeps = text.keeps().map(|mark| mark.range.clone()).peekable();
    let mut before = None;
    for ((at, letter), after) in letters.into_iter().zip(next) {
        while keeps.next_if(|keep| keep.end <= at).is_some() {}
        if keeps.peek().is_none_or(|keep| keep.start > at) {
            edit(at, letter, [before, after]);
        }
        before = Some(letter).filter(|&letter| !is_invisible(letter)).or(before);
    }
}

/// White space as one space; without characters that cannot be seen and that the words around them do not need.
pub(super) fn plain(text: &MarkedText) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    characters(text, |at, letter, beside| {
        let needed = |needs: fn(char) -> bool| beside.into_iter().flatten().any(needs);
        let new = match letter {
            _ if letter.is_whitespace() && beside[0].is_some_and(char::is_whitespace) => "",
            ' ' => return,
            _ if letter.is_whitespace() => " ",
            '\u{200b}' if !needed(is_spaceless) => "",
            '\u{200c}' | '\u{200d}' if !needed(needs_joiners) => "",
            '\u{ad}' | '\u{34f}' | '\u{2060}' | '\u{feff}' => "",
            _ => return,
        };
        edits.push((at..at + letter.len_utf8(), new.to_owned()));
    });
    edits
}

/// Without any character that cannot be seen.
pub(super) fn visible(text: &MarkedText) -> Vec<Edit> {
    let mut edits = Vec::new();
    characters(text, |at, letter, _| {
        if is_invisible(letter) {
            edits.push((at..at + letter.len_utf8(), String::new()));
        }
    });
    edits
}

/// With each letter and its accents as one character (normalization form C).
pub(super) fn composed(text: &MarkedText) -> Vec<Edit> {
    // A character that may join the one before it, and those before it up to one that does not.
    let mut groups: Vec<(usize, String)> = Vec::new();
    characters(text, |at, letter, _| {
        let joins = is_nfc_quick(std::iter::once(letter)) != IsNormalized::Yes;
        match groups.last_mut() {
            Some((start, group)) if joins && *start + group.len() == at => group.push(letter),
            _ => groups.push((at, letter.to_string())),
        }
    });
    let edit = |(at, group): (usize, String)| {
        let new: String = group.nfc().collect();
        (new != group).then(|| (at..at + group.len(), new))
    };
    groups.into_iter().filter_map(edit).collect()
}

/// With the apostrophe and the hyphen of ASCII.
pub(super) fn straight(text: &MarkedText) -> Vec<Edit> {
    in_words(text, |letter| match letter {
        '\u{2018}' | '\u{2019}' | '\u{201b}' | '\u{2bb}' | '\u{2bc}' | '\u{2b9}' | '\u{b4}'
        | '\u{2032}' | '\u{ff07}' => Some('\''),
        '\u{2010}' | '\u{2011}' | '\u{fe63}' | '\u{ff0d}' => Some('-'),
        _ => None,
    })
}

/// With the typographic apostrophe.
pub(super) fn curly(text: &MarkedText) -> Vec<Edit> {
    in_words(text, |letter| (letter == '\'').then_some('\u{2019}'))
}

/// Other characters in the place of some that follow a letter.
fn in_words(text: &MarkedText, other: impl Fn(char) -> Option<char>) -> Vec<Edit> {
    let mut edits = Vec::new();
    characters(text, |at, letter, beside| {
        let in_word = beside.into_iter().flatten().any(char::is_alphanumeric);
        if let Some(new) = other(letter).filter(|_| in_word) {
            edits.push((at..at + letter.len_utf8(), new.to_string()));
        }
    });
    edits
}

/// Whether a character has no shape of its own: soft hyphens, joiners, marks of direction.
pub(super) fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Whether joiners beside the character mean something: in Arabic and Indic scripts and others that join letters, and in
/// emoji.
fn needs_joiners(letter: char) -> bool {
    let joined = matches!(letter,
        '\u{600}'..='\u{8ff}' | '\u{900}'..='\u{10ff}' | '\u{1700}'..='\u{1cff}'
        | '\u{a800}'..='\u{abff}' | '\u{fb50}'..='\u{fdff}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe70}'..='\u{fefe}' | '\u{10a00}'..='\u{11fff}');
    joined || !(letter.is_alphanumeric() || letter.is_whitespace() || letter.is_ascii_punctuation())
}

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
