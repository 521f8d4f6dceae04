//! Translates a window of sentences: longest first, so that no slot is left over with a long sentence at the end.

use super::error::TranslateError;
use super::model_and_tokenizer::Translator;
use super::translation::{Alternative, Failure, Translation};
use crate::{Direction, Encoded};
use simdformer::config::Side;
use simdformer::search::{Finish, Hooks};
use simdformer::{Event, Source};

/// A sentence as the model gets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit<'u> {
    pub(super) text: &'u str,
    /// The random stream.
    pub(super) stream: u64,
}

/// Called with each event of the session, before the translator uses it.
type OnEvent<'e> = &'e mut dyn FnMut(&Event<'_>);

impl Translator<'_> {
    /// Translates `units`, in their order.
    pub(super) fn translate_units(
        &mut self,
        units: &[Unit<'_>],
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<Vec<Translation>, TranslateError> {
        let mut translations = vec![Translation::default(); units.len()];
        let mut encoded: Vec<(usize, Encoded)> = Vec::with_capacity(units.len());
        let direction = self.options.direction();
        for (i, (unit, translation)) in units.iter().zip(&mut translations).enumerate() {
            if let Some(ids) = self.encode(unit.text, &direction, translation)? {
                encoded.push((i, ids));
            }
        }
        encoded.sort_by_key(|(_, one)| core::cmp::Reverse(one.ids.len()));
        if let Some((_, longest)) = encoded.first() {
            let longest = longest.ids.len();
            self.generate(units, &encoded, longest, &mut translations, hooks, on_event)?;
        }
        self.count(&translations);
        Ok(translations)
    }

    /// The ids of a sentence; `None` if the model is not run, and then `translation` says why.
    fn encode(
        &self,
        text: &str,
        direction: &Direction<'_>,
        translation: &mut Translation,
    ) -> Result<Option<Encoded>, TranslateError> {
        let positions = self.model.config().max_positions(Side::Encoder).unwrap_or(usize::MAX);
        let one = self.tokenizer.encode(text, direction)?;
        translation.source_tokens = one.tokens;
        if one.blank {
            return Ok(None);
        }
        let beyond = one.ids.len() > positions;
        translation.truncated = one.truncated;
        if beyond || (one.truncated && !self.options.truncate) {
            let most = one.ids.len().min(positions);
            translation.truncated = false;
            translation.failure = Some(Failure::TooLong { tokens: one.tokens, most });
            return Ok(None);
        }
        Ok(Some(one))
    }

    /// Runs the search for `encoded`, and writes what it finds to `translations`.
    fn generate(
        &mut self,
        units: &[Unit<'_>],
        encoded: &[(usize, Encoded)],
        longest: usize,
        translations: &mut [Translation],
        hooks: &mut Hooks<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<(), TranslateError> {
        let sources: Vec<Source<'_>> = encoded
            .iter()
            .map(|(i, one)| Source {
                prefix: one.prefix.get(1..).unwrap_or_default(),
                forced_bos: one.forced_bos,
                stream: units[*i].stream,
                ..Source::new(&one.ids)
            })
            .collect();
        let search = self.search.clone();
        let (tokenizer, mut on_done) = (self.tokenizer.clone(), self.on_done.take());
        let mut finished = self.report.sentences;
        let session = self.session(sources.len(), longest)?;
        let done = session.generate(&sources, &search, hooks, &mut |event| {
            on_event(&event);
            match event {
                Event::Token { source, token } if token.sequence == 0 => {
                    translations[encoded[source].0].token_scores.extend(token.log_probability);
                }
                Event::Done(done) => {
                    finished += 1;
                    if let Some(on_done) = &mut on_done {
                        on_done(finished);
                    }
                    let translation = &mut translations[encoded[done.source].0];
                    translation.finish = Some(done.finish);
                    if done.finish == Finish::NotFinite {
                        // Tokens that were chosen before the error are incomplete output.
                        translation.token_scores.clear();
                        translation.failure = Some(Failure::NotFinite);
                        return;
                    }
                    let mut sequences = done.hypotheses().map(|hypothesis| Alternative {
                        text: tokenizer.decode(hypothesis.tokens),
                        tokens: hypothesis.tokens.to_vec(),
                        score: hypothesis.score,
                    });
                    if let Some(best) = sequences.next() {
                        translation.text = best.text;
                        translation.tokens = best.tokens;
                        translation.score = best.score;
                    }
                    translation.alternatives = sequences.collect();
                }
                _ => (),
            }
        });
        self.on_done = on_done;
        done?;
        Ok(())
    }

    fn count(&mut self, translations: &[Translation]) {
        let report = &mut self.report;
        for translation in translations {
            report.sentences += 1;
            report.truncated += u64::from(translation.truncated);
            report.failed += u64::from(translation.failure.is_some());
            if translation.finish.is_some() {
                report.source_tokens += translation.source_tokens as u64;
                report.target_tokens += translation.tokens.len() as u64;
            }
        }
    }
}
