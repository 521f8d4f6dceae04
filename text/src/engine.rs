//! What a tokenizer runs on: a SentencePiece file, or a `tokenizer.json`.

use crate::decoding::State;
use crate::error::TextError;
#[cfg(feature = "json")]
use crate::json::Json;
use crate::sentencepiece_ids::Pieces;

#[derive(Debug)]
pub(crate) enum Engine {
    Pieces(Box<Pieces>),
    #[cfg(feature = "json")]
    Json(Box<Json>),
}

impl Engine {
    /// Appends the ids of `text`, without what a family puts about it.
    pub(crate) fn encode(
        &self,
        text: &str,
        target: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        match self {
            Self::Pieces(pieces) => pieces.encode(text, target, ids),
            #[cfg(feature = "json")]
            Self::Json(json) => json.encode(text, ids),
        }
    }

    /// Appends what is certain of the text now that `id` has come.
    pub(crate) fn decode(&self, id: u32, state: &mut State, text: &mut String) {
        match self {
            Self::Pieces(pieces) => pieces.decode(id, &mut state.spm, text),
            #[cfg(feature = "json")]
            Self::Json(json) => json.decode(id, state, text),
        }
    }

    /// Appends what was held back.
    pub(crate) fn finish(&self, state: &mut State, text: &mut String) {
        match self {
            Self::Pieces(_) => state.spm.finish(text),
            #[cfg(feature = "json")]
            Self::Json(json) => json.finish(state, text),
        }
    }
}
