//! The vocabularies of a directory of CTranslate2: a list of tokens in JSON, or a text with a token in each line.

use super::Directory;
use super::settings::{short, token as token_length};
use crate::directory::family::Family;
use crate::error::Error;
use crate::limits;
use serde_json::Value;
use std::collections::HashMap;

/// The stems of vocabularies of the source, of the target, and of models without a target.
const SOURCE: [&str; 3] = ["shared_vocabulary", "source_vocabulary", "vocabulary"];
const TARGET: [&str; 2] = ["shared_vocabulary", "target_vocabulary"];

/// SentencePiece files of both languages.
const SENTENCEPIECE: [&str; 4] =
    ["sentencepiece.model", "spm.model", "sentencepiece.bpe.model", "spiece.model"];

impl Directory {
    /// Whether this is a directory of CTranslate2, whose `config.json` names no family, or one that was packed from it.
    pub(crate) fn is_converted(&self) -> bool {
        match self.config.get("model_type") {
            None => self.has("model.bin"),
            Some(family) => family == "plain" && self.has_converted_vocabulary(),
        }
    }

    pub(super) fn has_converted_vocabulary(&self) -> bool {
        self.vocabulary_file(&SOURCE).is_some()
    }

    /// The SentencePiece file of both languages.
    pub(crate) fn sentencepiece(&self) -> Option<&'static str> {
        SENTENCEPIECE.into_iter().find(|name| self.has(name))
    }

    /// Whether source and target have vocabularies of their own.
    pub(crate) fn separates_vocabularies(&self) -> bool {
        self.vocabulary_file(&TARGET[..1]).is_none() && self.vocabulary_file(&TARGET[1..]).is_some()
    }

    /// The ids of a vocabulary of CTranslate2, of the source or of the target; `None` if there is none.
    pub(crate) fn converted_vocabulary(
        &self,
        target: bool,
    ) -> Result<Option<HashMap<String, u32>>, Error> {
        let stems = if target { &TARGET[..] } else { &SOURCE[..] };
        let Some(name) = self.vocabulary_file(stems) else { return Ok(None) };
        let mut ids = HashMap::new();
        for (id, token) in (0..).zip(self.tokens(&name)?) {
            token_length(&token).map_err(|error| error.inside(self.path(&name).display()))?;
            ids.entry(token).or_insert(id);
        }
        Ok(Some(ids))
    }

    fn vocabulary_file(&self, stems: &[&str]) -> Option<String> {
        let names =
            stems.iter().flat_map(|stem| ["json", "txt"].map(|end| format!("{stem}.{end}")));
        names.into_iter().find(|name| self.has(name))
    }

    /// The tokens of a vocabulary, in the order of their ids.
    fn tokens(&self, name: &str) -> Result<Vec<String>, Error> {
        if name.ends_with(".json") {
            let expected = "a list of tokens";
            let list = match self.json(name, limits::VOCABULARY)? {
                Value::Array(list) => list,
                found => return Err(self.wrong(name, expected, short(&found))),
            };
            let token = |value| match value {
                Value::String(token) => Ok(token),
                found => Err(self.wrong(name, expected, short(&found))),
            };
            return list.into_iter().map(token).collect();
        }
        let text = self.read_text(name, limits::VOCABULARY.bytes)?;
        let lines: Vec<&str> = text.strip_suffix('\n').unwrap_or(&text).split('\n').collect();
        if lines.len() > limits::VOCABULARY.values {
            let expected = format!("at most {} lines", limits::VOCABULARY.values);
            return Err(self.wrong(name, expected, lines.len()));
        }
        // A carriage return belongs to a token, unless each line has one.
        let windows = lines.iter().all(|line| line.ends_with('\r'));
        let end = if windows { 1 } else { 0 };
        Ok(lines.into_iter().map(|line| line[..line.len() - end].to_owned()).collect())
    }

    /// The family of a directory of CTranslate2 without settings of a tokenizer, by its files and its tokens.
    pub(crate) fn converted_family(&self) -> Result<Option<Family>, Error> {
        if !self.is_converted() {
            return Ok(None);
        }
        if ["alignment_heads", "suppress_ids"].iter().any(|key| self.config.get(key).is_some()) {
            return Ok(Some(Family::Whisper));
        }
        if self.has("source.spm") {
            return Ok(Some(Family::Marian));
        }
        let Some(tokens) = self.converted_vocabulary(false)? else { return Ok(None) };
        if self.sentencepiece().is_none() && !self.has("tokenizer.json") {
            return Ok(Some(Family::OpenNmt));
        }
        const MARKS: [(&str, Family); 7] = [
            ("eng_Latn", Family::Nllb),
            ("en_XX", Family::Mbart50),
            ("__en__", Family::M2m100),
            ("<extra_id_0>", Family::T5),
            ("<2en>", Family::T5),
            ("<mask_1>", Family::Pegasus),
            ("[CLS]", Family::WordPiece),
        ];
        let marked = MARKS.into_iter().find(|(mark, _)| tokens.contains_key(*mark));
        // M2M100 has vocab.json, of which the vocabulary here is a longer form.
        Ok(Some(match marked {
            Some((_, family)) => family,
            None if self.sentencepiece().is_some() => Family::OpenNmt,
            None if tokens.keys().any(|token| token.starts_with('Ġ')) => Family::ByteLevel,
            None => Family::XlmRoberta,
        }))
    }
}
