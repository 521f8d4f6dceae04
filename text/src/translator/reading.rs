//! What the model reads: a sentence in the spelling that its vocabulary knows.

use super::capitals::{in_capitals, lower};
use super::error::TranslateError;
use crate::marked_text::{Edit, MarkedText, Rewritten, is_spaceless};
use crate::{Direction, TextError, Tokenizer};
use std::ops::Range;

/// Reads sentences for a tokenizer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'r> {
    pub(super) tokenizer: &'r Tokenizer,
    pub(super) direction: Direction<'r>,
}

/// A sentence as it is read.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) marked: MarkedText,
    /// The changes, the first one first.
    steps: Vec<Rewritten>,
    /// The parts outside of kept pieces that the vocabulary does not have, without white space.
    pub(super) unknown: Vec<Range<usize>>,
    /// Whether capitals became small letters.
    pub(super) small: bool,
}

impl Reading {
    /// The bytes of the sentence for bytes of what is read.
    pub(super) fn old_range(&self, range: &Range<usize>) -> Range<usize> {
        self.steps.iter().rev().fold(range.clone(), |range, step| step.old_range(&range))
    }
}

/// A way to write a text for a model that does not know it as it is written.
type Spelling = fn(&MarkedText) -> Vec<Edit>;

/// Each is used if fewer bytes are unknown then.
const SPELLINGS: [Spelling; 4] = [plain, visible, straight, curly];

impl Reader<'_> {
    /// Reads a sentence of a text: white space is one space, and soft hyphens and the like are left out; if the vocabulary
    /// does not have a part of it, it is spelled otherwise where that helps, in small letters, too, if it is in capitals and
    /// `capitals` says so.
    pub(super) fn read(&self, given: Rewritten, capitals: bool) -> Result<Reading, TranslateError> {
        let step = given.marked.replace(plain(&given.marked));
        self.spell(vec![given, step], capitals)
    }

    /// A sentence that is read as it is written, but for words that the vocabulary has in another spelling.
    pub(super) fn read_words(&self, text: &str) -> Result<Reading, TranslateError> {
        let whole = MarkedText { text: text.to_owned(), marks: Vec::new() };
        self.spell(vec![whole.replace([])], false)
    }

    fn spell(&self, steps: Vec<Rewritten>, capitals: bool) -> Result<Reading, TranslateError> {
        let marked = steps.last().map(|step| step.marked.clone()).unwrap_or_default();
        let unknown = self.unknown(&marked)?;
        let mut reading = Reading { marked, steps, unknown, small: false };
        for spelling in SPELLINGS {
            self.take_better(&mut reading, spelling)?;
        }
        if capitals && !reading.unknown.is_empty() && in_capitals(&reading.marked) {
            let language = self.direction.source;
            reading.small = self.take_better(&mut reading, |text| lower(text, language))?;
        }
        Ok(reading)
    }

    /// Spells what is read in another way if fewer bytes are unknown then, and returns whether it did.
    fn take_better(
        &self,
        reading: &mut Reading,
        spelling: impl Fn(&MarkedText) -> Vec<Edit>,
    ) -> Result<bool, TranslateError> {
        if reading.unknown.is_empty() {
            return Ok(false);
        }
        let edits = spelling(&reading.marked);
        if edits.is_empty() {
            return Ok(false);
        }
        let step = reading.marked.replace(edits);
        let unknown = self.unknown(&step.marked)?;
        let better = total(&unknown) < total(&reading.unknown);
        if better {
            reading.marked.clone_from(&step.marked);
            reading.unknown = unknown;
            reading.steps.push(step);
        }
        Ok(better)
    }

    /// The bytes of a text outside of its kept pieces that the vocabulary does not have.
    pub(super) fn unknown_bytes(&self, text: &MarkedText) -> Result<usize, TranslateError> {
        Ok(total(&self.unknown(text)?))
    }

    /// The ids of a text; none if it cannot be segmented, which is the failure of its translation.
    pub(super) fn ids(&self, text: &MarkedText) -> Result<Vec<u32>, TranslateError> {
        match self.tokenizer.encode_text(&text.text, &self.direction) {
            Ok(encoded) => Ok(encoded.ids),
            Err(TextError::Text { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// The parts of a text outside of its kept pieces that the vocabulary does not have, cut at white space.
    pub(super) fn unknown(&self, text: &MarkedText) -> Result<Vec<Range<usize>>, TranslateError> {
        let ids = self.ids(text)?;
        if !ids.iter().any(|&id| self.tokenizer.is_unknown(id)) {
            return Ok(Vec::new());
        }
        let (encoded, spans) =
            self.tokenizer.encode_text_with_spans(&text.text, &self.direction)?;
        let mut keeps = text.keeps().map(|mark| mark.range.clone()).peekable();
        let mut parts = Vec::new();
        for (_, span) in
            encoded.ids.iter().zip(spans).filter(|&(&id, _)| self.tokenizer.is_unknown(id))
        {
            let mut at = span.start;
            while at < span.end {
                while keeps.next_if(|keep| keep.end <= at).is_some() {}
                let end = keeps.peek().map_or(span.end, |keep| keep.start.clamp(at, span.end));
                words_of(&text.text, at..end, &mut parts);
                at = keeps.peek().map_or(span.end, |keep| keep.end.max(end));
            }
        }
        Ok(parts)
    }
}

fn total(parts: &[Range<usize>]) -> usize {
    parts.iter().map(ExactSizeIterator::len).sum()
}

/// Appends the parts of `range` between white space.
fn words_of(text: &str, range: Range<usize>, parts: &mut Vec<Range<usize>>) {
    let whole = text.get(range.clone()).unwrap_or_default();
    for word in whole.split_whitespace() {
        let start = range.start + word.as_ptr().addr() - whole.as_ptr().addr();
        parts.push(start..start + word.len());
    }
}

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
fn plain(text: &MarkedText) -> Vec<Edit> {
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
fn visible(text: &MarkedText) -> Vec<Edit> {
    let mut edits = Vec::new();
    characters(text, |at, letter, _| {
        if is_invisible(letter) {
            edits.push((at..at + letter.len_utf8(), String::new()));
        }
    });
    edits
}

/// With the apostrophe and the hyphen of ASCII.
fn straight(text: &MarkedText) -> Vec<Edit> {
    in_words(text, |letter| match letter {
        '\u{2018}' | '\u{2019}' | '\u{201b}' | '\u{2bb}' | '\u{2bc}' | '\u{2b9}' | '\u{b4}'
        | '\u{2032}' | '\u{ff07}' => Some('\''),
        '\u{2010}' | '\u{2011}' | '\u{fe63}' | '\u{ff0d}' => Some('-'),
        _ => None,
    })
}

/// With the typographic apostrophe.
fn curly(text: &MarkedText) -> Vec<Edit> {
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
