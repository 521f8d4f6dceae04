//! What a sentence has that the model does not know: symbols, which are copied, and words, which are named.

use super::model_and_tokenizer::Translator;
use super::reading::{Capitals, Reader, Reading};
use super::spellings::is_invisible;
use super::translation::{Note, Translation, UnknownWord};
use crate::error::Error;
use simdformer_documents::marked_text::{Mark, MarkKind, MarkedText, StandIn, add_keeps};
use simdformer_documents::scripts::{is_combining, is_spaceless, split_words};
use std::ops::Range;

/// What the model is given for the kept pieces of a sentence that are no placeholders, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Givens {
    /// Nothing.
    hidden: Vec<usize>,
    /// The piece itself, or else nothing.
    symbols: Vec<usize>,
}

impl Givens {
    /// What is given for a mark, if placeholders are given as `way`.
    pub(super) fn stand_in<'w>(&self, mark: &Mark, way: StandIn<'w>) -> StandIn<'w> {
        if self.hidden.contains(&mark.id)
            || (self.symbols.contains(&mark.id) && way != StandIn::Piece)
        {
            StandIn::Nothing
        } else {
            way
        }
    }
}

/// A sentence, and what the model reads of it.
#[derive(Clone, Debug)]
pub(super) struct PreparedSentence {
    /// The sentence, with marks over the symbols that are copied.
    pub(super) marked: MarkedText,
    pub(super) givens: Givens,
    /// The sentence as it is given first.
    pub(super) reading: Reading,
    pub(super) capitals: Capitals,
    pub(super) unknown: Vec<UnknownWord>,
    /// Whether the model knows none of its words, so that it is copied.
    pub(super) without_known_words: bool,
    /// The number of its tokens.
    tokens: usize,
    /// The numbers of the marks that were added begin here.
    first: usize,
}

impl PreparedSentence {
    /// Removes the marks that were added from a translation.
    pub(super) fn remove_added(&self, target: &mut MarkedText) {
        target.marks.retain(|mark| mark.id < self.first);
    }

    /// The translation of a sentence that is copied.
    pub(super) fn copy(&self, text: &str) -> Translation {
        Translation {
            text: text.to_owned(),
            source_tokens: self.tokens,
            unknown: self.unknown.clone(),
            notes: vec![Note::NoKnownWord],
            ..Translation::default()
        }
    }
}

impl Translator {
    /// The reader of sentences in `language`, or in that of the options.
    pub(super) fn reader<'r>(&'r self, language: Option<&'r str>) -> Reader<'r> {
        Reader { tokenizer: &self.tokenizer, direction: self.options.direction_from(language) }
    }

    /// Finds what of a sentence the model does not know.
    pub(super) fn prepare_sentence(
        &self,
        source: &MarkedText,
        language: Option<&str>,
    ) -> Result<PreparedSentence, Error> {
        let reader = self.reader(language);
        let first = source.marks.iter().map(|mark| mark.id.saturating_add(1)).max().unwrap_or(0);
        let (mut marked, mut givens) = (source.clone(), Givens::default());
        let ids = |marked: &MarkedText, ranges: &[Range<usize>]| -> Vec<usize> {
            let added = marked.keeps().filter(|mark| mark.id >= first);
            added.filter(|mark| ranges.contains(&mark.range)).map(|mark| mark.id).collect()
        };
        let symbols = self.options.symbols;
        let elements = elements_without_letters(source);
        let pictures = if symbols { pictures(&source.text) } else { Vec::new() };
        if !(elements.is_empty() && pictures.is_empty()) {
            let all = elements.iter().map(|(range, _)| range).chain(&pictures);
            marked = add_keeps(&marked, all.cloned().collect());
            let of = |wanted: Element| -> Vec<Range<usize>> {
                let those = elements.iter().filter(|(_, element)| *element == wanted);
                those.map(|(range, _)| range.clone()).collect()
            };
            let (mut shown, mut hidden) = (Vec::new(), of(Element::Joined));
            for range in of(Element::Alone).into_iter().chain(pictures) {
                let text = source.text.get(range.clone()).unwrap_or_default().to_owned();
                let piece = MarkedText { text, marks: Vec::new() };
                let known = reader.unknown(&piece)?.is_empty();
                if known { shown.push(range) } else { hidden.push(range) }
            }
            givens.symbols = ids(&marked, &shown);
            givens.hidden = ids(&marked, &hidden);
        }
        let read = |marked: &MarkedText, givens: &Givens| {
            let given = marked.for_model_each(|mark| givens.stand_in(mark, StandIn::Piece));
            reader.read_sentence(given, self.options.capitals)
        };
        let mut reading = read(&marked, &givens)?;
        let mut copied = Vec::new();
        for part in reading.unknown.iter().filter(|_| symbols) {
            let known = |word: &str| reader.knows(word, self.options.capitals);
            for symbol in symbols_of(&reading.marked.text, part.clone(), known)? {
                copied.extend(cut_at_marks(&marked, reading.old_range(&symbol)));
            }
        }
        if !copied.is_empty() {
            marked = add_keeps(&marked, copied.clone());
            givens.hidden.extend(ids(&marked, &copied));
            reading = read(&marked, &givens)?;
        }
        let unknown = reader.unknown_words(&source.text, &reading);
        let capitals = match self.options.capitals {
            true => reader.read_capitals(&reading)?,
            false => Capitals::None,
        };
        let glossary = self.options.glossary.as_ref();
        let without_known_words = !reading.has_known_word()
            && glossary.is_none_or(|glossary| glossary.terms_in(&source.text).is_empty());
        let tokens = if without_known_words { reader.ids(&reading.marked)?.len() } else { 0 };
        Ok(PreparedSentence {
            marked,
            givens,
            reading,
            capitals,
            unknown,
            without_known_words,
            tokens,
            first,
        })
    }
}

impl Reading {
    /// Whether there is a letter outside of kept pieces in a word that the vocabulary has, or no word that it does not have.
    pub(super) fn has_known_word(&self) -> bool {
        if self.unknown.is_empty() {
            return true;
        }
        let text = &self.marked.text;
        let mut unknown = self.unknown.iter().map(|part| whole_word(text, part)).peekable();
        let parts = self.marked.split_at_keeps().into_iter().filter(|part| !part.keep);
        for part in parts {
            for (at, letter) in text.get(part.range.clone()).unwrap_or_default().char_indices() {
                let at = part.range.start + at;
                while unknown.next_if(|word| word.end <= at).is_some() {}
                if letter.is_alphabetic() && unknown.peek().is_none_or(|word| word.start > at) {
                    return true;
                }
            }
        }
        false
    }
}

impl Reader<'_> {
    /// Whether the vocabulary has all of a word, as it would be read.
    fn knows(&self, word: &str, capitals: bool) -> Result<bool, Error> {
        let word = MarkedText { text: word.to_owned(), marks: Vec::new() };
        Ok(self.read_sentence(word.replace([]), capitals)?.unknown.is_empty())
    }

    /// The words of a sentence that the vocabulary does not have.
    pub(super) fn unknown_words(&self, sentence: &str, reading: &Reading) -> Vec<UnknownWord> {
        let mut words: Vec<Range<usize>> = Vec::new();
        for part in &reading.unknown {
            let word = whole_word(&reading.marked.text, part);
            if words.last().is_none_or(|last| last.end <= word.start) {
                words.push(word);
            }
        }
        let word = |part: &Range<usize>| {
            let text = sentence.get(reading.old_range(part)).unwrap_or_default().to_owned();
            let letters = text.trim_matches(|letter: char| !letter.is_alphanumeric());
            let letters: String = letters.chars().filter(|&letter| !is_invisible(letter)).collect();
            let nearest = match letters.contains(char::is_alphabetic) {
                true => self.tokenizer.nearest_words(&letters),
                false => Vec::new(),
            };
            UnknownWord { text, nearest }
        };
        words.iter().map(word).collect()
    }
}

/// The word of a part, of which the tokenizer may know the rest: `et` of `etudiant`.
fn whole_word(text: &str, part: &Range<usize>) -> Range<usize> {
    let (before, after) = (text.get(..part.start), text.get(part.end..));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let letter = |letter: char| {
        (letter.is_alphanumeric() && !is_spaceless(letter))
            || is_combining(letter)
            || is_invisible(letter)
    };
    let inside = text.get(part.clone()).unwrap_or_default();
    let (begins, ends) = (inside.starts_with(letter), inside.ends_with(letter));
    let start = if begins { before.trim_end_matches(letter).len() } else { part.start };
    let end = if ends { text.len() - after.trim_start_matches(letter).len() } else { part.end };
    start..end
}

/// An inline element without a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    /// Beside a word: the number of a footnote.
    Joined,
    /// Between spaces: an icon, a number.
    Alone,
    /// In a word, as in `H<sub>2</sub>O`: the word is kept.
    Inside,
}

/// The contents of wraps without a letter, without spaces at their ends.
fn elements_without_letters(text: &MarkedText) -> Vec<(Range<usize>, Element)> {
    let letter = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_alphanumeric() && !is_spaceless(letter))
    };
    let mut found = Vec::new();
    for mark in text.marks.iter().filter(|mark| matches!(mark.kind, MarkKind::Wrap { .. })) {
        let content = text.text.get(mark.range.clone()).unwrap_or_default();
        let inner = content.trim();
        if inner.is_empty() || inner.chars().any(char::is_alphabetic) {
            continue;
        }
        let start = mark.range.start + content.len() - content.trim_start().len();
        let range = start..start + inner.len();
        let before = text.text.get(..range.start).and_then(|before| before.chars().next_back());
        let after = text.text.get(range.end..).and_then(|after| after.chars().next());
        let inside = || {
            let all = split_words(&text.text, []);
            all.into_iter().find(|word| word.start < range.start && range.end < word.end)
        };
        let opens =
            |letter: char| letter.is_whitespace() || "([{\u{ab}\u{201c}\u{2018}".contains(letter);
        if letter(before) && letter(after) {
            let word = inside().map(|word| (word, Element::Inside));
            found.push(word.unwrap_or((range, Element::Joined)));
        } else if letter(after) && inner.contains(char::is_numeric) {
            // A part of a word, as in `1er`.
        } else if before.is_none_or(opens) {
            found.push((range, Element::Alone));
        } else {
            found.push((range, Element::Joined));
        }
    }
    found
}

/// Runs of pictures: emoji, arrows, notes, stars. A model may know them, and still leave them out.
pub(super) fn pictures(text: &str) -> Vec<Range<usize>> {
    let picture = |letter: char| {
        matches!(letter,
            '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}' | '\u{25a0}'..='\u{27bf}'
            | '\u{2900}'..='\u{297f}' | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
    };
    let joins = |letter: char| is_combining(letter) || matches!(letter, '\u{e0020}'..='\u{e007f}');
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, letter) in text.char_indices() {
        let end = at + letter.len_utf8();
        match runs.last_mut() {
            Some(last) if last.end == at && (picture(letter) || joins(letter)) => last.end = end,
            _ if picture(letter) => runs.push(at..end),
            _ => (),
        }
    }
    runs
}

/// The symbols in a part that the vocabulary does not have: the whole part if it has no letter, as a number; else runs of
/// characters that are no letters, but for apostrophes and hyphens in words, and those at an end of one that is `known` with
/// them: `l'` before a space.
fn symbols_of(
    text: &str,
    part: Range<usize>,
    known: impl Fn(&str) -> Result<bool, Error>,
) -> Result<Vec<Range<usize>>, Error> {
    let whole = text.get(part.clone()).unwrap_or_default();
    if !whole.chars().any(char::is_alphabetic) {
        return Ok(vec![part]);
    }
    let of_word = |letter: char| letter.is_alphanumeric() || is_combining(letter);
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, letter) in whole.char_indices() {
        let end = at + letter.len_utf8();
        let joins =
            matches!(letter, '\'' | '\u{2019}' | '-' | '\u{2010}' | '\u{2011}' | '\u{b7}' | '_')
                && {
                    let (before, after) = (&whole[..at], &whole[end..]);
                    let first = before.trim_end_matches(of_word).len();
                    let last = whole.len() - after.trim_start_matches(of_word).len();
                    match (first < at, end < last) {
                        (true, true) => true,
                        (false, false) => false,
                        _ => known(&whole[first..last])?,
                    }
                };
        let symbol = !(letter.is_alphanumeric() || joins);
        let goes_on = is_combining(letter) || is_invisible(letter);
        let range = part.start + at..part.start + end;
        match runs.last_mut() {
            Some(last) if last.end == range.start && symbol => last.end = range.end,
            _ if symbol && !goes_on => runs.push(range),
            _ => (),
        }
    }
    Ok(runs)
}

/// The parts of a range between the ends of marks.
fn cut_at_marks(text: &MarkedText, range: Range<usize>) -> Vec<Range<usize>> {
    let mut cuts = vec![range.start, range.end];
    for mark in &text.marks {
        cuts.extend([mark.range.start, mark.range.end].into_iter().filter(|at| range.contains(at)));
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|cut| cut[0]..cut[1]).collect()
}
