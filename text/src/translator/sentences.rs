//! Sentences in, translations out: all at once, as a stream, or one with the events of its search.

use super::model_and_tokenizer::Translator;
use super::translation::Translation;
use super::window::{Observed, Reads, Unit};
use crate::error::Error;
use simdformer::Event;
use simdformer::search::Hooks;

/// The sentences of a window for each slot. At the end of a window slots are empty: with this many sentences, sorted by
/// length, one step of a hundred is not full.
pub(super) const SENTENCES_PER_SLOT: usize = 32;
/// The bytes of a window, of which the last sentence may exceed them.
const BYTES: usize = 8 << 20;

impl Translator {
    /// Translates `sentences`; the results are in the same order. Each string is one sentence, whatever is in it; one
    /// without a letter, or without a word that the model knows, is copied. Symbols that the model does not know are copied to
    /// their places, and a sentence in capitals may be read in small letters, as in a text; placeholders are not looked for, and
    /// there are no terms and no second attempts. [`Translation::result`] is the text, or why there is none.
    ///
    /// # Errors
    /// The tokenizer rejects a text (of gigabytes); there is no memory.
    pub fn translate_sentences(&self, sentences: &[&str]) -> Result<Vec<Translation>, Error> {
        let mut translations = Vec::with_capacity(sentences.len());
        let sentences = sentences.iter().map(Ok::<_, Error>);
        self.stream_sentences(sentences, |translation| {
            translations.push(translation);
            Ok(())
        })?;
        Ok(translations)
    }

    /// Translates the sentences of an iterator, and calls `emit` once for each, in their order.
    ///
    /// Memory does not grow with their number: a window of them (32 for each slot of each session, at most 8 MB and a sentence) is read,
    /// translated and emitted before the next is read. An error of the iterator ends the call, after the sentences
    /// before it were emitted.
    ///
    /// # Errors
    /// As [`translate_sentences`](Self::translate_sentences); the first error of the iterator or of `emit`.
    pub fn stream_sentences<S: AsRef<str>, E: From<Error>>(
        &self,
        sentences: impl IntoIterator<Item = Result<S, E>>,
        mut emit: impl FnMut(Translation) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut sentences = sentences.into_iter();
        let most = self.engine.slots().saturating_mul(SENTENCES_PER_SLOT);
        let mut window: Vec<S> = Vec::new();
        loop {
            let mut end = None;
            let mut bytes = 0;
            while window.len() < most && bytes < BYTES && end.is_none() {
                match sentences.next() {
                    Some(Ok(sentence)) => {
                        bytes += sentence.as_ref().len();
                        window.push(sentence);
                    }
                    Some(Err(error)) => end = Some(Err(error)),
                    None => end = Some(Ok(())),
                }
            }
            let streams = self.take_streams(window.len());
            let languages: Vec<Option<String>> =
                window.iter().map(|text| self.language_of(text.as_ref()).0).collect();
            let units: Vec<Unit<'_>> = window
                .iter()
                .zip(&languages)
                .zip(streams.iter())
                .map(|((text, source), stream)| {
                    whole_sentence(text.as_ref(), source.as_deref(), stream)
                })
                .collect();
            let mut marked = Vec::new();
            let mut translations = self.run_sentences(&units, &self.search, None, &mut marked)?;
            let those: Vec<Unit<'_>> = marked.iter().map(|&i| units[i]).collect();
            let found = self.translate_as_marked(&those)?;
            let others = translations.iter().enumerate();
            self.count(
                others.filter(|(i, _)| marked.binary_search(i).is_err()).map(|(_, one)| one),
            );
            for (i, found) in marked.into_iter().zip(found) {
                translations[i] = found;
            }
            streams.keep();
            translations.into_iter().try_for_each(&mut emit)?;
            window.clear();
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Translates sentences as those of texts, in their order.
    fn translate_as_marked(&self, units: &[Unit<'_>]) -> Result<Vec<Translation>, Error> {
        if units.is_empty() {
            return Ok(Vec::new());
        }
        let mut begun = Vec::with_capacity(units.len());
        for unit in units {
            self.check_cancel()?;
            begun.push(self.begin_sentence(unit)?);
        }
        self.finish_sentences(&begun, None)
    }

    /// Translates one sentence as [`translate_sentences`](Self::translate_sentences) does, with the caller's `hooks`, and calls
    /// `on_event` with each event of its search: to explain it. The text may differ from that of the tokens: after the search
    /// symbols are put in their places and capitals restored, for which some sentences are searched again without hooks.
    ///
    /// # Errors
    /// As [`translate_sentences`](Self::translate_sentences); an error of the hooks.
    pub fn translate_observed(
        &self,
        sentence: &str,
        hooks: &mut Hooks<'_>,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Translation, Error> {
        let language = self.language_of(sentence).0;
        let streams = self.take_streams(1);
        let stream = streams.first();
        let unit = whole_sentence(sentence, language.as_deref(), stream);
        let observed: Observed<'_, '_> = (Some(&mut *hooks), &mut *on_event);
        let mut marked = Vec::new();
        let mut found = self.run_sentences(&[unit], &self.search, Some(observed), &mut marked)?;
        if marked.is_empty() {
            self.count(&found);
        } else {
            let begun = self.begin_sentence(&unit)?;
            let first = match begun.unit() {
                Some(unit) => {
                    self.run_units(&[unit], &self.search, Some((Some(hooks), on_event)))?
                }
                None => Vec::new(),
            };
            found = self.finish_sentences(&[begun], Some(first))?;
        }
        streams.keep();
        let Some(found) = found.pop() else { unreachable!("a sentence has a result") };
        Ok(found)
    }

    /// Translates one sentence as [`translate_sentences`](Self::translate_sentences) does, and calls `on_text` with the parts
    /// of its text while the model writes them. The parts together are [`Translation::text`], unless there is a
    /// [`failure`](Translation::failure). A beam search, and a sentence with symbols or in capitals, has one part at the end.
    ///
    /// # Errors
    /// As [`translate_sentences`](Self::translate_sentences).
    pub fn translate_streamed(
        &self,
        sentence: &str,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Translation, Error> {
        let language = self.language_of(sentence).0;
        let streams = self.take_streams(1);
        let stream = streams.first();
        let unit = whole_sentence(sentence, language.as_deref(), stream);
        let mut marked = Vec::new();
        let mut stream = self.tokenizer.stream();
        let mut on_event = |event: &Event<'_>| {
            if let Event::Token { token, .. } = event
                && token.sequence == 0
                && let Some(part) = stream.push(token.id)
            {
                on_text(part);
            }
        };
        let observed: Observed<'_, '_> = (None, &mut on_event);
        let mut found = self.run_sentences(&[unit], &self.search, Some(observed), &mut marked)?;
        let streamed = found.iter().any(|one| one.finish.is_some());
        let rest = stream.finish();
        if marked.is_empty() {
            self.count(&found);
        } else {
            found = self.translate_as_marked(&[unit])?;
        }
        streams.keep();
        let Some(found) = found.pop() else { unreachable!("a sentence has a result") };
        if found.failure.is_none() {
            let rest = if streamed { rest } else { &found.text };
            if !rest.is_empty() {
                on_text(rest);
            }
        }
        Ok(found)
    }
}

/// A sentence, whatever is in it.
fn whole_sentence<'u>(text: &'u str, source: Option<&'u str>, stream: u64) -> Unit<'u> {
    Unit { text, source, stream, force: &[], reads: Reads::WholeSentence, options: None }
}
