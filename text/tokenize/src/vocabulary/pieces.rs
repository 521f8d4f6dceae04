//! Families that use a SentencePiece file: converts its ids to those of the model and back.

use crate::directory::Directory;
use crate::error::Error;
use crate::limits;
use crate::special_tokens::{Part, Special, Specials};
use crate::spm::{self, SentencePiece};
use std::collections::HashMap;
use std::ops::Range;

/// How a text is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// Whether it is a target.
    pub(crate) target: bool,
    /// Whether the text of a token that controls the model is text.
    pub(crate) plain: bool,
}

/// One or two SentencePiece models, and the vocabulary of the model.
#[derive(Debug)]
pub(crate) struct Pieces {
    models: Vec<SentencePiece>,
    source: Side,
    target: Side,
    /// The index in `models` of the model that decodes.
    decodes: usize,
    /// The output of each id.
    tokens: Vec<Out>,
    pub(crate) specials: Specials,
    /// Whether a text may begin with `>>xx<<`.
    codes: bool,
    /// Whether texts are lowercased first.
    lower_case: bool,
}

/// How the text of one side is converted to ids.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) model: usize,
    /// The model's id of each piece.
    pub(crate) ids: Vec<u32>,
    /// The ids by text, if the vocabulary is a separate file.
    pub(crate) by_text: HashMap<String, u32>,
    pub(crate) unknown: u32,
}

/// The output of an id.
#[derive(Clone, Debug)]
enum Out {
    Nothing,
    Piece(u32),
    Foreign(Box<str>),
}

pub(crate) fn read_model(directory: &Directory, name: &str) -> Result<SentencePiece, Error> {
    let bytes = directory.read_file(name, limits::MODEL_BYTES)?;
    SentencePiece::from_bytes(&bytes).map_err(|error| error.inside(directory.path(name).display()))
}

impl Side {
    /// Ids from a separate vocabulary.
    pub(crate) fn of_vocabulary(
        model: usize,
        spm: &SentencePiece,
        vocabulary: HashMap<String, u32>,
        unknown: u32,
    ) -> Self {
        let id = |id| spm.piece(id).and_then(|piece| vocabulary.get(piece)).copied();
        let ids = (0..spm.len() as u32).map(|piece| id(piece).unwrap_or(unknown)).collect();
        Self { model, ids, by_text: vocabulary, unknown }
    }

    /// Ids from a vocabulary without a SentencePiece file: no text can be encoded.
    pub(crate) fn of_vocabulary_alone(vocabulary: HashMap<String, u32>, unknown: u32) -> Self {
        Self { model: 0, ids: Vec::new(), by_text: vocabulary, unknown }
    }

    /// Ids that are shifted piece ids: `ids[i]` is the id of piece `i`.
    pub(crate) fn of_ids(ids: Vec<u32>, unknown: u32) -> Self {
        Self { model: 0, ids, by_text: HashMap::new(), unknown }
    }
}

impl Pieces {
    /// A shared vocabulary decodes with the first model, `separate` vocabularies with the target's.
    pub(crate) fn new(
        models: Vec<SentencePiece>,
        source: Side,
        target: Option<Side>,
        separate: bool,
        specials: Vec<Special>,
        codes: bool,
    ) -> Self {
        let decodes = target.as_ref().filter(|_| separate).map_or(0, |target| target.model);
        let specials = Specials::new(specials);
        let mut tokens = Vec::new();
        let mut set = |id: u32, out: Out| {
            if tokens.len() <= id as usize {
                tokens.resize(id as usize + 1, Out::Nothing);
            }
            tokens[id as usize] = out;
        };
        let side = if separate { target.as_ref().unwrap_or(&source) } else { &source };
        let spm = models.get(decodes);
        for (text, &id) in &side.by_text {
            let foreign = || Out::Foreign(text.replace('\u{2581}', " ").into());
            let piece = spm.and_then(|spm| spm.id(text));
            set(id, piece.map_or_else(foreign, Out::Piece));
        }
        if side.by_text.is_empty() {
            (0u32..).zip(&side.ids).for_each(|(piece, &id)| set(id, Out::Piece(piece)));
        }
        // Special tokens by id, and by text if the target has its own ids for them.
        let by_text = specials.texts().filter_map(|text| side.by_text.get(text).copied());
        let silent = specials.ids().chain(by_text).chain([side.unknown]);
        // The file defines the ids of added tokens, so they do not extend the table. An id beyond it has no text.
        silent.for_each(|id| {
            if let Some(out) = tokens.get_mut(id as usize) {
                *out = Out::Nothing;
            }
        });
        let target = target.unwrap_or_else(|| Side {
            model: source.model,
            ids: source.ids.clone(),
            by_text: source.by_text.clone(),
            unknown: source.unknown,
        });
        Self { models, source, target, decodes, tokens, specials, codes, lower_case: false }
    }

    /// Lowercases texts before anything else.
    pub(crate) fn lower_case(&mut self) {
        self.lower_case = true;
    }

    /// Appends the ids of `text`, without the special tokens of the family, and to `spans` the bytes of each in `text`.
    pub(crate) fn encode(
        &self,
        text: &str,
        Reading { target, plain }: Reading,
        ids: &mut Vec<u32>,
        mut spans: Option<&mut Vec<Range<usize>>>,
    ) -> Result<(), Error> {
        let side = if target { &self.target } else { &self.source };
        let Some(model) = self.models.get(side.model) else {
            let expected =
                "a SentencePiece file or tokenizer.json beside the model, to encode text";
            let found = "a vocabulary alone, with which only tokens and ids are translated";
            return if text.is_empty() {
                Ok(())
            } else {
                Err(Error::invalid_input("the tokenizer", expected, found))
            };
        };
        self.specials.split(text, plain, |place, part| {
            let lowered: String;
            let first = spans.as_deref().map_or(0, Vec::len);
            let mut text = match part {
                Part::Token(id) => {
                    ids.push(id);
                    if let Some(spans) = spans.as_deref_mut() {
                        spans.push(place);
                    }
                    return Ok(());
                }
                Part::Text(text) if self.lower_case => {
                    // Character by character, as the normalizer `Lowercase` of the crate `tokenizers`.
                    lowered = text.chars().flat_map(char::to_lowercase).collect();
                    &lowered
                }
                Part::Text(text) => text,
            };
            let mut start = place.start;
            if self.codes
                && text.starts_with(">>")
                && let Some(end) = text.find("<<")
            {
                let (code, rest) = text.split_at(end + 2);
                ids.push(side.by_text.get(code).copied().unwrap_or(side.unknown));
                if let Some(spans) = spans.as_deref_mut() {
                    spans.push(start..start + code.len());
                }
                text = rest;
                start += code.len();
            }
            let id = |surface: &[u8], piece: u32| {
                let id = if piece == model.unknown() {
                    // The other side's model may have the piece, because both sides share the vocabulary.
                    // What was typed is no token that controls the model.
                    let text = str::from_utf8(surface).ok();
                    let text = text.filter(|text| !(plain && self.specials.is_control(text)));
                    text.and_then(|text| side.by_text.get(text)).copied()
                } else {
                    side.ids.get(piece as usize).copied()
                };
                id.unwrap_or(side.unknown)
            };
            let done = match spans.as_deref_mut() {
                None => model.segment(text, &mut |surface, piece| ids.push(id(surface, piece))),
                Some(spans) => model.segment_with_spans(text, &mut |surface, piece, span| {
                    ids.push(id(surface, piece));
                    spans.push(start + span.start..start + span.end);
                }),
            };
            if let (true, Some(spans), Part::Text(whole)) =
                (self.lower_case, spans.as_deref_mut(), part)
            {
                of_lower_case(whole, place.start, &mut spans[first..]);
            }
            done
        })
    }

    /// The id of the source for what its vocabulary does not have.
    pub(crate) fn unknown(&self) -> u32 {
        self.source.unknown
    }

    /// The words of the source vocabulary; none if a piece of its model is a part of a word.
    pub(crate) fn words(&self) -> Vec<String> {
        let words = self.models.get(self.source.model).and_then(SentencePiece::words);
        let known = |id: &u32| self.source.ids.get(*id as usize) != Some(&self.source.unknown);
        let words = words.unwrap_or_default().into_iter();
        words.filter(|(id, _)| known(id)).map(|(_, word)| word).collect()
    }

    /// Appends the text of one more id.
    pub(crate) fn decode(&self, id: u32, decoder: &mut spm::Decoder, text: &mut String) {
        let Some(model) = self.models.get(self.decodes) else { return };
        match self.tokens.get(id as usize) {
            None | Some(Out::Nothing) => (),
            Some(Out::Piece(piece)) => decoder.push(model, spm::Token::Id(*piece), text),
            Some(Out::Foreign(piece)) => decoder.push(model, spm::Token::Foreign(piece), text),
        }
    }

    /// The token `id` as the vocabulary of the target writes it.
    pub(crate) fn token(&self, id: u32) -> Option<String> {
        let piece = |piece| Some(self.models.get(self.decodes)?.piece(piece)?.to_owned());
        let side = &self.target;
        match self.tokens.get(id as usize) {
            Some(Out::Piece(known)) => return piece(*known),
            Some(Out::Foreign(text)) => return Some(text.replace(' ', "\u{2581}")),
            _ => (),
        }
        let listed = || {
            let mut texts = side.by_text.iter().filter(|&(_, &known)| known == id);
            texts.next().map(|(text, _)| text.clone())
        };
        let shifted = || piece(side.ids.iter().position(|&known| known == id)? as u32);
        self.specials.text(id).map(str::to_owned).or_else(listed).or_else(shifted)
    }
}

/// Converts places in the lower case of `text` to places in `text`; both begin at `start`.
fn of_lower_case(text: &str, start: usize, spans: &mut [Range<usize>]) {
    // For each byte of the lower case, the character that it is of.
    let mut characters: Vec<Range<usize>> = Vec::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let len = letter.to_lowercase().map(char::len_utf8).sum();
        characters.extend(std::iter::repeat_n(at..at + letter.len_utf8(), len));
    }
    let end = text.len();
    for span in spans {
        let character = |at: usize| characters.get(at).cloned().unwrap_or(end..end);
        let from = character(span.start - start).start;
        let last = if span.start == span.end { from } else { character(span.end - start - 1).end };
        *span = start + from..start + last;
    }
}
