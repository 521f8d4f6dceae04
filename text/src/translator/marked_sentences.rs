//! Sentences with marks: what the model is given for a kept piece, and where the marks go in its translation.

use super::error::TranslateError;
use super::inspection::Job;
use super::model_and_tokenizer::Translator;
use super::translation::{AlignedWords, Note, SentenceCounts, Translation};
use super::window::Unit;
use crate::Encoded;
use crate::marked_text::{Alignment, MarkedText, Placement, StandIn, WordAlignment, check};
use std::ops::Range;

/// A sentence of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkedSentence<'s> {
    pub(super) marked: &'s MarkedText,
    /// The model's code of its language, if that is not the one of the options.
    pub(super) language: Option<&'s str>,
    /// The random stream.
    pub(super) stream: u64,
}

/// A translation.
#[derive(Debug)]
struct Placed {
    /// The translation with its marks.
    target: MarkedText,
    translation: Translation,
    counts: SentenceCounts,
    /// Whether the model copied what it was given for kept pieces.
    copied: bool,
}

/// A name that models copy.
const NAME: &str = "Paul";

/// What the model is given for kept pieces: the pieces themselves; if it does not copy one of them, a name, which leaves the
/// sentence its grammar; if it does not copy that either, nothing.
const WAYS: [StandIn<'static>; 3] = [StandIn::Piece, StandIn::Word(NAME), StandIn::Nothing];

impl Translator<'_> {
    /// Translates `sentences`, in their order. A kept piece that is lost in every way splits its sentence.
    pub(super) fn translate_marked(
        &mut self,
        sentences: &[MarkedSentence<'_>],
    ) -> Result<Vec<(MarkedText, Translation)>, TranslateError> {
        let mut results = self.translate_way(sentences, WAYS[0])?;
        let failed = |one: &Placed| one.translation.failure.is_some();
        let lost = |sentence: &MarkedSentence<'_>, one: &Placed| {
            let lost = check(sentence.marked, &one.target).err();
            lost.is_some_and(|lost| !lost.only_wraps())
        };
        let again = |sentence: &MarkedSentence<'_>, one: &Placed| {
            !failed(one) && (!one.copied || lost(sentence, one))
        };
        let pairs = sentences.iter().zip(&results).enumerate();
        let mut left: Vec<usize> =
            pairs.filter(|(_, (sentence, one))| again(sentence, one)).map(|(i, _)| i).collect();
        self.report.kept_again += left.len() as u64;
        for way in &WAYS[1..] {
            let those: Vec<MarkedSentence<'_>> = left.iter().map(|&i| sentences[i]).collect();
            let mut still = Vec::new();
            for (i, mut new) in left.into_iter().zip(self.translate_way(&those, *way)?) {
                let old = &mut results[i];
                old.translation.retries += new.translation.retries + 1;
                old.counts = old.counts.merge(new.counts);
                if failed(&new) || again(&sentences[i], &new) {
                    still.push(i);
                } else {
                    new.translation.retries = old.translation.retries;
                    new.counts = old.counts;
                    *old = new;
                }
            }
            left = still;
        }
        for i in left.into_iter().filter(|&i| lost(&sentences[i], &results[i])).collect::<Vec<_>>()
        {
            let (retries, counts) = (results[i].translation.retries + 1, results[i].counts);
            results[i] = self.translate_between_keeps(&sentences[i])?;
            results[i].translation.retries += retries;
            results[i].counts = counts.merge(results[i].counts);
            if lost(&sentences[i], &results[i]) {
                results[i].translation.notes.push(Note::Lost);
            }
        }
        for Placed { counts, .. } in &results {
            self.report.repetitions += u64::from(counts.repeated);
            self.report.terms += counts.terms;
            self.report.terms_again += counts.lacked;
        }
        let results = results.into_iter().map(|one| (one.target, one.translation));
        let (targets, translations): (Vec<MarkedText>, Vec<Translation>) = results.unzip();
        self.count(&translations);
        Ok(targets.into_iter().zip(translations).collect())
    }

    /// Translates what stands between the kept pieces of a sentence, each part alone.
    fn translate_between_keeps(
        &mut self,
        sentence: &MarkedSentence<'_>,
    ) -> Result<Placed, TranslateError> {
        let mut parts: Vec<MarkedText> = Vec::new();
        let mut words: Vec<usize> = Vec::new();
        for part in sentence.marked.split_at_keeps() {
            let text = sentence.marked.text.get(part.range.clone()).unwrap_or_default();
            let start = part.range.start + text.len() - text.trim_start().len();
            let end = start + text.trim().len();
            for range in [part.range.start..start, start..end, end..part.range.end] {
                let slice = sentence.marked.slice(range.clone());
                if !range.is_empty() {
                    if !part.keep && has_words(&slice) {
                        words.push(parts.len());
                    }
                    parts.push(slice);
                }
            }
        }
        let alone: Vec<MarkedText> = words.iter().filter_map(|&i| parts.get(i).cloned()).collect();
        let between: Vec<MarkedSentence<'_>> =
            alone.iter().map(|marked| MarkedSentence { marked, ..*sentence }).collect();
        let (mut whole, mut counts) = (Translation::default(), SentenceCounts::default());
        for (i, one) in words.into_iter().zip(self.translate_way(&between, WAYS[0])?) {
            whole.append(one.translation);
            counts = counts.append(one.counts);
            parts[i] = one.target;
        }
        let target = MarkedText::join(&parts);
        whole.text.clone_from(&target.text);
        whole.notes.push(Note::Split);
        Ok(Placed { target, translation: whole, counts, copied: true })
    }

    /// Translates `sentences` with `way` in the place of kept pieces.
    fn translate_way(
        &mut self,
        sentences: &[MarkedSentence<'_>],
        way: StandIn<'_>,
    ) -> Result<Vec<Placed>, TranslateError> {
        let given: Vec<MarkedText> =
            sentences.iter().map(|sentence| sentence.marked.for_model(way)).collect();
        let units: Vec<Unit<'_>> = given
            .iter()
            .zip(sentences)
            .map(|(given, sentence)| Unit {
                text: given.text.trim(),
                source: sentence.language,
                stream: sentence.stream,
                force: &[],
            })
            .collect();
        let search = self.search.clone();
        let mut translations = self.run_units(&units, &search, None)?;
        let mut counts = vec![SentenceCounts::default(); units.len()];
        if self.options.guard {
            self.guard_repetition(&units, &mut translations, &mut counts)?;
        }
        self.require_terms(&units, &mut translations, &mut counts)?;
        let copied: Vec<bool> = sentences
            .iter()
            .zip(&given)
            .zip(&translations)
            .map(|((sentence, given), one)| {
                let (source, target) = (sentence.marked, one.text.as_str());
                Placement { source, given, target, alignment: None }.has_stand_ins()
            })
            .collect();
        let mut targets: Vec<MarkedText> = translations
            .iter()
            .map(|one| MarkedText { text: one.text.clone(), marks: Vec::new() })
            .collect();
        self.place_marks(sentences, &given, &units, &mut translations, &mut targets)?;
        for ((sentence, one), target) in sentences.iter().zip(&translations).zip(&mut targets) {
            if one.failure.is_some() {
                // The source is better than a hole in the text.
                sentence.marked.clone_into(target);
            }
        }
        let all = targets.into_iter().zip(translations).zip(counts).zip(copied);
        Ok(all
            .map(|(((target, translation), counts), copied)| Placed {
                target,
                translation,
                counts,
                copied,
            })
            .collect())
    }

    /// Aligns the words of the translations that have marks, and of all if the options say so.
    fn place_marks(
        &mut self,
        sentences: &[MarkedSentence<'_>],
        given: &[MarkedText],
        units: &[Unit<'_>],
        translations: &mut [Translation],
        targets: &mut [MarkedText],
    ) -> Result<(), TranslateError> {
        let (alignment, token_scores) = (self.options.alignment, self.options.token_scores);
        let mut jobs: Vec<(usize, Encoded, Vec<Range<usize>>)> = Vec::new();
        for (i, (unit, one)) in units.iter().zip(&*translations).enumerate() {
            let scores = token_scores && one.token_scores.len() != one.tokens.len();
            let marked = sentences[i].marked;
            // A translation that is the sentence has its marks in their places.
            let same = unit.text == one.text && marked.text == given[i].text;
            let marks = !marked.marks.is_empty() && !same;
            if same && unit.text == marked.text {
                targets[i].marks.clone_from(&marked.marks);
            }
            if one.failure.is_none() && !one.tokens.is_empty() && (alignment || scores || marks) {
                let direction = self.options.direction_from(unit.source);
                let (encoded, spans) =
                    self.tokenizer.encode_text_with_spans(unit.text, &direction)?;
                jobs.push((i, encoded, spans));
            }
        }
        let tokens: Vec<Vec<u32>> =
            jobs.iter().map(|(i, ..)| translations[*i].tokens.clone()).collect();
        let passes: Vec<Job<'_>> = jobs
            .iter()
            .zip(&tokens)
            .map(|((_, encoded, _), target)| Job {
                source: &encoded.ids,
                prefix: &encoded.prefix,
                target,
            })
            .collect();
        let tokenizer = self.tokenizer.clone();
        self.inspect(&passes, &mut |job, found| {
            let (i, _, source) = &jobs[job];
            let (sentence, given, one) = (&sentences[*i], &given[*i], &mut translations[*i]);
            let (text, target) = tokenizer.decode_with_spans(&one.tokens);
            // The model reads the text without the spaces at its ends.
            let shift = given.text.len() - given.text.trim_start().len();
            let source: Vec<Range<usize>> =
                source.iter().map(|span| span.start + shift..span.end + shift).collect();
            let matrix = Alignment { weights: &found.weights, source: &source, target: &target };
            if alignment {
                one.alignment = Some(aligned(&given.text, &text, &matrix));
            }
            if token_scores {
                one.token_scores = found.log_probabilities;
            }
            if !sentence.marked.marks.is_empty() && targets[*i].marks.is_empty() {
                let source = sentence.marked;
                let placement = Placement { source, given, target: &text, alignment: Some(matrix) };
                targets[*i] = placement.place();
                one.text.clone_from(&targets[*i].text);
            }
            Ok(())
        })
    }
}

/// Whether there is a letter outside of the kept pieces. A text without one is the same in every language.
pub(super) fn has_words(text: &MarkedText) -> bool {
    let parts = text.split_at_keeps().into_iter().filter(|part| !part.keep);
    let mut parts = parts.filter_map(|part| text.text.get(part.range));
    parts.any(|part| part.chars().any(char::is_alphabetic))
}

/// The aligned words of a sentence and its translation.
fn aligned(source: &str, target: &str, matrix: &Alignment<'_>) -> AlignedWords {
    let words = WordAlignment::new(source, target, matrix);
    let texts = |text: &str, ranges: &[Range<usize>]| {
        let word = |range: &Range<usize>| text.get(range.clone()).unwrap_or_default().to_owned();
        ranges.iter().map(word).collect()
    };
    AlignedWords {
        source: texts(source, &words.source),
        target: texts(target, &words.target),
        links: words.links.iter().map(|link| (link.source, link.target)).collect(),
    }
}
