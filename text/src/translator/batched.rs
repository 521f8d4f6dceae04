//! A translator whose sentences join the batch that another thread decodes.

use super::model_and_tokenizer::Translator;
use super::options::TranslateOptions;
use super::translation::{Alternative, Failure, Translation};
use super::window::{Call, write_found};
use crate::error::Error;
use simdformer::search::Finish;
use simdformer::{Event, Generation, Request, RequestHandle};
use std::sync::{Arc, MutexGuard, PoisonError};

impl Translator {
    /// Whether later calls of this translator, and of clones that are made later, put their sentences into the batch that
    /// [`Engine::run`](simdformer::Engine::run) decodes on another thread (no). So a service translates texts and documents of
    /// many calls together: sentences join the batch before its next step, and have the translations that they have alone. A
    /// call waits until the engine is run; it fails with [`Error::Closed`] when it is closed.
    ///
    /// ```
    /// use simdformer_text::translator::Translator;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fr-en");
    /// # if !std::path::Path::new(directory).exists() { return Ok(()) } // not in the published package
    /// let mut translator = Translator::open(directory)?;
    /// translator.set_batched(true);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| translator.engine().run());
    ///     let calls = ["je suis étudiant", "il fait froid"].map(|text| {
    ///         let translator = translator.clone();
    ///         scope.spawn(move || translator.translate(text))
    ///     });
    ///     let texts = calls.map(|call| call.join().map(Result::ok));
    ///     translator.engine().close();
    ///     assert!(matches!(&texts[0], Ok(Some(text)) if text == "i am a student"));
    /// });
    /// # Ok(()) }
    /// ```
    ///
    /// What is computed beside a search, such as an alignment, has one more session, of which calls wait for each other.
    pub fn set_batched(&mut self, batched: bool) {
        self.batched = batched.then(Arc::default);
    }

    /// A translator with other options that shares the weights and the sessions with this one; its sentences join the same
    /// batch, and it waits for the same session beside it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_options(&self, options: TranslateOptions) -> Result<Self, Error> {
        let mut other = Self::new(self.engine.clone(), Arc::clone(&self.tokenizer), options)?;
        other.batched.clone_from(&self.batched);
        Ok(other)
    }

    /// The right to a session beside that of the batch.
    pub(super) fn beside_batch(&self) -> Option<MutexGuard<'_, ()>> {
        self.batched.as_ref().map(|one| one.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs the searches for the encoded units in the batch, and writes what they find to `translations`.
    pub(super) fn generate_in_batch(
        &self,
        call: &Call<'_>,
        translations: &mut [Translation],
        mut on_event: Option<&mut dyn FnMut(&Event<'_>)>,
    ) -> Result<(), Error> {
        let Call { units, encoded, search } = *call;
        // Dropping a handle cancels its request: an error ends those of the whole call.
        let mut handles: Vec<(usize, RequestHandle)> = Vec::with_capacity(encoded.len());
        for (index, one) in encoded {
            self.check_cancel()?;
            let unit = &units[*index];
            let request = Request {
                tokens: one.ids.clone(),
                prefix: [one.prefix.get(1..).unwrap_or_default(), unit.force].concat(),
                options: Some(unit.options.unwrap_or(search).clone()),
                stream: unit.stream,
                forced_bos: one.forced_bos.filter(|_| unit.force.is_empty()),
            };
            match self.engine.submit(request) {
                Ok(handle) => handles.push((*index, handle)),
                Err(error) => match Failure::of_refused(&error) {
                    Some(failure) => translations[*index].failure = Some(failure),
                    None => return Err(closed_or(error)),
                },
            }
        }
        for (source, (index, mut handle)) in handles.into_iter().enumerate() {
            let translation = &mut translations[index];
            while let Some(token) = handle.next_token() {
                if let Some(on_event) = &mut on_event {
                    on_event(&Event::Token { source, token });
                }
                if token.sequence == 0 {
                    translation.token_scores.extend(token.log_probability);
                }
            }
            let found = match handle.wait() {
                // What was stopped before it had a slot has no hypothesis.
                Ok(found) => {
                    self.translation_of(found, units[index].force).ok_or(Error::Cancelled)?
                }
                Err(simdformer::Error::NotFinite { .. }) => Translation {
                    finish: Some(Finish::NotFinite),
                    failure: Some(Failure::NotFinite),
                    ..Translation::default()
                },
                Err(error) => return Err(closed_or(error)),
            };
            self.check_cancel()?;
            write_found(found, translation);
            self.on_done.add_one();
        }
        Ok(())
    }

    /// What a search has found; `None` without a hypothesis. `force` are the first tokens of the translation.
    fn translation_of(&self, found: Generation, force: &[u32]) -> Option<Translation> {
        let mut sequences = found.hypotheses.into_iter().map(|(tokens, score)| {
            let tokens = [force, &tokens].concat();
            Alternative { text: self.tokenizer.decode(&tokens), tokens, score }
        });
        let Alternative { text, tokens, score } = sequences.next()?;
        let alternatives = sequences.collect();
        let finish = Some(found.finish);
        Some(Translation { text, tokens, score, finish, alternatives, ..Translation::default() })
    }
}

/// An engine that was closed decodes nothing more.
fn closed_or(error: simdformer::Error) -> Error {
    match error {
        simdformer::Error::Closed => Error::Closed,
        error => error.into(),
    }
}
