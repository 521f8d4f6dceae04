//! Translates a window of sentences: longest first, so that no slot is left over with a long sentence at the end.

use super::model_and_tokenizer::Translator;
use super::options::TranslateOptions;
use super::spellings::in_capitals;
use super::translation::{Alternative, Failure, Translation};
use super::unknown_words::pictures;
use crate::tokenize::Error as TokenizerError;
use crate::{Direction, Encoded, Error, Tokenizer};
use simdformer::config::Side;
use simdformer::search::{Finish, Hooks, SearchOptions};
use simdformer::{Event, Generated, Model, Source, Stop};
use simdformer_documents::marked_text::MarkedText;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A sentence as the model gets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit<'u> {
    pub(super) text: &'u str,
    /// The code of its language, if that is not the one of the options.
    pub(super) source: Option<&'u str>,
    /// The random stream.
    pub(super) stream: u64,
    /// The first tokens of the translation.
    pub(super) force: &'u [u32],
    pub(super) reads: Reads,
    /// The options of its search, if they are not those of the call.
    pub(super) options: Option<&'u SearchOptions>,
}

/// How the model reads a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// It is spelled as the model reads it.
    AsSpelled,
    /// If it has words that the vocabulary does not have, symbols that are copied, or is in capitals, it is translated as a
    /// sentence of a text.
    WholeSentence,
}

/// What a unit is for the model.
#[derive(Debug)]
pub(super) enum Encoding {
    Ids(Encoded),
    /// The model is not run, and the translation says why.
    Settled,
    /// It is translated as a sentence of a text: with symbols copied to their places, in small letters, or not at all.
    Marked,
}

/// The units of a call that the model reads.
#[derive(Clone, Copy)]
pub(super) struct Call<'c> {
    pub(super) units: &'c [Unit<'c>],
    /// The index of each, and its ids.
    pub(super) encoded: &'c [(usize, Encoded)],
    pub(super) search: &'c SearchOptions,
}

/// The hooks of a search in one session, and what is called with each of its events before the translator uses it. A search
/// without hooks may be one of a batch, of which there are only the tokens.
pub(super) type Observed<'o, 'h> = (Option<&'o mut Hooks<'h>>, &'o mut dyn FnMut(&Event<'_>));

/// Writes what was found for a unit to its translation.
pub(super) fn write_found(found: Translation, translation: &mut Translation) {
    // Tokens that were chosen before an error are incomplete output.
    let token_scores = match found.failure {
        Some(_) => Vec::new(),
        None => core::mem::take(&mut translation.token_scores),
    };
    let (source_tokens, truncated) = (translation.source_tokens, translation.truncated);
    *translation = Translation { token_scores, source_tokens, truncated, ..found };
}

/// The value of a mutex. After a panic in a callback, which reaches the caller, nothing reads the value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Translator {
    /// Translates `units` under `search`, or their own options, in their order and in one batch. Does not count them.
    pub(super) fn run_units(
        &self,
        units: &[Unit<'_>],
        search: &SearchOptions,
        observed: Option<Observed<'_, '_>>,
    ) -> Result<Vec<Translation>, Error> {
        self.run_sentences(units, search, observed, &mut Vec::new())
    }

    /// As [`run_units`](Self::run_units); appends the indices of those that are to be translated as sentences of a text to
    /// `marked`, and leaves them out.
    pub(super) fn run_sentences(
        &self,
        units: &[Unit<'_>],
        search: &SearchOptions,
        observed: Option<Observed<'_, '_>>,
        marked: &mut Vec<usize>,
    ) -> Result<Vec<Translation>, Error> {
        let mut translations = vec![Translation::default(); units.len()];
        let mut encoded: Vec<(usize, Encoded)> = Vec::with_capacity(units.len());
        for (i, (unit, translation)) in units.iter().zip(&mut translations).enumerate() {
            self.check_cancel()?;
            let (options, target) = (&self.options, self.options.target.as_deref());
            let encoding =
                encode_unit(self.model(), &self.tokenizer, options, target, unit, translation)?;
            match encoding {
                Encoding::Ids(ids) => encoded.push((i, ids)),
                Encoding::Settled => (),
                Encoding::Marked => marked.push(i),
            }
        }
        encoded.sort_by_key(|(_, one)| core::cmp::Reverse(one.ids.len()));
        if !encoded.is_empty() {
            let call = Call { units, encoded: &encoded, search };
            self.generate(&call, &mut translations, observed)?;
        }
        Ok(translations)
    }

    /// Runs the search for the encoded units, and writes what it finds to `translations`.
    fn generate(
        &self,
        call: &Call<'_>,
        translations: &mut [Translation],
        observed: Option<Observed<'_, '_>>,
    ) -> Result<(), Error> {
        if self.batched.is_some() && observed.as_ref().is_none_or(|(hooks, _)| hooks.is_none()) {
            return self.generate_in_batch(
                call,
                translations,
                observed.map(|(_, on_event)| on_event),
            );
        }
        let Call { units, encoded, search } = *call;
        let given = |(i, one): &(usize, Encoded)| {
            [one.prefix.get(1..).unwrap_or_default(), units[*i].force].concat()
        };
        let prefixes: Vec<Vec<u32>> = encoded.iter().map(given).collect();
        let sources: Vec<Source<'_>> = encoded
            .iter()
            .zip(&prefixes)
            .map(|((i, one), prefix)| Source {
                prefix,
                // What is forced begins with it.
                forced_bos: one.forced_bos.filter(|_| units[*i].force.is_empty()),
                stream: units[*i].stream,
                options: units[*i].options,
                ..Source::new(&one.ids)
            })
            .collect();
        let tokenizer = &self.tokenizer;
        let results = Mutex::new(translations);
        // Sessions call this at the same time. Texts are decoded outside of the lock.
        let take = |event: &Event<'_>| {
            match event {
                Event::Token { source, token } if token.sequence == 0 => {
                    let score = token.log_probability;
                    let index = encoded[*source].0;
                    lock(&results)[index].token_scores.extend(score);
                }
                Event::Done(done) => {
                    let index = encoded[done.source].0;
                    let mut found = Translation::default();
                    finish_translation(&mut found, done, units[index].force, tokenizer);
                    write_found(found, &mut lock(&results)[index]);
                    self.on_done.add_one();
                }
                // Any other error ends the call.
                Event::Refused { source, error } => {
                    if let Some(failure) = Failure::of_refused(error) {
                        let index = encoded[*source].0;
                        lock(&results)[index].failure = Some(failure);
                        return ControlFlow::Break(Stop::Source);
                    }
                }
                _ => (),
            }
            ControlFlow::Continue(())
        };
        let engine = &self.engine;
        match observed {
            None => drop(engine.stream(&sources, search, &|event: Event<'_>| take(&event))?),
            Some((hooks, on_event)) => {
                let mut none = Hooks::default();
                let hooks = hooks.unwrap_or(&mut none);
                let _beside = self.beside_batch();
                engine.with_session_for(&sources, search, |session, sources, search| {
                    session.generate(sources, search, hooks, &mut |event| {
                        on_event(&event);
                        take(&event)
                    })
                })??;
            }
        }
        Ok(())
    }

    /// Adds translations to the report.
    pub(super) fn count<'c>(&self, translations: impl IntoIterator<Item = &'c Translation>) {
        self.add_to_report(|report| translations.into_iter().for_each(|one| report.add(one)));
    }
}

/// The ids of a sentence whose translation is in language `target`, if the model is run.
pub(super) fn encode_unit(
    model: &Model,
    tokenizer: &Tokenizer,
    options: &TranslateOptions,
    target: Option<&str>,
    unit: &Unit<'_>,
    translation: &mut Translation,
) -> Result<Encoding, Error> {
    let positions = model.config().max_positions(Side::Encoder).unwrap_or(usize::MAX);
    let direction = Direction { target, ..options.direction_from(unit.source) };
    let one = match tokenizer.encode_text(unit.text, &direction) {
        Ok(one) => one,
        Err(TokenizerError::InvalidInput { .. }) => {
            translation.failure = Some(Failure::NotSegmented);
            return Ok(Encoding::Settled);
        }
        Err(error) => return Err(error.into()),
    };
    translation.source_tokens = one.tokens;
    if one.blank || !unit.text.chars().any(char::is_alphabetic) {
        // It is the same in every language, and a model would make something up.
        unit.text.clone_into(&mut translation.text);
        return Ok(Encoding::Settled);
    }
    let marked = || {
        one.ids.iter().any(|&id| tokenizer.is_unknown(id))
            || options.symbols && !pictures(unit.text).is_empty()
            || options.capitals
                && !unit.text.contains(char::is_lowercase)
                && in_capitals(&MarkedText::plain(unit.text))
    };
    if unit.reads == Reads::WholeSentence && marked() {
        return Ok(Encoding::Marked);
    }
    let beyond = one.ids.len() > positions;
    translation.truncated = one.truncated;
    if beyond || (one.truncated && !options.truncate) {
        let most = one.ids.len().min(positions);
        translation.truncated = false;
        translation.failure = Some(Failure::TooLong { tokens: one.tokens, most });
        return Ok(Encoding::Settled);
    }
    Ok(Encoding::Ids(one))
}

/// Writes what the search found. `force` are the first tokens of the translation.
pub(super) fn finish_translation(
    translation: &mut Translation,
    done: &Generated<'_>,
    force: &[u32],
    tokenizer: &Tokenizer,
) {
    translation.finish = Some(done.finish);
    if done.finish == Finish::NotFinite {
        // Tokens that were chosen before the error are incomplete output.
        translation.token_scores.clear();
        translation.failure = Some(Failure::NotFinite);
        return;
    }
    let mut sequences = done.hypotheses().map(|hypothesis| {
        let tokens = [force, hypothesis.tokens].concat();
        let text = tokenizer.decode(&tokens);
        Alternative { text, tokens, score: hypothesis.score }
    });
    if let Some(best) = sequences.next() {
        translation.text = best.text;
        translation.tokens = best.tokens;
        translation.score = best.score;
    }
    translation.alternatives = sequences.collect();
}
