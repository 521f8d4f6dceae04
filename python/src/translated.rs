//! What a call with texts found, in the order of the texts.

use crate::errors::{Failure, Place};
use crate::generate::{REFUSED, code};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use simdformer::search::Finish;
use simdformer_text::translator::{Failure as TextFailure, TextTranslation, Translation};

/// The translations of the texts of a call.
#[derive(Debug, Default)]
pub(crate) struct Translated {
    texts: Vec<String>,
    errors: Vec<(usize, Failure)>,
    /// Why each text ended: a number of `simdformer.Finish`.
    finish: Vec<u8>,
    /// The sum of the scores of the sentences of each text.
    scores: Vec<f32>,
    /// Whether only the first tokens of a sentence of it were translated.
    truncated: Vec<bool>,
    /// What is to be known about each text.
    notes: Vec<Vec<String>>,
}

/// The texts, the index and the exception of each failure, and for each text why it ended, its score, whether a sentence of
/// it was cut, and its notes.
pub(crate) type PyTranslated<'py> = (
    Vec<String>,
    Vec<(usize, Bound<'py, PyAny>)>,
    Bound<'py, PyArray1<u8>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<bool>>,
    Vec<Vec<String>>,
);

/// The words of a sentence that the model does not know, and what was done beside its translation.
pub(crate) fn notes_of(one: &Translation) -> impl Iterator<Item = String> {
    let words = one.unknown.iter().map(|word| format!("the model does not know {word}"));
    words.chain(one.notes.iter().map(ToString::to_string))
}

/// The number of `simdformer.Finish` of a text; a text that the model did not read is complete.
pub(crate) fn finish_code(finish: Option<Finish>, failure: Option<TextFailure>) -> u8 {
    match failure {
        None => code(finish.unwrap_or(Finish::End)),
        Some(TextFailure::NotFinite) => code(Finish::NotFinite),
        Some(_) => REFUSED,
    }
}

impl Translated {
    /// Adds a text that is one sentence.
    pub(crate) fn add_sentence(&mut self, one: Translation) {
        let index = self.texts.len();
        if let Some(failure) = one.failure {
            let place = Place { text: Some(index), sentence: None };
            self.errors.push((index, Failure::sentence(failure, place)));
        }
        self.finish.push(finish_code(one.finish, one.failure));
        // The model did not read what has no letters.
        let copied = one.finish.is_none() && one.failure.is_none();
        self.scores.push(if copied { 0.0 } else { one.score });
        self.truncated.push(one.truncated);
        self.notes.push(notes_of(&one).collect());
        self.texts.push(one.text);
    }

    /// Adds a text of any number of sentences, with its first failure.
    pub(crate) fn add_text(&mut self, one: TextTranslation) {
        let index = self.texts.len();
        let failed = one.failure();
        if let Some((number, sentence, failure)) = failed {
            let place =
                Place { text: Some(index), sentence: Some((number, sentence.source.as_str())) };
            self.errors.push((index, Failure::sentence(failure, place)));
        }
        self.finish.push(finish_code(one.finish(), failed.map(|(.., failure)| failure)));
        self.scores.push(one.sentences.iter().map(|one| one.translation.score).sum());
        self.truncated.push(one.sentences.iter().any(|one| one.translation.truncated));
        self.notes.push(one.sentences.iter().flat_map(|one| notes_of(&one.translation)).collect());
        self.texts.push(one.target.text);
    }

    /// Adds a paragraph of a document, with all its failures; its text is in the document.
    pub(crate) fn add_paragraph(&mut self, one: &TextTranslation) {
        let index = self.finish.len();
        for (number, sentence) in one.sentences.iter().enumerate() {
            if let Some(failure) = sentence.translation.failure {
                let place = Place { text: Some(index), sentence: Some((number, &sentence.source)) };
                self.errors.push((index, Failure::sentence(failure, place)));
            }
        }
        let failed = one.failure().map(|(.., failure)| failure);
        self.finish.push(finish_code(one.finish(), failed));
        self.truncated.push(one.sentences.iter().any(|one| one.translation.truncated));
        self.notes.push(one.sentences.iter().flat_map(|one| notes_of(&one.translation)).collect());
    }

    /// The arrays and exceptions of Python.
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<PyTranslated<'_>> {
        let errors = self.errors.iter().map(|(index, failure)| Ok((*index, failure.value(py)?)));
        let errors = errors.collect::<PyResult<Vec<_>>>()?;
        let (finish, scores) = (self.finish.into_pyarray(py), self.scores.into_pyarray(py));
        let truncated = self.truncated.into_pyarray(py);
        Ok((self.texts, errors, finish, scores, truncated, self.notes))
    }
}
