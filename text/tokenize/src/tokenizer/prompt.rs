//! The tokens around a text: those of its languages and of its family.

use super::Tokenizer;
use crate::directory::family::Family;
use crate::error::Error;
use crate::languages::{Direction, find_language};

/// The tokens around a text.
pub(super) struct Prompt {
    pub(super) before: Vec<u32>,
    pub(super) after: Vec<u32>,
    /// The decoder's prefix, and the forced token after it.
    pub(super) decoder: (Vec<u32>, Option<u32>),
}

impl Tokenizer {
    /// The tokens around a text and at the start of the decoder.
    pub(super) fn prompt(&self, direction: &Direction<'_>) -> Result<Prompt, Error> {
        let language = |code: Option<&str>, default: &Option<String>, operand| match code {
            Some(code) => find_language(code, &self.parts.languages).map(|l| Some(l.id())),
            None => match default {
                Some(code) => find_language(code, &self.parts.languages).map(|l| Some(l.id())),
                None => {
                    let languages = &self.parts.languages;
                    let some = languages.iter().take(4).map(|l| l.code().to_owned());
                    let expected = format!("one of the model's {} languages", languages.len());
                    Err(Error::language_needed(operand, expected, some.collect()))
                }
            },
        };
        let chosen = |code: Option<&str>| match code {
            Some(code) => find_language(code, &self.parts.languages).map(|l| Some(l.id())),
            None => Ok(None),
        };
        let start: Vec<u32> = self.parts.start.into_iter().collect();
        let list = |ids: [Option<u32>; 2]| ids.into_iter().flatten().collect::<Vec<u32>>();
        Ok(match self.parts.family {
            Family::M2m100 | Family::Nllb | Family::Mbart50 | Family::Mbart25 => {
                let source = language(direction.source, &self.source, "source language")?;
                let target = language(direction.target, &self.target, "target language")?;
                let (before, after) = if self.legacy {
                    (Vec::new(), list([self.parts.end, source]))
                } else {
                    (list([source, None]), list([self.parts.end, None]))
                };
                let decoder = match self.parts.family {
                    Family::Mbart25 => (list([target, None]), None),
                    _ => (start, target),
                };
                Prompt { before, after, decoder }
            }
            Family::Whisper => {
                let source = chosen(direction.source)?;
                let [transcribe, translate, silent] = self.parts.tasks;
                let task = match direction.target {
                    Some(target) if direction.source != Some(target) => translate,
                    _ => transcribe,
                };
                let spoken = source.into_iter().chain(task.filter(|_| source.is_some()));
                let prefix = start.into_iter().chain(spoken).chain(silent).collect();
                Prompt { before: Vec::new(), after: Vec::new(), decoder: (prefix, None) }
            }
            _ => {
                // `prefix` has checked the languages of tasks. With a prefix of the caller they are those of its words.
                let of_tasks = self.parts.family == Family::T5
                    && (self.prefix.is_some() || self.tasks.translate());
                let one_direction = self.parts.languages.is_empty() && !of_tasks;
                if let Some(code) = direction.source
                    && (one_direction || self.source.is_some())
                {
                    same(code, self.source.as_deref())?;
                }
                let target = match direction.target {
                    Some(code) if one_direction => {
                        same(code, self.target.as_deref())?;
                        None
                    }
                    _ if of_tasks => None,
                    target => chosen(target)?,
                };
                let [begin, end] = self.source_tokens();
                let before = list([begin, target]);
                Prompt { before, after: list([end, None]), decoder: (start, self.parts.forced) }
            }
        })
    }
}

/// Checks a language of a model of one direction: it must be one that its directory names.
fn same(code: &str, known: Option<&str>) -> Result<(), Error> {
    match known {
        Some(known) if known == code => Ok(()),
        Some(known) => Err(Error::no_language(code, vec![known.to_owned()])),
        None => Err(Error::no_languages(code)),
    }
}
