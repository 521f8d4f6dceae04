//! Words of Moses, divided by BPE of codes: packages of Argos with `bpe.model`.
//!
//! A text is normalized, divided into words and escaped, and each word is divided into pieces, of which all but the last end
//! in `@@`. The words are those of sacremoses 0.1.1, the pieces those of subword-nmt, with these exceptions: abbreviations are
//! those of the file beside the codes; a text that has sacremoses's own placeholder, `DOTMULTI`, keeps it; Czech numbers
//! are joined by the rule of the script that sacremoses ports (it removes the space before every number of a sentence that
//! ends in one), and where that rule of Czech raises an exception (`'` before `-li`) it is left out.

mod abbreviations;
mod classes;
mod codes;
mod detokenize;
mod divide;
mod letters;
mod normalize;

use crate::directory::Directory;
use crate::error::Error;
use crate::limits;
use crate::special_tokens::{Part, Special, Specials};
use crate::vocabulary::pieces::Reading;
use abbreviations::Abbreviations;
pub(crate) use classes::is_space;
use codes::{Codes, PART};
pub(crate) use detokenize::Detokenizer;
use letters::Letters;
use std::collections::HashMap;
use std::ops::Range;

/// The file of the codes.
pub(crate) const CODES: &str = "bpe.model";

/// The tokenizer.
#[derive(Debug)]
pub(crate) struct Words {
    codes: Codes,
    abbreviations: Abbreviations,
    /// Of the source and of the target: the language, the ids of pieces, and that of unknown ones.
    sides: [Side; 2],
    /// The text of each id of the target; `None` for special tokens.
    tokens: Vec<Option<Box<str>>>,
    specials: Specials,
}

/// A language, and its vocabulary.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) code: String,
    pub(crate) ids: HashMap<String, u32>,
    pub(crate) unknown: u32,
}

impl Words {
    /// Reads the codes and the abbreviations of a directory. `sides` are the source and the target.
    pub(crate) fn from_directory(
        directory: &Directory,
        sides: [Side; 2],
        specials: Vec<Special>,
    ) -> Result<Self, Error> {
        let text = directory.read_text(CODES, limits::VOCABULARY.bytes)?;
        let codes = Codes::from_text(&text)
            .map_err(|error| error.inside(directory.path(CODES).display()))?;
        let abbreviations = Abbreviations::from_directory(directory)?;
        let specials = Specials::new(specials);
        let [_, target] = &sides;
        let len = target.ids.values().max().map_or(0, |&last| last as usize + 1);
        let mut tokens = vec![None; len];
        for (text, &id) in &target.ids {
            tokens[id as usize] = Some(text.as_str().into());
        }
        let silent = specials.texts().filter_map(|text| target.ids.get(text).copied());
        for id in silent.chain([target.unknown]) {
            if let Some(token) = tokens.get_mut(id as usize) {
                *token = None;
            }
        }
        Ok(Self { codes, abbreviations, sides, tokens, specials })
    }

    /// Appends the ids of `text`, without the special tokens of the family, and to `spans` the bytes of each in `text`.
    pub(crate) fn encode(
        &self,
        text: &str,
        Reading { target, plain }: Reading,
        ids: &mut Vec<u32>,
        mut spans: Option<&mut Vec<Range<usize>>>,
    ) -> Result<(), Error> {
        let most = u32::MAX as usize / 8;
        if text.len() > most {
            return Err(Error::too_long(most, text.len()));
        }
        let side = &self.sides[usize::from(target)];
        let (mut word, mut key) = (String::new(), String::new());
        self.specials.split(text, plain, |place, part| {
            let part = match part {
                Part::Text(part) => part,
                Part::Token(id) => {
                    ids.push(id);
                    spans.iter_mut().for_each(|spans| spans.push(place.clone()));
                    return Ok(());
                }
            };
            let mut letters = Letters::new(part);
            normalize::normalize(&mut letters, &side.code);
            divide::divide(&mut letters, &side.code, &self.abbreviations, &mut |letters| {
                word.clear();
                word.extend(letters.iter().map(|letter| letter.char));
                let mut at = 0;
                self.codes.divide(&word, &mut |piece, last| {
                    key.clear();
                    key.push_str(piece);
                    key.push_str(if last { "" } else { PART });
                    ids.push(side.ids.get(&key).copied().unwrap_or(side.unknown));
                    let end = at + piece.chars().count();
                    if let (Some(spans), [first, ..], [.., last]) =
                        (spans.as_deref_mut(), &letters[at..end], &letters[at..end])
                    {
                        let places = first.place().start..last.place().end;
                        spans.push(place.start + places.start..place.start + places.end);
                    }
                    at = end;
                });
            });
            Ok(())
        })
    }

    /// The id of the source for what its vocabulary does not have.
    pub(crate) fn unknown(&self) -> u32 {
        self.sides[0].unknown
    }

    /// The token `id` as the vocabulary of the target writes it.
    pub(crate) fn token(&self, id: u32) -> Option<String> {
        let listed = || {
            let mut texts = self.sides[1].ids.iter().filter(|&(_, &known)| known == id);
            texts.next().map(|(text, _)| text.clone())
        };
        let known = self.tokens.get(id as usize)?.as_deref().map(str::to_owned);
        known.or_else(|| self.specials.text(id).map(str::to_owned)).or_else(listed)
    }

    /// Appends the text of one more id.
    pub(crate) fn decode(&self, id: u32, state: &mut Detokenizer, text: &mut String) {
        state.push(self.text(id), &self.sides[1].code, &mut |word, _| text.push_str(word));
    }

    /// Appends the text that was held back.
    pub(crate) fn finish(&self, state: &mut Detokenizer, text: &mut String) {
        state.finish(&self.sides[1].code, &mut |word, _| text.push_str(word));
    }

    /// The text of `ids`, and the bytes of each: all pieces of a word have those of the word.
    pub(crate) fn decode_with_spans(&self, ids: &[u32]) -> (String, Vec<Range<usize>>) {
        let (mut text, mut spans) = (String::new(), vec![0..0; ids.len()]);
        let mut state = Detokenizer::default();
        let mut out = |word: &str, pieces: Range<usize>| {
            let start = text.len();
            text.push_str(word);
            spans[pieces].fill(start..text.len());
        };
        for &id in ids {
            state.push(self.text(id), &self.sides[1].code, &mut out);
        }
        state.finish(&self.sides[1].code, &mut out);
        (text, spans)
    }

    fn text(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize)?.as_deref()
    }
}
