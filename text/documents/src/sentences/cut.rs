//! Cuts a sentence that is too long for a model.

use super::characters::{closes_only, extends, is_dash, terminator};
use super::lexicon::Lexicon;
use std::ops::Range;

/// The parts of a text, in order, each of which fits unless it is a single character.
pub(super) fn cut(
    text: &str,
    lexicon: &Lexicon,
    fits: &mut dyn FnMut(&str) -> bool,
) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    // What is still to do, the next on top.
    let mut stack = vec![trimmed(text, 0..text.len())];
    while let Some(range) = stack.pop() {
        if range.is_empty() {
            continue;
        }
        let part = &text[range.clone()];
        match if fits(part) { None } else { best(part, lexicon) } {
            None => parts.push(range),
            Some(at) => {
                let middle = range.start + at;
                stack.push(trimmed(text, middle..range.end));
                stack.push(trimmed(text, range.start..middle));
            }
        }
    }
    parts
}

/// A range without the white space at its ends.
fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + part.len() - part.trim_start().len();
    start..start + part.trim().len()
}

/// How good a cut is; a better one is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Quality {
    Character,
    Space,
    Conjunction,
    Comma,
    Clause,
    FullStop,
}

/// The best place to cut, which leaves something on both sides: the best quality in the middle three fifths, and of
/// several equal ones that nearest to the middle, so that both parts are of about the same length and both sides are
/// translated with as much context. Outside of the middle only a space is better than the middle of a word. `None` for
/// one character.
fn best(text: &str, lexicon: &Lexicon) -> Option<usize> {
    let (low, high) = (text.len() / 5, text.len() - text.len() / 5);
    let mut best: Option<(Quality, usize)> = None;
    let mut previous = None;
    for (at, c) in text.char_indices() {
        if let Some(before) = previous.replace(c) {
            let mut quality = quality(text, at, before, c, lexicon);
            if !(low..=high).contains(&at) {
                quality = quality.min(Some(Quality::Space));
            }
            let far = |at: usize| at.abs_diff(text.len() / 2);
            let found = |quality: Quality| (quality, usize::MAX - far(at));
            let known = best.map(|(quality, at)| (quality, usize::MAX - far(at)));
            if let Some(quality) =
                quality.filter(|&quality| known.is_none_or(|k| found(quality) > k))
            {
                best = Some((quality, at));
            }
        }
    }
    let inside = || text.char_indices().skip(1).map(|(at, _)| at);
    best.map(|(_, at)| at).or_else(|| inside().min_by_key(|&at| at.abs_diff(text.len() / 2)))
}

/// The quality of a cut between two characters; `None` inside of what is drawn as one character.
fn quality(text: &str, at: usize, before: char, after: char, lexicon: &Lexicon) -> Option<Quality> {
    if extends(after) || before == '\u{200d}' {
        return None;
    }
    let spaced = after.is_whitespace();
    if spaced && before.is_whitespace() {
        return Some(Quality::Space);
    }
    let wide = !before.is_ascii();
    Some(match before {
        // A part begins with its first character, not with a space or a closing mark.
        _ if closes_only(after) || matches!(after, ',' | ';' | '.' | '，' | '、' | '。') => {
            Quality::Character
        }
        '.' | '!' | '?' | '…' if !spaced => Quality::Character,
        _ if terminator(before).is_some() && (spaced || wide) => Quality::FullStop,
        ';' | ':' if spaced => Quality::Clause,
        '；' | '：' | '؛' | '·' | '፤' | '፥' => Quality::Clause,
        _ if spaced && (is_dash(before) || closes_only(before)) => Quality::Clause,
        _ if spaced && text[at..].trim_start().starts_with(['–', '—', '(', '（']) => {
            Quality::Clause
        }
        ',' if spaced => Quality::Comma,
        '，' | '、' | '،' | '፣' | '၊' | '།' => Quality::Comma,
        _ if spaced && conjunction_follows(&text[at..], lexicon) => Quality::Conjunction,
        _ if !spaced && wide && attached_conjunction(&text[at..], lexicon) => Quality::Conjunction,
        _ if spaced => Quality::Space,
        _ => Quality::Character,
    })
}

fn conjunction_follows(rest: &str, lexicon: &Lexicon) -> bool {
    let rest = rest.trim_start();
    // No conjunction is longer than this.
    let word = rest.chars().take(24).take_while(|c| !c.is_whitespace() && *c != ',');
    let word: String = word.flat_map(char::to_lowercase).collect();
    lexicon.is_conjunction(&word)
}

/// A conjunction of a language without spaces: one of two characters or more begins here.
fn attached_conjunction(rest: &str, lexicon: &Lexicon) -> bool {
    let first = rest.chars().next();
    if !first.is_some_and(|c| c > '\u{e00}' && c.is_alphabetic()) {
        return false;
    }
    let long = |word: &&&str| word.chars().nth(1).is_some();
    lexicon.conjunctions().iter().filter(long).any(|word| rest.starts_with(word))
}
