//! Sentences that are translated as those of a text, with symbols copied to their places and capitals restored, and whose first
//! search the caller may run: in the batch of a batcher, or with hooks.

use super::marked_sentences::MarkedSentence;
use super::model_and_tokenizer::Translator;
use super::translation::Translation;
use super::unknown_words::PreparedSentence;
use super::window::{Encoding, Reads, Unit, encode_unit};
use crate::error::Error;
use simdformer_documents::marked_text::MarkedText;

/// Such a sentence, before its first search.
#[derive(Debug)]
pub(super) struct Begun {
    text: String,
    /// Without white space at its ends.
    marked: MarkedText,
    language: Option<String>,
    stream: u64,
    prepared: PreparedSentence,
    /// What the first search reads.
    first: MarkedText,
}

impl Begun {
    /// What the first search reads; `None` if the sentence is copied.
    pub(super) fn unit(&self) -> Option<Unit<'_>> {
        let unit = Unit {
            text: self.first.text.trim(),
            source: self.language.as_deref(),
            stream: self.stream,
            force: &[],
            reads: Reads::AsSpelled,
            options: None,
        };
        (!self.prepared.without_known_words).then_some(unit)
    }

    fn sentence(&self) -> MarkedSentence<'_> {
        MarkedSentence {
            marked: &self.marked,
            language: self.language.as_deref(),
            stream: self.stream,
            of_text: false,
        }
    }
}

impl Translator {
    /// What the model reads of a sentence in its first search: with the spellings that its vocabulary has, without the symbols
    /// that are copied. `None` if the sentence is copied, because it has no letters, or no word that the model knows.
    ///
    /// # Errors
    /// The tokenizer rejects the text (of gigabytes).
    pub fn first_reading(&self, sentence: &str) -> Result<Option<String>, Error> {
        let language = self.language_of(sentence).0;
        let source = language.as_deref();
        let reads = Reads::WholeSentence;
        let unit = Unit { text: sentence, source, stream: 0, force: &[], reads, options: None };
        let (options, mut found) = (&self.options, Translation::default());
        let target = options.target.as_deref();
        Ok(match encode_unit(self.model(), &self.tokenizer, options, target, &unit, &mut found)? {
            Encoding::Marked => self.begin_sentence(&unit)?.unit().map(|unit| unit.text.to_owned()),
            Encoding::Settled if found.failure.is_none() => None,
            Encoding::Settled | Encoding::Ids(_) => Some(sentence.to_owned()),
        })
    }

    /// Prepares a sentence.
    pub(super) fn begin_sentence(&self, unit: &Unit<'_>) -> Result<Begun, Error> {
        let marked = MarkedText::plain(unit.text.trim());
        let prepared = self.prepare_sentence(&marked, unit.source)?;
        let (text, language) = (unit.text.to_owned(), unit.source.map(str::to_owned));
        let first = MarkedText::default();
        let mut begun = Begun { text, marked, language, stream: unit.stream, prepared, first };
        if !begun.prepared.without_known_words {
            begun.first = self.first_text(&begun.sentence(), &begun.prepared)?;
        }
        Ok(begun)
    }

    /// Translates sentences that were prepared, in their order. `found` is what the first search finds for each that has a
    /// [unit](Begun::unit), if it was run.
    pub(super) fn finish_sentences(
        &self,
        begun: &[Begun],
        found: Option<Vec<Translation>>,
    ) -> Result<Vec<Translation>, Error> {
        let sentences: Vec<MarkedSentence<'_>> = begun.iter().map(Begun::sentence).collect();
        let prepared: Vec<&PreparedSentence> = begun.iter().map(|one| &one.prepared).collect();
        let mut all = Vec::with_capacity(begun.len());
        for (begun, (_, mut one)) in
            begun.iter().zip(self.translate_read(&sentences, &prepared, found)?)
        {
            if one.finish.is_none() && one.failure.is_none() {
                // What is copied is as it was written.
                one.text.clone_from(&begun.text);
            }
            all.push(one);
        }
        Ok(all)
    }
}
