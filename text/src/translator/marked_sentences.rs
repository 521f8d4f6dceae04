//! Sentences with marks: what the model is given for a kept piece, and where the marks go in its translation.

use super::inspection::Job;
use super::model_and_tokenizer::Translator;
use super::reading::Capitals;
use super::spellings::{lower, upper};
use super::translation::{AlignedWords, Note, SentenceCounts, Translation};
use super::unknown_words::{Givens, PreparedSentence};
use super::window::{Reads, Unit};
use crate::Encoded;
use crate::error::Error;
use simdformer::Event;
use simdformer_documents::marked_text::{
    Alignment, MarkedText, Placement, StandIn, WordAlignment, check,
};
use std::ops::Range;

/// A sentence of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkedSentence<'s> {
    pub(super) marked: &'s MarkedText,
    /// The model's code of its language, if that is not the one of the options.
    pub(super) language: Option<&'s str>,
    /// The random stream.
    pub(super) stream: u64,
    /// Whether it is one of a text or a document, which may be made again: if it repeats itself, or lacks a term.
    pub(super) of_text: bool,
}

/// A sentence as the model gets it.
#[derive(Clone, Copy, Debug)]
struct GivenSentence<'s> {
    marked: &'s MarkedText,
    language: Option<&'s str>,
    stream: u64,
    of_text: bool,
    givens: &'s Givens,
    /// What is given first, if that is known.
    first: Option<&'s MarkedText>,
    /// Whether it is read in small letters, and its translation written in capitals.
    small: bool,
    /// Whether the log-probability of its translation is needed.
    scored: bool,
}

impl<'s> GivenSentence<'s> {
    fn new(sentence: &MarkedSentence<'s>, prepared: &'s PreparedSentence) -> Self {
        let small = matches!(prepared.capitals, Capitals::Small);
        Self {
            marked: &prepared.marked,
            language: sentence.language,
            stream: sentence.stream,
            of_text: sentence.of_text,
            givens: &prepared.givens,
            first: Some(&prepared.reading.marked).filter(|_| !small || prepared.reading.small),
            small,
            scored: matches!(prepared.capitals, Capitals::Both(_)),
        }
    }
}

/// A sequence of a sentence, and what the model read of it: its words are aligned.
#[derive(Debug)]
struct Sequence {
    sentence: usize,
    /// Which of the further sequences; `None` for the best.
    other: Option<usize>,
    tokens: Vec<u32>,
    encoded: Encoded,
    /// The bytes of each source token.
    spans: Vec<Range<usize>>,
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
    /// The mean log-probability of the tokens, if it was needed.
    likelihood: Option<f32>,
}

/// A name that models copy.
const NAME: &str = "Paul";

/// What the model is given for kept pieces: the pieces themselves; if it does not copy one of them, a name, which leaves the
/// sentence its grammar; if it does not copy that either, nothing.
const WAYS: [StandIn<'static>; 3] = [StandIn::Piece, StandIn::Word(NAME), StandIn::Nothing];

impl Translator {
    /// Translates `sentences`, in their order. A kept piece that is lost in every way splits its sentence.
    pub(super) fn translate_marked(
        &self,
        sentences: &[MarkedSentence<'_>],
    ) -> Result<Vec<(MarkedText, Translation)>, Error> {
        let mut prepared = Vec::with_capacity(sentences.len());
        for MarkedSentence { marked, language, .. } in sentences {
            self.check_cancel()?;
            prepared.push(self.prepare_sentence(marked, *language)?);
        }
        self.translate_read(sentences, &prepared.iter().collect::<Vec<_>>(), None)
    }

    /// Translates one sentence, and calls `on_piece` with the pieces that its first search writes.
    pub(super) fn translate_marked_streamed(
        &self,
        sentence: &MarkedSentence<'_>,
        on_piece: &mut dyn FnMut(&str),
    ) -> Result<(MarkedText, Translation), Error> {
        self.check_cancel()?;
        let prepared = self.prepare_sentence(sentence.marked, sentence.language)?;
        let mut found = Vec::new();
        if !prepared.without_known_words {
            let first = self.first_text(sentence, &prepared)?;
            let unit = Unit {
                text: first.text.trim(),
                source: sentence.language,
                stream: sentence.stream,
                force: &[],
                reads: Reads::AsSpelled,
                options: None,
            };
            let mut pieces = self.tokenizer.stream();
            let mut on_event = |event: &Event<'_>| {
                if let Event::Token { token, .. } = event
                    && token.sequence == 0
                    && let Some(piece) = pieces.push(token.id)
                {
                    on_piece(piece);
                }
            };
            found = self.run_units(&[unit], &self.search, Some((None, &mut on_event)))?;
            let rest = pieces.finish();
            if !rest.is_empty() {
                on_piece(rest);
            }
        }
        let found = self.translate_read(&[*sentence], &[&prepared], Some(found))?.pop();
        Ok(found.unwrap_or_else(|| unreachable!("a sentence has a result")))
    }

    /// Translates sentences that are prepared, in their order. `found`: what the first search finds for those that are read,
    /// if it was run.
    pub(super) fn translate_read(
        &self,
        sentences: &[MarkedSentence<'_>],
        prepared: &[&PreparedSentence],
        found: Option<Vec<Translation>>,
    ) -> Result<Vec<(MarkedText, Translation)>, Error> {
        let pairs = || sentences.iter().zip(prepared).filter(|(_, one)| !one.without_known_words);
        let read: Vec<&PreparedSentence> = pairs().map(|(_, prepared)| *prepared).collect();
        let given: Vec<GivenSentence<'_>> =
            pairs().map(|(sentence, prepared)| GivenSentence::new(sentence, prepared)).collect();
        let mut results = self.translate_given(&given, found)?;
        self.take_small_letters(&given, &read, &mut results)?;
        for (one, prepared) in results.iter_mut().zip(&read) {
            prepared.remove_added(&mut one.target);
            one.translation.unknown.clone_from(&prepared.unknown);
        }
        self.add_to_report(|report| {
            for Placed { counts, .. } in &results {
                report.repetitions += u64::from(counts.repeated);
                report.terms += counts.terms;
                report.terms_again += counts.lacked;
            }
        });
        let mut results = results.into_iter().map(|one| (one.target, one.translation));
        let mut all = Vec::with_capacity(sentences.len());
        for (sentence, prepared) in sentences.iter().zip(prepared) {
            let found = if prepared.without_known_words { None } else { results.next() };
            all.push(found.unwrap_or_else(|| {
                (sentence.marked.clone(), prepared.copy(&sentence.marked.text))
            }));
        }
        self.count(all.iter().map(|(_, translation)| translation));
        Ok(all)
    }

    /// Translates sentences in capitals, which the vocabulary has in small letters, too, in small letters, and takes those
    /// that the model finds more probable.
    fn take_small_letters(
        &self,
        given: &[GivenSentence<'_>],
        prepared: &[&PreparedSentence],
        results: &mut [Placed],
    ) -> Result<(), Error> {
        let both = given.iter().zip(prepared).enumerate();
        let both = both.filter_map(|(i, (given, prepared))| match &prepared.capitals {
            Capitals::Both(small) => {
                Some((i, GivenSentence { first: Some(small), small: true, ..*given }))
            }
            Capitals::None | Capitals::Small => None,
        });
        let (indices, sentences): (Vec<usize>, Vec<GivenSentence<'_>>) = both.unzip();
        if indices.is_empty() {
            return Ok(());
        }
        for (i, new) in indices.into_iter().zip(self.translate_given(&sentences, None)?) {
            let old = &mut results[i];
            // A likelihood that is missing, or NaN, is no better one.
            let likelier = match (new.likelihood, old.likelihood) {
                (Some(new), Some(old)) => new > old,
                (new, old) => new.is_some() && old.is_none(),
            };
            if likelier && new.translation.failure.is_none() {
                *old = new;
            }
        }
        Ok(())
    }

    /// Translates what is given for sentences, in their order. `found`: as in [`translate_read`](Self::translate_read).
    fn translate_given(
        &self,
        sentences: &[GivenSentence<'_>],
        found: Option<Vec<Translation>>,
    ) -> Result<Vec<Placed>, Error> {
        let mut results = self.translate_way(sentences, WAYS[0], found)?;
        let failed = |one: &Placed| one.translation.failure.is_some();
        let lost = |sentence: &GivenSentence<'_>, one: &Placed| {
            let lost = check(sentence.marked, &one.target).err();
            lost.is_some_and(|lost| !lost.only_wraps())
        };
        let again = |sentence: &GivenSentence<'_>, one: &Placed| {
            !failed(one) && (!one.copied || lost(sentence, one))
        };
        let pairs = sentences.iter().zip(&results).enumerate();
        let mut left: Vec<usize> =
            pairs.filter(|(_, (sentence, one))| again(sentence, one)).map(|(i, _)| i).collect();
        self.add_to_report(|report| report.kept_again += left.len() as u64);
        for way in &WAYS[1..] {
            let those: Vec<GivenSentence<'_>> = left.iter().map(|&i| sentences[i]).collect();
            let mut still = Vec::new();
            for (i, mut new) in left.into_iter().zip(self.translate_way(&those, *way, None)?) {
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
        left.retain(|&i| lost(&sentences[i], &results[i]));
        let those: Vec<GivenSentence<'_>> = left.iter().map(|&i| sentences[i]).collect();
        for (i, new) in left.into_iter().zip(self.translate_between_keeps(&those)?) {
            let (retries, counts) = (results[i].translation.retries + 1, results[i].counts);
            results[i] = new;
            results[i].translation.retries += retries;
            results[i].counts = counts.merge(results[i].counts);
            if lost(&sentences[i], &results[i]) {
                results[i].translation.notes.push(Note::Lost);
            }
        }
        Ok(results)
    }

    /// Translates what stands between the kept pieces of each sentence, all parts in one batch.
    fn translate_between_keeps(
        &self,
        sentences: &[GivenSentence<'_>],
    ) -> Result<Vec<Placed>, Error> {
        let parts: Vec<_> = sentences.iter().map(|one| parts_between_keeps(one.marked)).collect();
        let between = sentences.iter().zip(&parts).flat_map(|(sentence, (parts, words))| {
            let given = |&i: &usize| GivenSentence { marked: &parts[i], first: None, ..*sentence };
            words.iter().map(given)
        });
        let between: Vec<GivenSentence<'_>> = between.collect();
        let mut found = self.translate_way(&between, WAYS[0], None)?.into_iter();
        let mut results = Vec::with_capacity(sentences.len());
        for (mut parts, words) in parts {
            let mut likelihood: Option<f32> = None;
            let (mut whole, mut counts) = (Translation::default(), SentenceCounts::default());
            for (i, one) in words.into_iter().zip(&mut found) {
                whole.append(one.translation);
                counts = counts.append(one.counts);
                // That of the worst part.
                likelihood = likelihood.into_iter().chain(one.likelihood).reduce(f32::min);
                parts[i] = one.target;
            }
            let target = MarkedText::join(&parts);
            whole.text.clone_from(&target.text);
            whole.notes.push(Note::Split);
            results.push(Placed { target, translation: whole, counts, copied: true, likelihood });
        }
        Ok(results)
    }

    /// What the first search reads of a sentence.
    pub(super) fn first_text(
        &self,
        sentence: &MarkedSentence<'_>,
        prepared: &PreparedSentence,
    ) -> Result<MarkedText, Error> {
        self.given_text(&GivenSentence::new(sentence, prepared), WAYS[0])
    }

    /// Translates `sentences` with `way` in the place of kept pieces. `found`: what the search finds, if it was run.
    fn translate_way(
        &self,
        sentences: &[GivenSentence<'_>],
        way: StandIn<'_>,
        found: Option<Vec<Translation>>,
    ) -> Result<Vec<Placed>, Error> {
        let mut given: Vec<MarkedText> = Vec::with_capacity(sentences.len());
        for sentence in sentences {
            given.push(self.given_text(sentence, way)?);
        }
        let units: Vec<Unit<'_>> = given
            .iter()
            .zip(sentences)
            .map(|(given, sentence)| Unit {
                text: given.text.trim(),
                source: sentence.language,
                stream: sentence.stream,
                force: &[],
                reads: Reads::AsSpelled,
                options: None,
            })
            .collect();
        let mut translations = match found {
            Some(found) => found,
            None => self.run_units(&units, &self.search, None)?,
        };
        let mut counts = vec![SentenceCounts::default(); units.len()];
        if sentences.iter().all(|sentence| sentence.of_text) {
            if self.options.guard {
                self.guard_repetition(&units, &mut translations, &mut counts)?;
            }
            self.require_terms(&units, &mut translations, &mut counts)?;
        }
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
        let likelihoods =
            self.place_marks(sentences, &given, &units, &mut translations, &mut targets)?;
        for (((sentence, one), target), unit) in
            sentences.iter().zip(&mut translations).zip(&mut targets).zip(&units)
        {
            if one.failure.is_some() {
                // The source is better than a hole in the text.
                sentence.marked.clone_into(target);
            } else if !one.text.is_empty() && one.text == unit.text {
                // What the model copied is as it was written.
                sentence.marked.clone_into(target);
                one.text.clone_from(&target.text);
            } else if sentence.small {
                let language = self.options.target.as_deref();
                *target = target.replace(upper(target, language)).marked;
                one.text.clone_from(&target.text);
                for other in &mut one.alternatives {
                    let text =
                        MarkedText { text: std::mem::take(&mut other.text), marks: Vec::new() };
                    other.text = text.replace(upper(&text, language)).marked.text;
                }
                one.notes.push(Note::SmallLetters);
            }
        }
        let all = targets.into_iter().zip(translations).zip(counts).zip(copied).zip(likelihoods);
        Ok(all
            .map(|((((target, translation), counts), copied), likelihood)| Placed {
                target,
                translation,
                counts,
                copied,
                likelihood,
            })
            .collect())
    }

    /// What the model is given for a sentence, with `way` in the place of placeholders.
    fn given_text(
        &self,
        sentence: &GivenSentence<'_>,
        way: StandIn<'_>,
    ) -> Result<MarkedText, Error> {
        if let Some(first) = sentence.first.filter(|_| way == WAYS[0]) {
            return Ok(first.clone());
        }
        let givens = sentence.givens;
        let given = sentence.marked.for_model_each(|mark| givens.stand_in(mark, way));
        let reader = self.reader(sentence.language);
        let given = reader.read_sentence(given, sentence.small)?.marked;
        if !sentence.small {
            return Ok(given);
        }
        Ok(given.replace(lower(&given, reader.direction.source)).marked)
    }

    /// Aligns the words of the translations that have marks, and of all if the options say so. Returns the mean log-probability
    /// of the tokens of each sentence for which it is needed.
    fn place_marks(
        &self,
        sentences: &[GivenSentence<'_>],
        given: &[MarkedText],
        units: &[Unit<'_>],
        translations: &mut [Translation],
        targets: &mut [MarkedText],
    ) -> Result<Vec<Option<f32>>, Error> {
        let (alignment, token_scores) = (self.options.alignment, self.options.token_scores);
        let mut jobs: Vec<Sequence> = Vec::new();
        for (i, (unit, one)) in units.iter().zip(&*translations).enumerate() {
            let scores = token_scores && one.token_scores.len() != one.tokens.len();
            let marked = sentences[i].marked;
            // What the model copied has its marks in their places.
            let marks = !marked.marks.is_empty() && unit.text != one.text;
            let scores = scores || sentences[i].scored;
            if one.failure.is_none() && !one.tokens.is_empty() && (alignment || scores || marks) {
                let direction = self.options.direction_from(unit.source);
                let (encoded, spans) =
                    self.tokenizer.encode_text_with_spans(unit.text, &direction)?;
                let others = one.alternatives.iter().enumerate().filter(|_| marks);
                let others = others.map(|(other, one)| (Some(other), &one.tokens));
                jobs.extend(others.chain([(None, &one.tokens)]).map(|(other, tokens)| Sequence {
                    sentence: i,
                    other,
                    tokens: tokens.clone(),
                    encoded: encoded.clone(),
                    spans: spans.clone(),
                }));
            }
        }
        let passes: Vec<Job<'_>> = jobs
            .iter()
            .map(|one| Job {
                source: &one.encoded.ids,
                prefix: &one.encoded.prefix,
                target: &one.tokens,
            })
            .collect();
        let tokenizer = self.tokenizer.clone();
        let mut likelihoods = vec![None; sentences.len()];
        self.inspect(&passes, &mut |job, found| {
            let Sequence { sentence: i, other, tokens, spans, .. } = &jobs[job];
            let (sentence, given, one) = (&sentences[*i], &given[*i], &mut translations[*i]);
            let (text, target) = tokenizer.decode_with_spans(tokens);
            // The model reads the text without the spaces at its ends.
            let shift = given.text.len() - given.text.trim_start().len();
            let source: Vec<Range<usize>> =
                spans.iter().map(|span| span.start + shift..span.end + shift).collect();
            let matrix = Alignment { weights: &found.weights, source: &source, target: &target };
            if let Some(other) = *other {
                let (source, target) = (sentence.marked, &*text);
                let placed = Placement { source, given, target, alignment: Some(matrix) }.place();
                one.alternatives[other].text = placed.text;
                return Ok(());
            }
            if alignment {
                one.alignment = Some(aligned(&given.text, &text, &matrix));
            }
            if sentence.scored {
                let sum: f32 = found.log_probabilities.iter().sum();
                likelihoods[*i] = Some(sum / found.log_probabilities.len().max(1) as f32);
            }
            if token_scores {
                one.token_scores = found.log_probabilities;
            }
            if !sentence.marked.marks.is_empty() && given.text.trim() != one.text {
                let source = sentence.marked;
                let placement = Placement { source, given, target: &text, alignment: Some(matrix) };
                targets[*i] = placement.place();
                one.text.clone_from(&targets[*i].text);
            }
            Ok(())
        })?;
        Ok(likelihoods)
    }
}

/// The parts of a sentence: its kept pieces, what stands between them, and the white space at the ends of both; and the
/// indices of those that are translated.
fn parts_between_keeps(marked: &MarkedText) -> (Vec<MarkedText>, Vec<usize>) {
    let (mut parts, mut words) = (Vec::new(), Vec::new());
    for part in marked.split_at_keeps() {
        let text = marked.text.get(part.range.clone()).unwrap_or_default();
        let start = part.range.start + text.len() - text.trim_start().len();
        let end = start + text.trim().len();
        for range in [part.range.start..start, start..end, end..part.range.end] {
            let slice = marked.slice(range.clone());
            if !range.is_empty() {
                if !part.keep && has_words(&slice) {
                    words.push(parts.len());
                }
                parts.push(slice);
            }
        }
    }
    (parts, words)
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
