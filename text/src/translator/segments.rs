//! Texts of several sentences, with marks: divided, translated, and put together again.

use super::cues::{Boundaries, divide};
use super::marked_sentences::{MarkedSentence, has_words};
use super::model_and_tokenizer::Translator;
use super::translation::{Note, TextTranslation, TranslatedSentence, Translation};
use crate::Error;
use crate::tokenize::Error as TokenizerError;
use simdformer_documents::marked_text::{Mark, MarkKind, MarkedText, placeholders};
use simdformer_documents::sentences::SentenceSplitter;
use std::ops::Range;

/// What the tokenizer leaves out at the begin of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A text that is divided into sentences and what stands between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Prepared {
    /// Consecutive parts; together they are the text.
    parts: Vec<Part>,
    /// The model's code of the language that was detected.
    language: Option<String>,
    /// Where the cues of subtitles meet, of which the text is joined.
    boundaries: Boundaries,
}

#[derive(Clone, Debug)]
struct Part {
    marked: MarkedText,
    range: Range<usize>,
    /// Whether the model reads it; otherwise it is copied.
    translated: bool,
    /// Whether it is a part of a sentence that is too long.
    cut: bool,
}

/// A translated text.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) text: TextTranslation,
    /// Its parts for the cues of which the source is joined; empty if it is not joined.
    pub(super) pieces: Vec<MarkedText>,
}

impl Prepared {
    /// The number of sentences that the model will read.
    pub(super) fn sentences(&self) -> usize {
        self.translated().count()
    }

    /// The parts that the model will read, with the language of the text if it was detected.
    fn translated(&self) -> impl Iterator<Item = (&Part, Option<&str>)> {
        let language = self.language.as_deref();
        self.parts.iter().filter(|part| part.translated).map(move |part| (part, language))
    }
}

impl Part {
    fn sentence<'s>(&'s self, language: Option<&'s str>, stream: u64) -> MarkedSentence<'s> {
        MarkedSentence { marked: &self.marked, language, stream, of_text: true }
    }
}

impl Translator {
    /// Divides a text into sentences, and sentences that are too long into parts.
    pub(super) fn prepare(&self, text: &MarkedText) -> Result<Prepared, Error> {
        self.prepare_joined(text, Boundaries::default())
    }

    /// As [`prepare`](Self::prepare), for a text that is joined of those of several cues.
    pub(super) fn prepare_joined(
        &self,
        text: &MarkedText,
        mut boundaries: Boundaries,
    ) -> Result<Prepared, Error> {
        let patterns = self.options.keep.iter();
        let found = patterns.flat_map(|pattern| pattern.find_iter(&text.text));
        let mut marked = placeholders(text, found.map(|found| found.range()));
        let keeps = marked.marks.iter().filter(|mark| matches!(mark.kind, MarkKind::Keep { .. }));
        let (language, copied) = self.language_of(&marked.text);
        self.add_to_report(|report| {
            report.texts += 1;
            report.kept += keeps.count() as u64;
            report.copied += u64::from(copied);
        });
        let known = language.as_deref().or(self.options.source.as_deref());
        let direction = self.options.direction_from(known);
        let splitter = SentenceSplitter::new(self.tokenizer.source_language(&direction));
        let mut sentences = splitter.split(&marked.text);
        if let Some(first) = sentences.first_mut() {
            // A byte order mark is copied.
            let mark = if marked.text.starts_with(BYTE_ORDER_MARK) {
                BYTE_ORDER_MARK.len_utf8()
            } else {
                0
            };
            *first = first.start.max(mark)..first.end.max(mark);
        }
        boundaries.mark(&mut marked);
        let slices = Slices::new(&marked);
        let mut parts = Vec::new();
        let mut push = |range: Range<usize>, translated, cut| {
            if !range.is_empty() {
                parts.push(Part { marked: slices.slice(&range), range, translated, cut });
            }
        };
        let mut at = 0;
        for sentence in marked.whole_keeps(&sentences) {
            self.check_cancel()?;
            push(at..sentence.start, false, false);
            at = sentence.end;
            let slice = slices.slice(&sentence);
            if copied || !has_words(&slice) {
                push(sentence, false, false);
                continue;
            }
            let most = self.longest_source();
            // A token is hardly ever less than a byte, and most sentences are far shorter than the limit.
            if slice.text.len() + 8 <= most || self.count_tokens(&slice.text, known)? <= most {
                push(sentence, true, false);
                continue;
            }
            self.add_to_report(|report| report.cut += 1);
            let mut failed = Ok(());
            let mut fits = |part: &str| match self.count_tokens(part, known) {
                Ok(tokens) => tokens <= most,
                Err(error) => {
                    failed = Err(error);
                    true
                }
            };
            let cuts = slice.whole_keeps(&splitter.cut(&slice.text, &mut fits));
            failed?;
            let mut before = sentence.start;
            for part in cuts {
                let part = sentence.start + part.start..sentence.start + part.end;
                push(before..part.start, false, false);
                before = part.end;
                let words = has_words(&slices.slice(&part));
                push(part, words, true);
            }
            push(before..sentence.end, false, false);
        }
        push(at..marked.text.len(), false, false);
        for part in &mut parts {
            boundaries.take_outer(part.translated, &part.range, &mut part.marked);
        }
        Ok(Prepared { parts, language, boundaries })
    }

    /// The number of tokens of a sentence; 0 if it cannot be segmented, which is said of its translation.
    fn count_tokens(&self, text: &str, language: Option<&str>) -> Result<usize, Error> {
        let direction = self.options.direction_from(language);
        match self.tokenizer.encode_text(text, &direction) {
            Ok(one) => Ok(one.tokens),
            Err(TokenizerError::InvalidInput { .. }) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Translates texts that were divided; the results are in their order.
    pub(super) fn translate_prepared(&self, texts: &[Prepared]) -> Result<Vec<Translated>, Error> {
        let streams = self.take_streams(texts.iter().map(Prepared::sentences).sum());
        let parts = texts.iter().flat_map(Prepared::translated).zip(streams.iter());
        let sentences: Vec<MarkedSentence<'_>> =
            parts.map(|((part, language), stream)| part.sentence(language, stream)).collect();
        let translated = self.translate_marked(&sentences)?;
        streams.keep();
        Ok(join_translated(texts, translated))
    }

    /// Translates a text as [`translate`](Self::translate) does, one sentence after the other, and calls `on_event` with what
    /// is known of its translation while the model writes it. For a person who waits for it.
    ///
    /// ```
    /// use simdformer_text::translator::{TextEvent, Translator};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fr-en");
    /// # if !std::path::Path::new(directory).exists() { return Ok(()) } // not in the published package
    /// let translator = Translator::open(directory)?;
    /// let mut sentences = 0;
    /// let found = translator.translate_text_streamed("il fait froid. je suis étudiant.", &mut |event| {
    ///     match event {
    ///         TextEvent::Piece(piece) => print!("{piece}"),
    ///         TextEvent::Sentence { .. } => sentences += 1,
    ///         _ => (),
    ///     }
    /// })?;
    /// assert_eq!((found.text(), sentences), (&translator.translate("il fait froid. je suis étudiant.")?[..], 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`translate_texts`](Self::translate_texts).
    pub fn translate_text_streamed(
        &self,
        text: &str,
        on_event: &mut dyn FnMut(TextEvent<'_>),
    ) -> Result<TextTranslation, Error> {
        let text = self.prepare(&MarkedText::plain(text))?;
        let streams = self.take_streams(text.sentences());
        let mut numbers = streams.iter();
        let mut translated = Vec::with_capacity(text.sentences());
        for part in &text.parts {
            let Some(stream) = part.translated.then(|| numbers.next()).flatten() else {
                on_event(TextEvent::Copied(&part.marked.text));
                continue;
            };
            let sentence = part.sentence(text.language.as_deref(), stream);
            let found = self.translate_marked_streamed(&sentence, &mut |piece| {
                on_event(TextEvent::Piece(piece));
            })?;
            let (text, translation) = (&found.0.text[..], &found.1);
            on_event(TextEvent::Sentence { source: &part.marked.text, text, translation });
            translated.push(found);
        }
        streams.keep();
        let mut joined = join_translated(&[text], translated);
        Ok(joined.pop().map(|one| one.text).unwrap_or_default())
    }
}

/// What is known of the translation of a text while the model writes it: in the order of the text, for each sentence its
/// pieces and then the sentence.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum TextEvent<'e> {
    /// What stands between sentences, and is copied.
    Copied(&'e str),
    /// The next piece of the sentence that is being translated. Greedy search and sampling report pieces as tokens are
    /// chosen, a beam search all at the end.
    Piece(&'e str),
    /// A sentence is translated.
    Sentence {
        /// The sentence.
        source: &'e str,
        /// What the text has for it. It can differ from the pieces together: placeholders are put in their places, and a
        /// translation that repeats itself is made again.
        text: &'e str,
        /// What is known of it.
        translation: &'e Translation,
    },
}

/// Puts texts together of the translations of their sentences, in order.
fn join_translated(
    texts: &[Prepared],
    translated: Vec<(MarkedText, Translation)>,
) -> Vec<Translated> {
    let mut translated = translated.into_iter();
    let mut results = Vec::with_capacity(texts.len());
    for text in texts {
        let mut joined = Vec::with_capacity(text.parts.len());
        let mut sentences = Vec::new();
        let mut cuts = text.boundaries.cuts();
        let mut length = 0;
        for part in &text.parts {
            let next = part.translated.then(|| translated.next()).flatten();
            let mut target = match &next {
                Some((target, _)) => target.clone(),
                None => part.marked.clone(),
            };
            // A copy is divided where the source is.
            let copy = next.as_ref().is_none_or(|(target, translation)| {
                translation.failure.is_some() || target.text == part.marked.text
            });
            cuts.take((&part.marked, part.range.start), copy, length, &mut target);
            length += target.text.len();
            joined.push(target);
            if let Some((_, mut translation)) = next {
                if part.cut {
                    translation.notes.push(Note::Cut);
                }
                let (range, source) = (part.range.clone(), part.marked.text.clone());
                sentences.push(TranslatedSentence { range, source, translation });
            }
        }
        let target = MarkedText::join(&joined);
        let pieces = divide(&target, &cuts);
        let text = TextTranslation { target, sentences, language: text.language.clone() };
        results.push(Translated { text, pieces });
    }
    results
}

/// Slices of a text, each in time that does not depend on the marks of the others.
struct Slices<'t> {
    whole: &'t MarkedText,
    /// For each mark, the last one before it that ends after it begins.
    around: Vec<Option<usize>>,
}

impl<'t> Slices<'t> {
    fn new(whole: &'t MarkedText) -> Self {
        let mut open: Vec<usize> = Vec::new();
        let mut around = Vec::with_capacity(whole.marks.len());
        for (index, mark) in whole.marks.iter().enumerate() {
            while open.pop_if(|&mut last| whole.marks[last].range.end <= mark.range.start).is_some()
            {
            }
            around.push(open.last().copied());
            if !mark.range.is_empty() {
                open.push(index);
            }
        }
        Self { whole, around }
    }

    /// As [`MarkedText::slice`].
    fn slice(&self, range: &Range<usize>) -> MarkedText {
        let Self { whole, around } = self;
        let text = whole.text.get(range.clone()).unwrap_or_default();
        let first = whole.marks.partition_point(|mark| mark.range.start < range.start);
        let last = whole.marks.partition_point(|mark| mark.range.start <= range.end);
        let mut marks: Vec<&Mark> = Vec::new();
        let mut outer = first.checked_sub(1);
        while let Some(mark) = outer.and_then(|index| whole.marks.get(index)) {
            marks.push(mark);
            outer = outer.and_then(|index| around[index]);
        }
        marks.reverse();
        marks.extend(&whole.marks[first..last]);
        let end = range.end.min(whole.text.len());
        let is_last = end == whole.text.len();
        let kept = marks.into_iter().filter_map(|mark| {
            let Range { start: from, end: to } = mark.range;
            let part = from.max(range.start)..to.min(end);
            let kept = match mark.range.is_empty() {
                true => range.contains(&from) || is_last && from == end,
                false => !part.is_empty(),
            };
            let range = part.start - range.start..part.end.saturating_sub(range.start);
            kept.then(|| Mark { range, ..mark.clone() })
        });
        MarkedText { text: text.to_owned(), marks: kept.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds text and marks, wraps within wraps, up to the end of a wrap.
    fn grow(below: &mut dyn FnMut(usize) -> usize, whole: &mut MarkedText, depth: usize) {
        for _ in 0..1 + below(4) {
            let (at, id) = (whole.text.len(), whole.marks.len());
            let mark = |kind| Mark { range: at..at, kind, id };
            match below(5) {
                0 => whole.marks.push(mark(MarkKind::Point { source: "<br/>".to_owned() })),
                1 => {
                    whole.text.push_str(["%s", "é"][below(2)]);
                    let range = at..whole.text.len();
                    whole.marks.push(Mark { range, ..mark(MarkKind::Keep { source: None }) });
                }
                2 if depth < 4 => {
                    let (open, close) = ("<b>".to_owned(), "</b>".to_owned());
                    whole.marks.push(mark(MarkKind::Wrap { open, close }));
                    grow(below, whole, depth + 1);
                    whole.text.push('x');
                    whole.marks[id].range.end = whole.text.len();
                }
                _ => whole.text.push_str(["a", "é", " ", "字"][below(4)]),
            }
        }
    }

    /// Every slice of random texts, with marks at both ends of the text and of the slice.
    #[test]
    fn slices_are_those_of_the_text() {
        let mut state = 1u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let (mut slices, mut marks) = (0, 0);
        for _ in 0..300 {
            let mut whole = MarkedText::default();
            grow(&mut below, &mut whole, 0);
            let fast = Slices::new(&whole);
            let places: Vec<usize> =
                (0..=whole.text.len()).filter(|&at| whole.text.is_char_boundary(at)).collect();
            for (i, &start) in places.iter().enumerate() {
                for &end in &places[i..] {
                    let expected = whole.slice(start..end);
                    assert_eq!(fast.slice(&(start..end)), expected, "{start}..{end} of {whole:?}");
                    marks += expected.marks.len();
                    slices += 1;
                }
            }
        }
        assert!(slices > 5000 && marks > 5000, "{slices} {marks}");
    }
}
