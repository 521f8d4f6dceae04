//! Words of a text in any script: what a mark may begin before and end after.

use std::ops::Range;

/// Whether a letter belongs to a script that is written without spaces between words.
#[must_use]
pub fn is_spaceless(letter: char) -> bool {
    matches!(letter,
        // Thai, Lao, Tibetan, Myanmar, Khmer.
        '\u{0e00}'..='\u{0eff}' | '\u{0f00}'..='\u{0fff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        // Kana, Han, and their extensions. Korean has spaces.
        | '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}')
}

/// Whether a character continues the letter before it: accents, vowel signs, joiners, variation selectors.
#[must_use]
pub fn is_combining(letter: char) -> bool {
    !letter.is_alphanumeric()
        && matches!(letter,
            '\u{0300}'..='\u{036f}' | '\u{0483}'..='\u{0489}' | '\u{0591}'..='\u{05bd}' | '\u{0610}'..='\u{061a}'
            | '\u{064b}'..='\u{065f}' | '\u{06d6}'..='\u{06ed}' | '\u{0900}'..='\u{0963}' | '\u{0971}'..='\u{0dff}'
            | '\u{0e31}'..='\u{0e3a}' | '\u{0e47}'..='\u{0e4e}' | '\u{0eb1}'..='\u{0ebc}' | '\u{0ec8}'..='\u{0ecd}'
            | '\u{0f71}'..='\u{0f84}' | '\u{1037}'..='\u{103a}' | '\u{17b4}'..='\u{17d3}' | '\u{1ab0}'..='\u{1aff}'
            | '\u{1dc0}'..='\u{1dff}' | '\u{200c}'..='\u{200d}' | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{fe20}'..='\u{fe2f}' | '\u{1f3fb}'..='\u{1f3ff}')
}

/// How a character joins its neighbors.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Space,
    Letter,
    Spaceless,
    /// A run of one character is a word: `...`.
    Sign(char),
}

/// The words of a text and its punctuation, in order: all characters but white space.
///
/// Letters, digits and accents form words, also around an apostrophe, a hyphen, or a point between digits. In a script
/// without spaces, a token is a word; `cuts` are the places between tokens, in order. Without them each letter is one.
///
/// ```
/// use simdformer_documents::scripts::split_words;
/// let text = "l'été, 3.5 km";
/// let words: Vec<&str> = split_words(text, []).into_iter().map(|range| &text[range]).collect();
/// assert_eq!(words, ["l'été", ",", "3.5", "km"]);
/// ```
#[must_use]
pub fn split_words(text: &str, cuts: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut cuts = cuts.into_iter().peekable();
    let tokens = cuts.peek().is_some();
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut before = Class::Space;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let next = letters.peek().map(|&(_, next)| next);
        let joins = |next: Option<char>| {
            next.is_some_and(|next| next.is_alphanumeric() && !is_spaceless(next))
                && (matches!(letter, '\'' | '\u{2019}' | '-' | '\u{2010}' | '\u{2011}' | '\u{b7}')
                    || (matches!(letter, '.' | ',' | ':' | '/')
                        && next.is_some_and(char::is_numeric)))
        };
        let digit = text[..at].chars().next_back().is_some_and(char::is_numeric);
        let numeral = matches!(letter, '.' | ',' | ':' | '/') && !digit;
        let class = match letter {
            _ if letter.is_whitespace() => Class::Space,
            _ if is_combining(letter) && before != Class::Space => before,
            _ if is_spaceless(letter) => Class::Spaceless,
            _ if letter.is_alphanumeric() || letter == '_' => Class::Letter,
            _ if before == Class::Letter && joins(next) && !numeral => Class::Letter,
            _ => Class::Sign(letter),
        };
        let mut cut = !tokens && !is_combining(letter);
        while let Some(place) = cuts.next_if(|&place| place <= at) {
            cut |= place == at;
        }
        let end = at + letter.len_utf8();
        match words.last_mut() {
            _ if class == Class::Space => (),
            Some(last) if class == before && !(class == Class::Spaceless && cut) => last.end = end,
            _ => words.push(at..end),
        }
        before = class;
    }
    words
}
