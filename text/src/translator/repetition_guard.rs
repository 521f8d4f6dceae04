//! Runaway repetition: a translation that repeats itself is made again under rules against it.

use super::model_and_tokenizer::Translator;
use super::translation::{Note, SentenceCounts, Translation};
use super::window::Unit;
use crate::Repetition;
use crate::error::Error;
use simdformer::search::SearchOptions;

/// The rules of the attempts: `no_repeat_ngram` and the least `repetition_penalty`. Each is stronger than the one before:
/// a translation that had to be made again should stay close to the first one.
const ATTEMPTS: [(usize, f64); 3] = [(6, 1.0), (4, 1.1), (3, 1.3)];

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
        if translation.failure.is_some() || Repetition::of(source_tokens, &target).is_none() {
            return Ok(false);
        }
        let direction = self.options.direction_from(unit.source);
        let source = ids(&self.tokenizer.encode_text(unit.text, &direction)?.ids);
        Ok(Repetition::of(source_tokens, &source).is_none())
    }
}
