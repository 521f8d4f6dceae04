//! Divides a normalized text into words as Moses does: punctuation becomes words, except periods of abbreviations, commas
//! in numbers and the apostrophes that a language keeps; then characters that are special in XML are escaped.

use super::abbreviations::Abbreviations;
use super::classes::{Alphabet, is_lower, is_numeric, is_space};
use super::letters::{ESCAPES, Letter, Letters};

/// Stands for a period of a run of them, which is one word. Control characters are removed before.
const DOT: char = '\u{1}';

/// Calls `each` with the words of a text of the language `code`.
pub(super) fn divide(
    text: &mut Letters,
    code: &str,
    abbreviations: &Abbreviations,
    each: &mut dyn FnMut(&[Letter]),
) {
    let alphabet = Alphabet::for_language(code);
    text.join(is_space);
    text.text.retain(|letter| letter.char >= ' ');
    text.trim();
    text.rewrite(|rest, out| match rest {
        [first, ..] if !(alphabet.is_alnum(first.char) || " .'`,-".contains(first.char)) => {
            out.extend([first.with(' '), *first, first.with(' ')]);
            1
        }
        _ => 0,
    });
    join_periods(text);
    separate_commas(text);
    separate_apostrophes(text, code);
    let mut words = text.text.split(|letter| letter.char == ' ').filter(|word| !word.is_empty());
    let mut next = words.next();
    let mut out = Escaped { word: Vec::new(), each };
    while let Some(word) = next {
        next = words.next();
        let before = |count: usize| word.split_at(word.len().saturating_sub(count));
        match word {
            // Only the last apostrophe of a text is still beside a letter or a period.
            [.., period, mark] if next.is_none() && period.char == '.' && mark.char == '\'' => {
                let (start, end) = before(2);
                out.push(start);
                end.chunks(1).for_each(|part| out.push(part));
            }
            [start @ .., period]
                if period.char == '.'
                    && !start.is_empty()
                    && !keeps_period(start, next, alphabet, abbreviations) =>
            {
                out.push(start);
                out.push(before(1).1);
            }
            whole => out.push(whole),
        }
    }
}

/// A run of periods is a word.
fn join_periods(text: &mut Letters) {
    text.rewrite(|rest, out| {
        let count = rest.iter().take_while(|letter| letter.char == '.').count();
        if count < 2 {
            return 0;
        }
        out.push(rest[0].with(' '));
        out.extend(rest[..count].iter().map(|letter| letter.with(DOT)));
        out.extend(rest.get(count).map(|_| rest[count - 1].with(' ')));
        count
    });
}

/// A comma is a word, except between digits. Three rules, each of which reads a letter that the comma before it has not
/// used.
fn separate_commas(text: &mut Letters) {
    text.rewrite(|rest, out| match rest {
        [before, comma, ..] if comma.char == ',' && !is_numeric(before.char) => {
            out.extend([*before, comma.with(' '), *comma, comma.with(' ')]);
            2
        }
        _ => 0,
    });
    text.rewrite(|rest, out| match rest {
        [comma, after, ..] if comma.char == ',' && !is_numeric(after.char) => {
            out.extend([comma.with(' '), *comma, comma.with(' '), *after]);
            2
        }
        _ => 0,
    });
    text.rewrite(|rest, out| match rest {
        [before, comma] if comma.char == ',' && is_numeric(before.char) => {
            out.extend([*before, comma.with(' '), *comma, comma.with(' ')]);
            2
        }
        _ => 0,
    });
}

/// Where an apostrophe is divided from its word.
#[derive(Clone, Copy)]
enum Cut {
    Before,
    After,
    Both,
}

/// `don't` is `don 't` in English and `l'eau` is `l' eau` in French and Italian; elsewhere an apostrophe is a word.
fn separate_apostrophes(text: &mut Letters, code: &str) {
    let alpha = |char| Alphabet::Letters.is_alpha(char);
    let mut rule = |before: &dyn Fn(char) -> bool, after: &dyn Fn(char) -> bool, cut: Cut| {
        text.rewrite(|rest, out| match rest {
            [a, mark, b, ..] if mark.char == '\'' && before(a.char) && after(b.char) => {
                out.push(*a);
                out.extend((!matches!(cut, Cut::After)).then(|| mark.with(' ')));
                out.push(*mark);
                out.extend((!matches!(cut, Cut::Before)).then(|| mark.with(' ')));
                out.push(*b);
                3
            }
            _ => 0,
        });
    };
    let other = |char| !alpha(char);
    match code {
        "en" => {
            rule(&other, &other, Cut::Both);
            rule(&|char| other(char) && !is_numeric(char), &alpha, Cut::Both);
            rule(&alpha, &other, Cut::Both);
            rule(&alpha, &alpha, Cut::Before);
            rule(&is_numeric, &|char| char == 's', Cut::Before);
        }
        "fr" | "it" => {
            rule(&other, &other, Cut::Both);
            rule(&other, &alpha, Cut::Both);
            rule(&alpha, &other, Cut::Both);
            rule(&alpha, &alpha, Cut::After);
        }
        _ => text.replace("'", " ' "),
    }
}

/// Whether the period after `word` is part of it: of an abbreviation, or before a word in lower case.
fn keeps_period(
    word: &[Letter],
    next: Option<&[Letter]>,
    alphabet: Alphabet,
    abbreviations: &Abbreviations,
) -> bool {
    let next = next.and_then(<[Letter]>::first).map(|letter| letter.char);
    let letters = || word.iter().map(|letter| letter.char);
    if letters().any(|char| char == '.') && letters().any(|char| alphabet.is_alpha(char)) {
        return true;
    }
    let numeric = abbreviations.find(letters());
    numeric == Some(false)
        || next.is_some_and(is_lower)
        || numeric.is_some() && next.is_some_and(|char| char.is_ascii_digit())
}

/// Receives words, and passes them on with their special characters escaped.
struct Escaped<'e> {
    word: Vec<Letter>,
    each: &'e mut dyn FnMut(&[Letter]),
}

impl Escaped<'_> {
    fn push(&mut self, word: &[Letter]) {
        if word.is_empty() {
            return;
        }
        self.word.clear();
        for letter in word {
            let escape = ESCAPES.iter().find(|(char, _)| *char == letter.char);
            match escape {
                Some((_, text)) => self.word.extend(text.chars().map(|char| letter.with(char))),
                None if letter.char == DOT => self.word.push(letter.with('.')),
                None => self.word.push(*letter),
            }
        }
        (self.each)(&self.word);
    }
}
