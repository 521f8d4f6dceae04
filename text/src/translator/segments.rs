//! Texts of several sentences, with marks: divided, translated, and put together again.

use super::error::TranslateError;
use super::marked_sentences::{MarkedSentence, has_words};
use super::model_and_tokenizer::Translator;
use super::translation::{Note, TextTranslation, TranslatedSentence};
use crate::marked_text::{MarkKind, MarkedText, placeholders};
use crate::sentences::SentenceSplitter;
use std::ops::Range;

/// A text that is divided into sentences and what stands between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Prepared {
    /// Consecutive parts; together they are the text.
    parts: Vec<Part>,
    /// The model's code of the language that was detected.
    language: Option<String>,
}

#[derive(Clone, Debug)]
struct Part {
    marked: MarkedText,
    range: Range<usize>,
    /// Whether the model reads it; otherwise it is copied.
    translated: bool,
    /// Whether it is a part of a sentence that is too long.
    cut: bool,
}

impl Prepared {
    /// The number of sentences that the model will read.
    pub(super) fn sentences(&self) -> usize {
        self.parts.iter().filter(|part| part.translated).count()
    }
}

impl Translator<'_> {
    /// Divides a text into sentences, and sentences that are too long into parts.
    pub(super) fn prepare(&mut self, text: &MarkedText) -> Result<Prepared, TranslateError> {
        self.report.texts += 1;
        let marked = placeholders(text, &self.options.keep);
        let keeps = marked.marks.iter().filter(|mark| matches!(mark.kind, MarkKind::Keep { .. }));
        self.report.kept += keeps.count() as u64;
        let (language, copied) = self.language_of(&marked.text);
        self.report.copied += u64::from(copied);
        let known = language.as_deref().or(self.options.source.as_deref());
        let splitter = SentenceSplitter::new(known);
        let sentences = splitter.split(&marked.text);
        let mut parts = Vec::new();
        let mut push = |range: Range<usize>, translated, cut| {
            if !range.is_empty() {
                parts.push(Part { marked: marked.slice(range.clone()), range, translated, cut });
            }
        };
        let mut at = 0;
        for sentence in marked.whole_keeps(&sentences) {
            self.check_cancel()?;
            push(at..sentence.start, false, false);
            at = sentence.end;
            let slice = marked.slice(sentence.clone());
            if copied || !has_words(&slice) {
                push(sentence, false, false);
                continue;
            }
            let most = self.longest_source();
            // A token is hardly ever less than a byte, and most sentences are far shorter than the limit.
            if slice.text.len() + 8 <= most || self.count_tokens(&slice.text, known)? <= most {
                push(sentence, true, false);
                continue;
            }
            self.report.cut += 1;
            let mut failed = Ok(());
            let mut fits = |part: &str| match self.count_tokens(part, known) {
                Ok(tokens) => tokens <= most,
                Err(error) => {
                    failed = Err(error);
                    true
                }
            };
            let cuts = slice.whole_keeps(&splitter.cut(&slice.text, &mut fits));
            failed?;
            let mut before = sentence.start;
            for part in cuts {
                let part = sentence.start + part.start..sentence.start + part.end;
                push(before..part.start, false, false);
                before = part.end;
                let words = has_words(&marked.slice(part.clone()));
                push(part, words, true);
            }
            push(before..sentence.end, false, false);
        }
        push(at..marked.text.len(), false, false);
        Ok(Prepared { parts, language })
    }

    /// The number of tokens of a sentence.
    fn count_tokens(&self, text: &str, language: Option<&str>) -> Result<usize, TranslateError> {
        let direction = self.options.direction_from(language);
        Ok(self.tokenizer.encode(text, &direction)?.tokens)
    }

    /// Translates texts that were divided; the results are in their order.
    pub(super) fn translate_prepared(
        &mut self,
        texts: &[Prepared],
    ) -> Result<Vec<TextTranslation>, TranslateError> {
        let (mut sentences, first) = (Vec::new(), self.next_stream);
        for text in texts {
            for part in text.parts.iter().filter(|part| part.translated) {
                sentences.push(MarkedSentence {
                    marked: &part.marked,
                    language: text.language.as_deref(),
                    stream: self.next_stream,
                });
                self.next_stream = self.next_stream.wrapping_add(1);
            }
        }
        let translated = self.translate_marked(&sentences);
        if translated.is_err() {
            // Nothing is emitted, so these sentences come again.
            self.next_stream = first;
        }
        let mut translated = translated?.into_iter();
        let mut results = Vec::with_capacity(texts.len());
        for text in texts {
            let mut joined = Vec::with_capacity(text.parts.len());
            let mut sentences = Vec::new();
            for part in &text.parts {
                let Some((target, mut translation)) =
                    part.translated.then(|| translated.next()).flatten()
                else {
                    joined.push(part.marked.clone());
                    continue;
                };
                if part.cut {
                    translation.notes.push(Note::Cut);
                }
                joined.push(target);
                let (range, source) = (part.range.clone(), part.marked.text.clone());
                sentences.push(TranslatedSentence { range, source, translation });
            }
            let target = MarkedText::join(&joined);
            results.push(TextTranslation { target, sentences, language: text.language.clone() });
        }
        Ok(results)
    }
}
