//! Sentences that are translated again, all that need it in one batch.
//!
//! A translation that repeats itself is made again under rules against it. For terms of the glossary that a translation lacks
//! there is a bias towards them, then the term is forced where its source words are attended to.

use super::glossary::{Term, occurrences};
use super::inspection::Job;
use super::model_and_tokenizer::Translator;
use super::translation::{Note, SentenceCounts, Translation};
use super::window::Unit;
use crate::Repetition;
use crate::error::Error;
use simdformer::search::SearchOptions;
use std::ops::Range;

/// The rules of the attempts: `no_repeat_ngram` and the least `repetition_penalty`. Each is stronger than the one before:
/// a translation that had to be made again should stay close to the first one.
const ATTEMPTS: [(usize, f64); 3] = [(6, 1.0), (4, 1.1), (3, 1.3)];

/// What is added to the score of the first token of a term, in each attempt.
const BIASES: [f32; 2] = [2.5, 5.0];
/// What is added to the score of a token of a term after the tokens before it.
const CONTINUED: f32 = 8.0;

/// The terms of a sentence that its translation lacks, and where they are in the sentence.
struct Missing<'g> {
    index: usize,
    terms: Vec<(&'g Term, Range<usize>)>,
}

fn missing<'g>(terms: &[(&'g Term, Range<usize>)], text: &str) -> Vec<(&'g Term, Range<usize>)> {
    terms.iter().filter(|(term, _)| occurrences(text, &term.target) == 0).cloned().collect()
}

impl Translator {
    /// Translates again what repeats itself. An attempt that does not is taken; if all do, the first translation stays, with a
    /// [`Note::Repetition`]. `counts` are those of the units.
    pub(super) fn guard_repetition(
        &self,
        units: &[Unit<'_>],
        translations: &mut [Translation],
        counts: &mut [SentenceCounts],
    ) -> Result<(), Error> {
        let mut left = Vec::new();
        for (i, (unit, one)) in units.iter().zip(&*translations).enumerate() {
            if self.repeats(unit, one)? {
                counts[i].repeated = true;
                left.push(i);
            }
        }
        for (ngram, penalty) in ATTEMPTS {
            if left.is_empty() {
                return Ok(());
            }
            let search = SearchOptions {
                no_repeat_ngram: Some(self.search.no_repeat_ngram.map_or(ngram, |n| n.min(ngram))),
                repetition_penalty: self.search.repetition_penalty.max(penalty),
                ..self.search.clone()
            };
            let again: Vec<Unit<'_>> = left.iter().map(|&i| units[i]).collect();
            let found = self.run_units(&again, &search, None)?;
            let mut still = Vec::new();
            for (i, mut new) in left.into_iter().zip(found) {
                let old = &mut translations[i];
                old.retries += 1;
                if new.failure.is_some() || self.repeats(&units[i], &new)? {
                    still.push(i);
                } else {
                    new.retries = old.retries;
                    *old = new;
                }
            }
            left = still;
        }
        for i in left {
            translations[i].notes.push(Note::Repetition);
        }
        Ok(())
    }

    /// Whether a translation repeats itself, and its sentence does not.
    pub(super) fn repeats(
        &self,
        unit: &Unit<'_>,
        translation: &Translation,
    ) -> Result<bool, Error> {
        let ids = |tokens: &[u32]| -> Vec<u32> {
            let ends = &self.search.eos;
            tokens.iter().copied().filter(|id| !ends.contains(id)).collect()
        };
        let (target, source_tokens) = (ids(&translation.tokens), translation.source_tokens);
        if translation.failure.is_some() || Repetition::find_in(source_tokens, &target).is_none() {
            return Ok(false);
        }
        let direction = self.options.direction_from(unit.source);
        let source = ids(&self.tokenizer.encode_text(unit.text, &direction)?.ids);
        Ok(Repetition::find_in(source_tokens, &source).is_none())
    }

    /// Translates again what lacks terms of the glossary; what still lacks one has a [`Note::MissingTerm`].
    /// `counts` are those of the units.
    pub(super) fn require_terms(
        &self,
        units: &[Unit<'_>],
        translations: &mut [Translation],
        counts: &mut [SentenceCounts],
    ) -> Result<(), Error> {
        let Some(glossary) = &self.options.glossary else { return Ok(()) };
        let mut left = Vec::new();
        for (index, (unit, translation)) in units.iter().zip(&*translations).enumerate() {
            if translation.failure.is_some() || translation.finish.is_none() {
                continue;
            }
            let terms = glossary.terms_in(unit.text);
            counts[index].terms = terms.len() as u64;
            let terms = missing(&terms, &translation.text);
            counts[index].lacked = terms.len() as u64;
            if !terms.is_empty() {
                left.push(Missing { index, terms });
            }
        }
        let call = &self.search;
        for bias in BIASES {
            let searches: Result<Vec<_>, _> =
                left.iter().map(|one| self.biased(&one.terms, bias)).collect();
            let searches = searches?;
            let again = left.iter().zip(&searches);
            let again: Vec<Unit<'_>> = again
                .map(|(one, search)| Unit { options: Some(search), ..units[one.index] })
                .collect();
            let found = self.run_units(&again, call, None)?;
            for (one, new) in left.iter_mut().zip(found) {
                self.take_better(one, units, translations, new)?;
            }
            left.retain(|one| !one.terms.is_empty());
        }
        // One term of each sentence after the other: a place is known only in the translation that has the terms before it.
        while !left.is_empty() {
            let forces = self.prefixes_with_terms(&left, units, translations)?;
            let searches: Vec<SearchOptions> = forces
                .iter()
                .flatten()
                .map(|force| {
                    let mut search = call.clone();
                    // The tokens that are given count.
                    search.max_new_tokens =
                        search.max_new_tokens.map(|new| new.saturating_sub(force.len()).max(1));
                    search
                })
                .collect();
            let forced = left.iter().zip(&forces);
            let forced = forced.filter_map(|(one, force)| Some((one.index, force.as_ref()?)));
            let again: Vec<Unit<'_>> = forced
                .zip(&searches)
                .map(|((i, force), search)| Unit { force, options: Some(search), ..units[i] })
                .collect();
            let mut found = self.run_units(&again, call, None)?.into_iter();
            for (one, force) in left.iter_mut().zip(&forces) {
                let before = one.terms.len();
                if let Some(new) = force.as_ref().and_then(|_| found.next()) {
                    self.take_better(one, units, translations, new)?;
                }
                if one.terms.len() == before {
                    let Term { source, target } = one.terms.remove(0).0.clone();
                    translations[one.index].notes.push(Note::MissingTerm { source, target });
                }
            }
            left.retain(|one| !one.terms.is_empty());
        }
        Ok(())
    }

    /// Takes a translation that has more of the terms, and none of them more often than the sentence.
    fn take_better(
        &self,
        one: &mut Missing<'_>,
        units: &[Unit<'_>],
        translations: &mut [Translation],
        mut new: Translation,
    ) -> Result<(), Error> {
        let old = &mut translations[one.index];
        old.retries += 1;
        if new.failure.is_some() {
            return Ok(());
        }
        let still = missing(&one.terms, &new.text);
        let text = units[one.index].text;
        let once = one.terms.iter().all(|(term, _)| {
            occurrences(&new.text, &term.target) <= occurrences(text, &term.source).max(1)
        });
        if still.len() < one.terms.len() && once && !self.repeats(&units[one.index], &new)? {
            new.retries = old.retries;
            new.notes = std::mem::take(&mut old.notes);
            *old = new;
            one.terms = still;
        }
        Ok(())
    }

    /// The search options with a bias towards `terms`.
    fn biased(&self, terms: &[(&Term, Range<usize>)], bias: f32) -> Result<SearchOptions, Error> {
        let mut search = self.search.clone();
        for (term, _) in terms {
            let tokens = self.tokenizer.encode_target_text(&term.target)?;
            for end in 1..=tokens.len() {
                let amount = if end == 1 { bias } else { CONTINUED };
                let entry = tokens[..end].to_vec();
                // The sequences of the options must all be different.
                if !search.sequence_bias.iter().any(|(known, _)| *known == entry) {
                    search.sequence_bias.push((entry, amount));
                }
            }
        }
        Ok(search)
    }

    /// For each sentence, the tokens of its translation before the word that attends most to its first missing term, and
    /// then the term. `None` if they would not fit.
    fn prefixes_with_terms(
        &self,
        left: &[Missing<'_>],
        units: &[Unit<'_>],
        translations: &[Translation],
    ) -> Result<Vec<Option<Vec<u32>>>, Error> {
        let mut read = Vec::with_capacity(left.len());
        for one in left {
            let unit = &units[one.index];
            let direction = self.options.direction_from(unit.source);
            read.push(self.tokenizer.encode_text_with_spans(unit.text, &direction)?);
        }
        let jobs = left.iter().zip(&read).map(|(one, (encoded, _))| Job {
            source: &encoded.ids,
            prefix: &encoded.prefix,
            target: &translations[one.index].tokens,
        });
        let jobs: Vec<Job<'_>> = jobs.collect();
        // For each, the index of the token that attends most to the term.
        let mut best = vec![0; left.len()];
        self.inspect(&jobs, &mut |job, found| {
            let (_, range) = &left[job].terms[0];
            let source = &read[job].1;
            let (text, spans) = self.tokenizer.decode_with_spans(jobs[job].target);
            let mut most = 0.0;
            let rows = found.weights.chunks_exact(source.len().max(1)).zip(&spans).enumerate();
            for (i, (row, span)) in rows.filter(|(_, (_, span))| !span.is_empty()) {
                let of_term = row.iter().zip(source).filter(|(_, span)| {
                    !span.is_empty() && span.start < range.end && range.start < span.end
                });
                let weight: f32 = of_term.map(|(weight, _)| weight).sum();
                // The first of the tokens that attend alike.
                if weight > most && text.get(span.clone()).is_some() {
                    (most, best[job]) = (weight, i);
                }
            }
            Ok(())
        })?;
        let mut forces = Vec::with_capacity(left.len());
        for ((one, (encoded, _)), mut at) in left.iter().zip(&read).zip(best) {
            let translation = &translations[one.index];
            let (text, spans) = self.tokenizer.decode_with_spans(&translation.tokens);
            // Back to the begin of its word.
            let begins = |i: usize| {
                let start = spans.get(i).map_or(0, |span| span.start);
                text.get(..start).is_none_or(|before| before.is_empty() || before.ends_with(' '))
            };
            while at > 0 && !begins(at) {
                at -= 1;
            }
            let mut force = translation.tokens.get(..at).unwrap_or_default().to_vec();
            if let Some(first) = encoded.forced_bos.filter(|_| force.is_empty()) {
                force.push(first);
            }
            force.extend(self.tokenizer.encode_target_text(&one.terms[0].0.target)?);
            let has_room = self.has_room(encoded.prefix.len() + force.len());
            forces.push(has_room.then_some(force));
        }
        Ok(forces)
    }
}
