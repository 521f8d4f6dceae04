//! A model that is ready to segment text.

use super::file::{Algorithm, File, Kind, Pieces, byte_of};
use super::normalized::{SPACE, Sink, Traced};
use super::normalizer::Normalizer;
use crate::error::Error;
use crate::trie::Trie;
use std::collections::HashMap;
use std::ops::Range;

/// The maximum length of a text in bytes, after normalization: positions are `u32`.
const LONGEST_TEXT: usize = u32::MAX as usize / 2;
/// The maximum file size in bytes.
const LARGEST_FILE: usize = 1 << 30;

/// A SentencePiece model.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let file = "../tests/golden/spm/bpe_bytes.spm";
/// let model = simdformer_tokenize::SentencePiece::from_bytes(&std::fs::read(file)?)?;
/// let ids = model.encode("The quick brown fox.")?;
/// assert_eq!(model.decode(&ids), "The quick brown fox.");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SentencePiece {
    pub(super) pieces: Pieces,
    /// The pieces of which a segmentation may consist, and the unused ones.
    pub(super) trie: Trie,
    /// Unknown, control and byte pieces.
    reserved: HashMap<String, u32>,
    /// The id of each byte, with byte fallback.
    bytes: Option<Box<[u32; 256]>>,
    pub(super) unknown: u32,
    pub(super) unk_surface: String,
    pub(super) normalizer: Normalizer,
    algorithm: Algorithm,
    pub(super) lowest: f32,
    pub(super) highest: f32,
}

/// A range of the normalized text and the id of its piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) id: u32,
}

fn twice(piece: &str) -> Error {
    Error::corrupt("", "each piece once", format_args!("the piece {piece:?} twice"))
}

fn unknowns(found: &str) -> Error {
    let found = format_args!("{found}: not a SentencePiece model, or cut short");
    Error::corrupt("", "exactly one unknown piece", found)
}

/// Receives a piece, its id and the bytes of the text that became it.
type OnSpan<'f> = dyn FnMut(&[u8], u32, Range<usize>) + 'f;

impl SentencePiece {
    /// Reads the model from `bytes`, the whole file.
    ///
    /// # Errors
    /// The file is invalid, where SentencePiece also fails or its behavior is undefined; or the model is a word or
    /// character model, which no published translation model uses.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > LARGEST_FILE {
            return Err(Error::corrupt("", format!("at most {LARGEST_FILE} bytes"), bytes.len()));
        }
        let file = File::from_bytes(bytes)?;
        let mut unknown = None;
        let mut reserved = HashMap::new();
        let mut byte_ids = [u32::MAX; 256];
        let segmentable = |kind| matches!(kind, Kind::Normal | Kind::UserDefined | Kind::Unused);
        let pieces = &file.pieces;
        let all = || (0..pieces.len() as u32).filter_map(|id| Some((id, pieces.get(id)?)));
        for (id, text) in all() {
            let kind = pieces.kind(id);
            if !segmentable(kind) && reserved.insert(text.to_owned(), id).is_some() {
                return Err(twice(text));
            }
            match kind {
                Kind::Unknown if unknown.replace(id).is_some() => return Err(unknowns("two")),
                Kind::Byte => {
                    let byte = byte_of(text).filter(|_| file.byte_fallback);
                    let byte = byte.ok_or_else(|| {
                        let expected = "<0x00> to <0xFF> in a model with byte fallback";
                        Error::corrupt("", expected, format_args!("the byte {text:?}"))
                    })?;
                    byte_ids[usize::from(byte)] = id;
                }
                _ => (),
            }
        }
        let unknown = unknown.ok_or_else(|| unknowns("none"))?;
        if file.byte_fallback && byte_ids.contains(&u32::MAX) {
            let found = byte_ids.iter().filter(|&&id| id != u32::MAX).count();
            let found = format_args!("{found}, some are missing");
            return Err(Error::corrupt("byte fallback", "256 pieces for bytes", found));
        }
        let of = |wanted: fn(Kind) -> bool| {
            all().filter(move |&(id, _)| wanted(pieces.kind(id))).map(|(id, t)| (t.as_bytes(), id))
        };
        let trie =
            Trie::new(of(|kind| matches!(kind, Kind::Normal | Kind::UserDefined | Kind::Unused)));
        // Two pieces with the same text have one key: the trie does not return the second id.
        for (id, text) in all().filter(|&(id, _)| segmentable(pieces.kind(id))) {
            let found = trie.find(text.as_bytes());
            if found != Some(id) {
                return Err(twice(text));
            }
        }
        let normalizer = Normalizer::new(&file, Trie::new(of(|kind| kind == Kind::UserDefined)))?;
        let normal = || all().filter(|&(id, _)| pieces.kind(id) == Kind::Normal);
        // The initial value that the C++ code uses for the maximum: the smallest positive float.
        let highest = normal().fold(f32::MIN_POSITIVE, |most, (id, _)| most.max(pieces.score(id)));
        let lowest = normal().fold(f32::MAX, |least, (id, _)| least.min(pieces.score(id)));
        Ok(Self {
            trie,
            reserved,
            bytes: file.byte_fallback.then(|| Box::new(byte_ids)),
            unknown,
            unk_surface: file.unk_surface,
            normalizer,
            algorithm: file.algorithm,
            lowest,
            highest,
            pieces: file.pieces,
        })
    }

    /// The number of pieces; ids are below it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are no pieces. A model that was read has at least the unknown piece.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.len() == 0
    }

    /// The text of a piece, with `▁` for a space.
    #[must_use]
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.pieces.get(id)
    }

    /// The id of a piece; `None` where SentencePiece returns the id of the unknown piece.
    #[must_use]
    pub fn id(&self, piece: &str) -> Option<u32> {
        let reserved = self.reserved.get(piece).copied();
        reserved.or_else(|| self.trie.find(piece.as_bytes()))
    }

    /// The id of the unknown piece.
    #[must_use]
    pub fn unknown(&self) -> u32 {
        self.unknown
    }

    /// The ids of `text`.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for gigabytes of text, or if the file's rules produce more than 32 bytes for each byte of
    /// the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        self.segment(text, &mut |_, id| ids.push(id))?;
        Ok(ids)
    }

    /// The words of a model whose pieces are whole words, with the id of each; `None` if a piece continues a word.
    pub(crate) fn words(&self) -> Option<Vec<(u32, String)>> {
        let all = 0..self.pieces.len() as u32;
        let word = |id: u32| {
            let word = self.pieces.get(id)?.strip_prefix(SPACE)?;
            Some((id, word.replace(SPACE, "")))
        };
        all.filter(|&id| self.pieces.kind(id) == Kind::Normal).map(word).collect()
    }

    /// Calls `each` with every piece, as it occurs in the normalized text, and its id. An unknown piece is passed
    /// with the id of the unknown piece, or byte by byte.
    pub(crate) fn segment(
        &self,
        text: &str,
        each: &mut dyn FnMut(&[u8], u32),
    ) -> Result<(), Error> {
        let mut normalized = Vec::with_capacity(text.len() + text.len() / 4 + 8);
        self.normalize(text, &mut normalized)?;
        self.split(&normalized, &mut |range, id| each(&normalized[range], id));
        Ok(())
    }

    /// [`segment`](Self::segment), with the bytes of `text` that became each piece. Pieces that are bytes of one character
    /// have the whole character, and a piece includes the spaces that became part of it.
    pub(crate) fn segment_with_spans(
        &self,
        text: &str,
        each: &mut OnSpan<'_>,
    ) -> Result<(), Error> {
        let mut normalized = Traced::default();
        self.normalize(text, &mut normalized)?;
        self.split(normalized.bytes(), &mut |range, id| {
            let span = normalized.span(range.clone(), text.len());
            each(&normalized.bytes()[range], id, span);
        });
        Ok(())
    }

    fn normalize(&self, text: &str, normalized: &mut impl Sink) -> Result<(), Error> {
        if text.len() > LONGEST_TEXT {
            return Err(Error::too_long(LONGEST_TEXT, text.len()));
        }
        self.normalizer.normalize(text, normalized)?;
        let found = normalized.bytes().len();
        if found > LONGEST_TEXT {
            return Err(Error::too_long(LONGEST_TEXT, found));
        }
        Ok(())
    }

    /// Calls `each` with the range and the id of every piece of the normalized text.
    fn split(&self, normalized: &[u8], each: &mut dyn FnMut(Range<usize>, u32)) {
        let segments = match self.algorithm {
            Algorithm::Unigram => self.unigram(normalized),
            Algorithm::Bpe => self.bpe(normalized),
        };
        let mut unknown: Option<Segment> = None;
        for segment in segments {
            let range = |of: Segment| of.start as usize..of.end as usize;
            if segment.id != self.unknown {
                if let Some(run) = unknown.take() {
                    each(range(run), self.unknown);
                }
                each(range(segment), segment.id);
            } else if let Some(bytes) = &self.bytes {
                range(segment).for_each(|at| each(at..at + 1, bytes[usize::from(normalized[at])]));
            } else {
                // Adjacent unknown segments are one piece.
                unknown = Some(Segment { end: segment.end, ..unknown.unwrap_or(segment) });
            }
        }
        if let Some(run) = unknown {
            each(run.start as usize..run.end as usize, self.unknown);
        }
    }
}
