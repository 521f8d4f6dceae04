//! Reads the file: a protobuf message `ModelProto`, without a schema compiler.
//!
//! Only the fields that change ids or text are read. As protobuf specifies, a nested message that occurs twice is
//! merged, and the last one of repeated numbers is used.

use crate::error::Error;
use crate::limits;

/// The type of a piece: `SentencePiece.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    /// Matched before all other pieces.
    UserDefined,
    /// In the vocabulary, but never in a segmentation.
    Unused,
    Byte,
}

/// The algorithm: `TrainerSpec.ModelType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Unigram,
    Bpe,
}

/// The vocabulary: the concatenated texts of all pieces.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    text: String,
    ends: Vec<u32>,
    pub(super) scores: Vec<f32>,
    pub(super) kinds: Vec<Kind>,
}

impl Pieces {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, id: u32) -> Option<&str> {
        let id = id as usize;
        let end = *self.ends.get(id)? as usize;
        let start = match id.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        self.text.get(start..end)
    }

    pub(super) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Unknown)
    }

    pub(super) fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().unwrap_or(0.0)
    }

    fn push(&mut self, text: &str, score: f32, kind: Kind) {
        self.text.push_str(text);
        self.ends.push(self.text.len() as u32);
        self.scores.push(score);
        self.kinds.push(kind);
    }
}

/// The fields of `ModelProto` that define how text becomes ids, with protobuf's defaults.
#[derive(Debug)]
pub(super) struct File {
    pub(super) pieces: Pieces,
    pub(super) algorithm: Algorithm,
    pub(super) byte_fallback: bool,
    pub(super) whitespace_as_suffix: bool,
    pub(super) unk_surface: String,
    pub(super) rules: Vec<u8>,
    pub(super) add_dummy_prefix: bool,
    pub(super) remove_extra_whitespaces: bool,
    pub(super) escape_whitespaces: bool,
}

impl File {
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut file = Self {
            pieces: Pieces::default(),
            algorithm: Algorithm::Unigram,
            byte_fallback: false,
            whitespace_as_suffix: false,
            unk_surface: " \u{2047} ".to_owned(),
            rules: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        };
        let mut message = Message { bytes };
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (1, Value::Bytes(piece)) => file.piece(piece)?,
                (2, Value::Bytes(trainer)) => file.trainer(trainer)?,
                (3, Value::Bytes(normalizer)) => file.normalizer(normalizer)?,
                (5, Value::Bytes(denormalizer)) => {
                    let mut message = Message { bytes: denormalizer };
                    while let Some((field, value)) = message.next()? {
                        if matches!((field, value), (2, Value::Bytes(rules)) if !rules.is_empty()) {
                            let expected = "no rules for the text that comes out";
                            return Err(Error::unsupported("denormalizer_spec", expected, "some"));
                        }
                    }
                }
                _ => (),
            }
        }
        Ok(file)
    }

    fn piece(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let id = self.pieces.len();
        let (mut text, mut score, mut kind) = ("", 0.0, Kind::Normal);
        let mut message = Message { bytes };
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (1, Value::Bytes(bytes)) => {
                    text = str::from_utf8(bytes).map_err(|_| no_text(id))?;
                }
                (2, Value::Word(bits)) => score = f32::from_bits(bits),
                (3, Value::Varint(number)) => {
                    kind = match number {
                        1 => Kind::Normal,
                        2 => Kind::Unknown,
                        3 => Kind::Control,
                        4 => Kind::UserDefined,
                        5 => Kind::Unused,
                        6 => Kind::Byte,
                        found => {
                            return Err(Error::corrupt(
                                piece_name(id),
                                "a type from 1 to 6",
                                found,
                            ));
                        }
                    }
                }
                _ => (),
            }
        }
        if text.is_empty() {
            return Err(no_text(id));
        }
        short(text)?;
        if !score.is_finite() {
            return Err(Error::corrupt(piece_name(id), "a finite score", score));
        }
        // Adding 0.0 converts minus zero to zero, because scores are ordered.
        self.pieces.push(text, score + 0.0, kind);
        Ok(())
    }

    fn trainer(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut message = Message { bytes };
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (3, Value::Varint(number)) => {
                    self.algorithm = match number {
                        1 => Algorithm::Unigram,
                        2 => Algorithm::Bpe,
                        found => {
                            let found = format_args!("type {found} (3: words, 4: characters)");
                            let expected = "a unigram (1) or BPE (2) model";
                            return Err(Error::unsupported("", expected, found));
                        }
                    }
                }
                (24, Value::Varint(flag)) => self.whitespace_as_suffix = flag != 0,
                (35, Value::Varint(flag)) => self.byte_fallback = flag != 0,
                (44, Value::Bytes(surface)) => {
                    self.unk_surface = String::from_utf8_lossy(surface).into_owned();
                    short(&self.unk_surface)?;
                }
                _ => (),
            }
        }
        Ok(())
    }

    fn normalizer(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut message = Message { bytes };
        while let Some((field, value)) = message.next()? {
            match (field, value) {
                (2, Value::Bytes(rules)) => self.rules = rules.to_vec(),
                (3, Value::Varint(flag)) => self.add_dummy_prefix = flag != 0,
                (4, Value::Varint(flag)) => self.remove_extra_whitespaces = flag != 0,
                (5, Value::Varint(flag)) => self.escape_whitespaces = flag != 0,
                _ => (),
            }
        }
        Ok(())
    }
}

/// Rejects a piece whose text is longer than the limit of tokens: it is compared at every position of a text, and
/// written for every id.
fn short(text: &str) -> Result<(), Error> {
    let (limit, found) = (limits::TOKEN_BYTES, text.len());
    if found <= limit {
        return Ok(());
    }
    let expected = format!("pieces of at most {limit} bytes");
    Err(Error::corrupt("", expected, format_args!("one of {found}")))
}

/// The piece `id`, as an error names it.
fn piece_name(id: usize) -> String {
    format!("piece {id}")
}

fn no_text(id: usize) -> Error {
    Error::corrupt(piece_name(id), "text in UTF-8", "none or other bytes")
}

fn truncated() -> Error {
    let found = "one that ends inside a field: not a SentencePiece model, or cut short";
    Error::corrupt("", "a whole file", found)
}

/// The unread fields of a message.
struct Message<'b> {
    bytes: &'b [u8],
}

enum Value<'b> {
    Varint(u64),
    Word(u32),
    /// Eight bytes; no field that is used has this type.
    Long,
    Bytes(&'b [u8]),
}

impl<'b> Message<'b> {
    /// The number and value of the next field; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Value<'b>)>, Error> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Long
            }
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| truncated())?;
                Value::Bytes(self.take(len)?)
            }
            5 => {
                let mut word = [0; 4];
                word.copy_from_slice(self.take(4)?);
                Value::Word(u32::from_le_bytes(word))
            }
            found => {
                let found = format_args!("{found}: not a SentencePiece model");
                return Err(Error::corrupt("", "a field of wire type 0, 1, 2 or 5", found));
            }
        };
        Ok(Some((tag >> 3, value)))
    }

    fn take(&mut self, len: usize) -> Result<&'b [u8], Error> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or_else(truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first().ok_or_else(truncated)?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(truncated())
    }
}

/// The byte that `<0xNN>` represents.
pub(super) fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let upper = |digit: u8| digit.is_ascii_digit() || (b'A'..=b'F').contains(&digit);
    (digits.len() == 2 && digits.bytes().all(upper)).then(|| u8::from_str_radix(digits, 16).ok())?
}
