//! The words of a model directory, sentences of words or of ids, and the model's own translation of a sentence.

use simdformer::config::Side;
use simdformer::search::{Finish, Hooks};
use simdformer::{Event, Limits, Model, Session, Source};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// The words of both sides; empty if a directory has no vocabulary.
pub struct Words {
    source: BTreeMap<String, u32>,
    target: BTreeMap<String, u32>,
    /// The words of the ids of each side.
    labels: [BTreeMap<u32, String>; 2],
}

impl Words {
    /// Reads the vocabularies in `folder`, as training reads them: `vocab.json`, a map from words to ids, and
    /// `source_vocab.json`, if the source has its own. BERT has `vocab.txt`, a word on each line.
    pub fn from_folder(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let map = |name: &str| -> Result<Option<BTreeMap<String, u32>>, Box<dyn Error>> {
            let Ok(text) = std::fs::read_to_string(folder.join(name)) else { return Ok(None) };
            let pieces: BTreeMap<String, u32> =
                serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
            let special = |piece: &str| piece.starts_with('<') && piece.ends_with('>');
            if pieces.keys().all(|piece| piece.starts_with('▁') || special(piece)) {
                // The pieces of a word-level SentencePiece model are words.
                let words = pieces.into_iter().map(|(piece, id)| (piece.replace('▁', ""), id));
                return Ok(Some(words.collect()));
            }
            Ok(Some(pieces))
        };
        let target = match map("vocab.json")? {
            Some(words) => words,
            None => {
                let text = std::fs::read_to_string(folder.join("vocab.txt")).unwrap_or_default();
                text.lines().map(str::to_owned).zip(0..).collect()
            }
        };
        let source = map("source_vocab.json")?.unwrap_or_else(|| target.clone());
        let inverse = |words: &BTreeMap<String, u32>| -> BTreeMap<u32, String> {
            words.iter().map(|(word, &id)| (id, word.clone())).collect()
        };
        let of_target = inverse(&target);
        // A source vocabulary may list only the words that a user types; the others are those of the target.
        let of_source = of_target.clone().into_iter().chain(inverse(&source)).collect();
        Ok(Self { source, target, labels: [of_source, of_target] })
    }

    fn ids(&self, side: Side) -> &BTreeMap<String, u32> {
        match side {
            Side::Encoder => &self.source,
            Side::Decoder => &self.target,
        }
    }

    /// The word of an id; the id itself if it has none.
    pub fn label(&self, side: Side, id: u32) -> String {
        let labels = match side {
            Side::Encoder => &self.labels[0],
            Side::Decoder => &self.labels[1],
        };
        labels.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    pub fn text(&self, side: Side, ids: &[u32]) -> Vec<String> {
        ids.iter().map(|&id| self.label(side, id)).collect()
    }

    /// The id of the padding token, by its name.
    pub fn pad(&self, side: Side) -> Option<u32> {
        ["<blank>", "<pad>", "[PAD]"].iter().find_map(|name| self.ids(side).get(*name)).copied()
    }

    /// The ids of a sentence: ids as they are, or words between spaces, to which `end` is appended.
    pub fn encode(
        &self,
        side: Side,
        text: &str,
        end: Option<u32>,
    ) -> Result<Vec<u32>, Box<dyn Error>> {
        let pieces = text.split_whitespace();
        if let Ok(ids) = pieces.clone().map(str::parse).collect::<Result<Vec<u32>, _>>() {
            return Ok(ids);
        }
        let known = self.ids(side);
        if known.is_empty() {
            return Err(
                "this checkpoint has no vocab.json: it takes token ids between spaces".into()
            );
        }
        let id = |word: &str| {
            let unknown = || format!("the vocabulary of this checkpoint does not know \"{word}\"");
            known.get(word).copied().ok_or_else(unknown)
        };
        let mut ids = pieces.map(id).collect::<Result<Vec<u32>, String>>()?;
        if ids.last().copied() != end {
            ids.extend(end);
        }
        Ok(ids)
    }
}

/// The end token of the sources of a model: its first end token, if the source vocabulary has the same word.
pub fn source_end(model: &Model, words: &Words) -> Option<u32> {
    let end = *model.config().tokens.eos.first()?;
    let same = words.label(Side::Encoder, end) == words.label(Side::Decoder, end);
    (same && (end as usize) < model.config().source_vocab).then_some(end)
}

/// The best hypothesis of the search that the checkpoint configures, with at most `longest` tokens.
pub fn translate(
    model: &Model,
    source: &[u32],
    longest: usize,
) -> Result<Vec<u32>, Box<dyn Error>> {
    let wanted = model.config().search_options();
    let positions = model.config().max_positions(Side::Decoder).unwrap_or(usize::MAX);
    let target = wanted.max_length.unwrap_or(longest).min(longest).min(positions).max(1);
    let limits = Limits { beams: wanted.sequences(), ..Limits::new(1, source.len(), target) };
    let mut session = Session::new(model, limits)?;
    let mut search = session.search_options();
    // A model without an end token needs a length.
    if search.eos.is_empty() && search.max_length.is_none() {
        search.max_length = Some(target);
    }
    let (mut best, mut finite) = (Vec::new(), true);
    session.generate(&[Source::new(source)], &search, &mut Hooks::default(), &mut |event| {
        if let Event::Done(done) = event
            && let Some(hypothesis) = done.hypotheses().next()
        {
            finite &= done.finish != Finish::NotFinite;
            best.extend_from_slice(hypothesis.tokens);
        }
    })?;
    if finite { Ok(best) } else { Err("the model's scores are NaN or infinite".into()) }
}

/// The decoder input for an output: its start token, then all tokens but the last.
pub fn decoder_input(model: &Model, output: &[u32]) -> Result<Vec<u32>, Box<dyn Error>> {
    let start = model.config().tokens.decoder_start;
    let start = start.ok_or("the checkpoint has no decoder start token")?;
    let rest = &output[..output.len().saturating_sub(1)];
    Ok(core::iter::once(start).chain(rest.iter().copied()).collect())
}
