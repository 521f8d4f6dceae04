//! Texts in, translations out, a window at a time.

use super::model_and_tokenizer::Translator;
use super::segments::Prepared;
use super::translation::TextTranslation;
use crate::error::Error;
use simdformer_documents::marked_text::MarkedText;

/// The bytes of a window of texts, of which the last one may exceed them.
const BYTES: usize = 4 << 20;
/// The texts of a window for each slot, if hardly any has a sentence.
const TEXTS_PER_SLOT: usize = 256;

/// How much a window holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    texts: usize,
    sentences: usize,
    pub(super) bytes: usize,
}

impl Load {
    pub(super) fn add(&mut self, text: &str, prepared: &Prepared) {
        self.texts += 1;
        self.sentences += prepared.sentences();
        self.bytes += text.len();
    }

    pub(super) fn is_full(&self, slots: usize) -> bool {
        self.sentences >= slots.saturating_mul(super::sentences::SENTENCES_PER_SLOT)
            || self.texts >= slots.saturating_mul(TEXTS_PER_SLOT)
            || self.bytes >= BYTES
    }
}

impl Translator {
    /// Translates texts of any number of sentences; the results are in their order. What stands between the sentences is
    /// copied: spaces, line breaks, and lines without a letter. A sentence without a translation is copied, too:
    /// [`TextTranslation::failure`] says so.
    ///
    /// # Errors
    /// As [`translate_sentences`](Self::translate_sentences).
    pub fn translate_texts(&self, texts: &[&str]) -> Result<Vec<TextTranslation>, Error> {
        let mut translations = Vec::with_capacity(texts.len());
        self.stream_texts(texts.iter().map(Ok::<_, Error>), |translation| {
            translations.push(translation);
            Ok(())
        })?;
        Ok(translations)
    }

    /// Translates a text of any number of sentences: [`translate_texts`](Self::translate_texts) with one text, of which only
    /// the translation is wanted.
    ///
    /// # Errors
    /// [`Error::FailedSentence`] for the first sentence without a translation; as
    /// [`translate_sentences`](Self::translate_sentences).
    pub fn translate(&self, text: &str) -> Result<String, Error> {
        let mut translated = String::new();
        self.stream_texts([Ok::<_, Error>(text)], |found| {
            if let Some((sentence, one, failure)) = found.failure() {
                let source = one.source.clone();
                return Err(Error::FailedSentence { index: 0, sentence, source, failure });
            }
            translated = found.target.text;
            Ok(())
        })?;
        Ok(translated)
    }

    /// Translates the texts of an iterator, and calls `emit` once for each, in their order. A window of them is read,
    /// translated and emitted before the next is read, as in [`stream_sentences`](Self::stream_sentences).
    ///
    /// # Errors
    /// As [`translate_sentences`](Self::translate_sentences); the first error of the iterator or of `emit`.
    pub fn stream_texts<S: AsRef<str>, E: From<Error>>(
        &self,
        texts: impl IntoIterator<Item = Result<S, E>>,
        emit: impl FnMut(TextTranslation) -> Result<(), E>,
    ) -> Result<(), E> {
        let marked = texts.into_iter().map(|text| {
            text.map(|text| MarkedText { text: text.as_ref().to_owned(), marks: Vec::new() })
        });
        self.stream_marked(marked, emit)
    }

    /// As [`stream_texts`](Self::stream_texts), for texts with marks. The marks of a result have ranges in the
    /// translation.
    ///
    /// # Errors
    /// As [`stream_texts`](Self::stream_texts).
    pub fn stream_marked<E: From<Error>>(
        &self,
        texts: impl IntoIterator<Item = Result<MarkedText, E>>,
        mut emit: impl FnMut(TextTranslation) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut texts = texts.into_iter();
        loop {
            let (mut window, mut load, mut end) = (Vec::new(), Load::default(), None);
            while end.is_none() && !load.is_full(self.engine.slots()) {
                match texts.next() {
                    Some(Ok(text)) => {
                        let prepared = self.prepare(&text)?;
                        load.add(&text.text, &prepared);
                        window.push(prepared);
                    }
                    Some(Err(error)) => end = Some(Err(error)),
                    None => end = Some(Ok(())),
                }
            }
            let translated = self.translate_prepared(&window)?;
            translated.into_iter().try_for_each(|one| emit(one.text))?;
            if let Some(end) = end {
                return end;
            }
        }
    }
}
