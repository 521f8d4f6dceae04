//! Terms of the glossary that a translation lacks: the sentence is translated again with a bias towards them, then with
//! the term forced where its source words are attended to.

use super::error::TranslateError;
use super::glossary::{Term, occurrences};
use super::inspection::Job;
use super::model_and_tokenizer::Translator;
use super::translation::{Note, SentenceCounts, Translation};
use super::window::Unit;
use simdformer::search::SearchOptions;
use std::ops::Range;

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
    /// Translates again what lacks terms of the glossary; what still lacks one has a [`Note::MissingTerm`].
    /// `counts` are those of the units.
    pub(super) fn require_terms(
        &mut self,
        units: &[Unit<'_>],
        translations: &mut [Translation],
        counts: &mut [SentenceCounts],
    ) -> Result<(), TranslateError> {
        let Some(glossary) = self.options.glossary.clone() else { return Ok(()) };
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
        for bias in BIASES {
            // A bias belongs to a whole call, so each sentence is a call of its own.
            for one in &mut left {
                let search = self.biased(&one.terms, bias)?;
                let unit = units[one.index];
                let found = self.run_units(&[unit], &search, None)?;
                self.take_better(one, units, translations, found)?;
            }
            left.retain(|one| !one.terms.is_empty());
        }
        for one in &mut left {
            // One term after the other: a place is known only in the translation that has the terms before it.
            while let Some((term, range)) = one.terms.first().cloned() {
                let before = one.terms.len();
                let force =
                    self.prefix_with(&units[one.index], &translations[one.index], term, range)?;
                if let Some(force) = force {
                    let unit = Unit { force: &force, ..units[one.index] };
                    let mut search = self.search.clone();
                    // The tokens that are given count.
                    search.max_new_tokens =
                        search.max_new_tokens.map(|new| new.saturating_sub(force.len()).max(1));
                    let found = self.run_units(&[unit], &search, None)?;
                    self.take_better(one, units, translations, found)?;
                }
                if one.terms.len() == before {
                    one.terms.remove(0);
                    let Term { source, target } = term.clone();
                    translations[one.index].notes.push(Note::MissingTerm { source, target });
                }
            }
        }
        Ok(())
    }

    /// Takes a translation that has more of the terms, and none of them more often than the sentence.
    fn take_better(
        &self,
        one: &mut Missing<'_>,
        units: &[Unit<'_>],
        translations: &mut [Translation],
        found: Vec<Translation>,
    ) -> Result<(), TranslateError> {
        let old = &mut translations[one.index];
        old.retries += 1;
        let Some(mut new) = found.into_iter().next().filter(|new| new.failure.is_none()) else {
            return Ok(());
        };
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
    fn biased(
        &self,
        terms: &[(&Term, Range<usize>)],
        bias: f32,
    ) -> Result<SearchOptions, TranslateError> {
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

    /// The tokens of `translation` before the word that attends most to the term at `range` of the sentence, and then the
    /// term. `None` if they would not fit.
    fn prefix_with(
        &mut self,
        unit: &Unit<'_>,
        translation: &Translation,
        term: &Term,
        range: Range<usize>,
    ) -> Result<Option<Vec<u32>>, TranslateError> {
        let direction = self.options.direction_from(unit.source);
        let (encoded, source) = self.tokenizer.encode_text_with_spans(unit.text, &direction)?;
        let tokens = self.tokenizer.encode_target_text(&term.target)?;
        let (text, spans) = self.tokenizer.decode_with_spans(&translation.tokens);
        let job =
            Job { source: &encoded.ids, prefix: &encoded.prefix, target: &translation.tokens };
        let columns = encoded.ids.len();
        let mut best = (0.0, 0);
        self.inspect(&[job], &mut |_, found| {
            let rows = found.weights.chunks_exact(columns.max(1)).zip(&spans).enumerate();
            for (i, (row, span)) in rows.filter(|(_, (_, span))| !span.is_empty()) {
                let of_term = row.iter().zip(&source).filter(|(_, span)| {
                    !span.is_empty() && span.start < range.end && range.start < span.end
                });
                let weight: f32 = of_term.map(|(weight, _)| weight).sum();
                // The first of the tokens that attend alike.
                if weight > best.0 && text.get(span.clone()).is_some() {
                    best = (weight, i);
                }
            }
            Ok(())
        })?;
        // Back to the begin of its word.
        let begins = |i: usize| {
            let start = spans.get(i).map_or(0, |span| span.start);
            text.get(..start).is_none_or(|before| before.is_empty() || before.ends_with(' '))
        };
        let mut at = best.1;
        while at > 0 && !begins(at) {
            at -= 1;
        }
        let mut force = translation.tokens.get(..at).unwrap_or_default().to_vec();
        if let Some(first) = encoded.forced_bos.filter(|_| force.is_empty()) {
            force.push(first);
        }
        force.extend(tokens);
        Ok(self.has_room(encoded.prefix.len() + force.len()).then_some(force))
    }
}
