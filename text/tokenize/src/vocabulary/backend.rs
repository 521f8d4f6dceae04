//! The implementation of a tokenizer: a SentencePiece file, BPE of codes, or a `tokenizer.json`.

use super::pieces::{Pieces, Reading};
use crate::error::Error;
use crate::incremental_decoder::State;
#[cfg(feature = "json")]
use crate::json::Json;
use crate::moses::Words;
use std::ops::Range;

#[derive(Debug)]
pub(crate) enum Engine {
    Pieces(Box<Pieces>),
    Moses(Box<Words>),
    #[cfg(feature = "json")]
    Json(Box<Json>),
}

impl Engine {
    /// Lowercases texts before anything else.
    pub(crate) fn lower_case(&mut self) -> Result<(), Error> {
        match self {
            Self::Pieces(pieces) => {
                pieces.lower_case();
                Ok(())
            }
            Self::Moses(_) => {
                let expected =
                    "a SentencePiece file or tokenizer.json, to read texts in lower case";
                Err(Error::invalid_input("tokenizer", expected, "words of Moses"))
            }
            #[cfg(feature = "json")]
            Self::Json(json) => json.lower_case(),
        }
    }

    /// Appends the ids of `text`, without the special tokens of the family, and to `spans` the bytes of each in `text`.
    pub(crate) fn encode(
        &self,
        text: &str,
        reading: Reading,
        ids: &mut Vec<u32>,
        spans: Option<&mut Vec<Range<usize>>>,
    ) -> Result<(), Error> {
        match self {
            Self::Pieces(pieces) => pieces.encode(text, reading, ids, spans),
            Self::Moses(words) => words.encode(text, reading, ids, spans),
            #[cfg(feature = "json")]
            Self::Json(json) => json.encode(text, reading.plain, ids, spans),
        }
    }

    /// Appends the text that is determined by `id` and the ids before it.
    pub(crate) fn decode(&self, id: u32, state: &mut State, text: &mut String) {
        match self {
            Self::Pieces(pieces) => pieces.decode(id, &mut state.spm, text),
            Self::Moses(words) => words.decode(id, &mut state.words, text),
            #[cfg(feature = "json")]
            Self::Json(json) => json.decode(id, state, text),
        }
    }

    /// The token `id` as the vocabulary of the target writes it.
    pub(crate) fn token(&self, id: u32) -> Option<String> {
        match self {
            Self::Pieces(pieces) => pieces.token(id),
            Self::Moses(words) => words.token(id),
            #[cfg(feature = "json")]
            Self::Json(json) => json.token(id),
        }
    }

    /// The id of the source for what its vocabulary does not have.
    pub(crate) fn unknown(&self) -> Option<u32> {
        match self {
            Self::Pieces(pieces) => Some(pieces.unknown()),
            Self::Moses(words) => Some(words.unknown()),
            #[cfg(feature = "json")]
            Self::Json(json) => json.unknown(),
        }
    }

    /// The source vocabulary, if all of it are whole words.
    pub(crate) fn words(&self) -> Vec<String> {
        match self {
            Self::Pieces(pieces) => pieces.words(),
            // The vocabulary has parts of words.
            Self::Moses(_) => Vec::new(),
            #[cfg(feature = "json")]
            Self::Json(json) => json.words(),
        }
    }

    /// Appends the text that was held back.
    pub(crate) fn finish(&self, state: &mut State, text: &mut String) {
        match self {
            Self::Pieces(_) => state.spm.finish(text),
            Self::Moses(words) => words.finish(&mut state.words, text),
            #[cfg(feature = "json")]
            Self::Json(json) => json.finish(state, text),
        }
    }
}
