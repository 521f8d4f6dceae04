//! Decodes ids to text, one at a time. The text of an id may depend on the next id.

use super::file::{Kind, byte_of};
use super::model::SentencePiece;
use super::normalized::SPACE;

/// The meaning of a vocabulary id.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Token<'t> {
    /// A piece of the model.
    Id(u32),
    /// A piece of another model, which this model does not have: its text is used unchanged.
    Foreign(&'t str),
}

/// The state of a decoder: the bytes of byte pieces that do not yet form a character, and whether the start of the
/// text, whose spaces are dropped, is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoder {
    bytes: [u8; 4],
    len: usize,
    /// Whether any text was emitted.
    any: bool,
    /// Whether the previous piece began with the dropped space.
    dropped: bool,
}

impl Decoder {
    /// Appends the text that is determined by `token` and the tokens before it.
    pub(crate) fn push(&mut self, model: &SentencePiece, token: Token<'_>, text: &mut String) {
        let before = text.len();
        let (piece, kind) = match token {
            Token::Foreign(piece) => (piece, None),
            Token::Id(id) => match model.piece(id) {
                Some(piece) => (piece, Some(model.pieces.kind(id))),
                None => return,
            },
        };
        if kind == Some(Kind::Byte) {
            if let Some(byte) = byte_of(piece) {
                self.byte(byte, text);
            }
            self.any |= text.len() > before;
            return;
        }
        self.finish(text);
        self.any |= text.len() > before;
        let beginning = !self.dropped && !self.any;
        self.dropped = false;
        match kind {
            None => text.push_str(piece),
            Some(Kind::Control) => (),
            Some(Kind::Unknown) => text.push_str(&model.unk_surface),
            Some(_) => {
                let mut piece = piece;
                let normalizer = &model.normalizer;
                if beginning
                    && (normalizer.add_dummy_prefix || normalizer.remove_extra_whitespaces)
                    && let Some(rest) = piece.strip_prefix(SPACE)
                {
                    piece = rest;
                    self.dropped = !normalizer.remove_extra_whitespaces;
                }
                for (i, part) in piece.split(SPACE).enumerate() {
                    if i > 0 {
                        text.push(' ');
                    }
                    text.push_str(part);
                }
            }
        }
        self.any |= text.len() > before;
    }

    /// Appends the pending bytes of an incomplete character, one `U+FFFD` per byte.
    pub(crate) fn finish(&mut self, text: &mut String) {
        text.extend((0..self.len).map(|_| '\u{fffd}'));
        self.len = 0;
    }

    /// Whether bytes are held back that do not form a character yet.
    pub(crate) fn holds_bytes(&self) -> bool {
        self.len > 0
    }

    fn byte(&mut self, byte: u8, text: &mut String) {
        self.bytes[self.len] = byte;
        self.len += 1;
        // The bytes are empty or the start of a character, so this loop ends after at most four iterations.
        while self.len > 0 {
            match str::from_utf8(&self.bytes[..self.len]) {
                Ok(character) => {
                    text.push_str(character);
                    self.len = 0;
                }
                // The start of a character.
                Err(error) if error.error_len().is_none() && error.valid_up_to() == 0 => return,
                Err(error) => {
                    let valid = error.valid_up_to();
                    let taken = if valid > 0 {
                        text.push_str(&String::from_utf8_lossy(&self.bytes[..valid]));
                        valid
                    } else {
                        text.push('\u{fffd}');
                        1
                    };
                    self.bytes.copy_within(taken..self.len, 0);
                    self.len -= taken;
                }
            }
        }
    }
}

impl SentencePiece {
    /// The text of `ids`; ids outside the vocabulary have no text.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let (mut decoder, mut text) = (Decoder::default(), String::new());
        for &id in ids.iter().filter(|&&id| (id as usize) < self.len()) {
            decoder.push(self, Token::Id(id), &mut text);
        }
        decoder.finish(&mut text);
        text
    }
}
