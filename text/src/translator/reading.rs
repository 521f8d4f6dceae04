//! What the model reads: a sentence in the spelling that its vocabulary knows.

use super::spellings::{composed, curly, in_capitals, lower, plain, straight, visible};
use crate::tokenize::Error as TokenizerError;
use crate::{Direction, Error, Tokenizer};
use simdformer_documents::marked_text::{Edit, MarkedText, Rewritten};
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

/// How a sentence is read whose letters are all capitals.
#[derive(Clone, Debug)]
pub(super) enum Capitals {
    /// It is none, or its capitals are better known.
    None,
    /// In small letters: its capitals are less known, or the same to the tokenizer.
    Small,
    /// The vocabulary has both: the model decides.
    Both(MarkedText),
}

/// A way to write a text for a model that does not know it as it is written.
type Spelling = fn(&MarkedText) -> Vec<Edit>;

/// Each is used if fewer bytes are unknown then.
const SPELLINGS: [Spelling; 5] = [plain, visible, composed, straight, curly];

impl Reader<'_> {
    /// Reads a sentence of a text: white space is one space, and soft hyphens and the like are left out; if the vocabulary
    /// does not have a part of it, it is spelled otherwise where that helps, in small letters, too, if it is in capitals and
    /// `capitals` says so.
    pub(super) fn read_sentence(&self, given: Rewritten, capitals: bool) -> Result<Reading, Error> {
        let step = given.marked.replace(plain(&given.marked));
        self.spell(vec![given, step], capitals)
    }

    /// How a sentence in capitals is read: in small letters, if the model knows these better. What the vocabulary does not have
    /// of its capitals, but has in small letters, is in these already.
    pub(super) fn read_capitals(&self, reading: &Reading) -> Result<Capitals, Error> {
        let given = &reading.marked;
        if reading.small {
            return Ok(Capitals::Small);
        }
        if !in_capitals(given) {
            return Ok(Capitals::None);
        }
        let small = given.replace(lower(given, self.direction.source)).marked;
        Ok(if self.unknown_bytes(&small)? > self.unknown_bytes(given)? {
            Capitals::None
        } else if self.ids(given)? == self.ids(&small)? {
            Capitals::Small
        } else {
            Capitals::Both(small)
        })
    }

    fn spell(&self, steps: Vec<Rewritten>, capitals: bool) -> Result<Reading, Error> {
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
    ) -> Result<bool, Error> {
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
    pub(super) fn unknown_bytes(&self, text: &MarkedText) -> Result<usize, Error> {
        Ok(total(&self.unknown(text)?))
    }

    /// The ids of a text; none if it cannot be segmented, which is the failure of its translation.
    pub(super) fn ids(&self, text: &MarkedText) -> Result<Vec<u32>, Error> {
        match self.tokenizer.encode_text(&text.text, &self.direction) {
            Ok(encoded) => Ok(encoded.ids),
            Err(TokenizerError::InvalidInput { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// The parts of a text outside of its kept pieces that the vocabulary does not have, cut at white space.
    pub(super) fn unknown(&self, text: &MarkedText) -> Result<Vec<Range<usize>>, Error> {
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
