//! Decodes tokens to text incrementally, with the text that each kind of vocabulary holds back.

use crate::moses::{Detokenizer, is_space};
use crate::spm;

/// How the tokens of a vocabulary are decoded.
#[cfg(feature = "json")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {
    /// Characters that represent bytes.
    ByteLevel,
    /// A character that represents a space; `drops` removes that of the first token.
    Spaces { space: char, drops: bool },
    /// Words, and parts of words that begin with a prefix.
    Words { prefix: String, tidy: bool },
    /// Other decoders: the text is determined only after all tokens.
    Whole,
}

/// The tokens and bytes that were read but not yet emitted as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) spm: spm::Decoder,
    /// In a box, because it is larger than the rest and rarely used.
    pub(crate) words: Box<Detokenizer>,
    #[cfg(feature = "json")]
    pub(crate) bytes: Vec<u8>,
    /// Whether any token was read.
    #[cfg(feature = "json")]
    pub(crate) begun: bool,
    /// All ids, if the text is determined only at the end.
    #[cfg(feature = "json")]
    pub(crate) ids: Vec<u32>,
}

#[cfg(feature = "json")]
impl State {
    /// Appends the text of `token` under `rule`; nothing under [`Rule::Whole`].
    pub(crate) fn token(&mut self, rule: &Rule, token: &str, text: &mut String) {
        let first = !std::mem::replace(&mut self.begun, true);
        match rule {
            Rule::Whole => (),
            Rule::ByteLevel => {
                let before = self.bytes.len();
                for letter in token.chars() {
                    match byte_of(letter) {
                        Some(byte) => self.bytes.push(byte),
                        // A token with any other character is literal text.
                        None => {
                            self.bytes.truncate(before);
                            self.bytes.extend_from_slice(token.as_bytes());
                            break;
                        }
                    }
                }
                self.emit_bytes(false, text);
            }
            Rule::Spaces { space, drops } => {
                for letter in token.chars() {
                    match letter == *space {
                        true if first && *drops => (),
                        true => text.push(' '),
                        false => text.push(letter),
                    }
                }
            }
            Rule::Words { prefix, tidy } => {
                let word = match token.strip_prefix(prefix.as_str()) {
                    _ if first => token.to_owned(),
                    Some(part) => part.to_owned(),
                    None => format!(" {token}"),
                };
                text.push_str(&if *tidy { tidied(&word) } else { word });
            }
        }
    }

    /// Appends the complete characters of the bytes, or with `all` all bytes; invalid bytes become `U+FFFD`.
    pub(crate) fn emit_bytes(&mut self, all: bool, text: &mut String) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut rest = bytes.as_slice();
        loop {
            let (valid, bad) = match str::from_utf8(rest) {
                Ok(_) => (rest.len(), 0),
                Err(error) => match error.error_len() {
                    Some(bad) => (error.valid_up_to(), bad),
                    None if all => (error.valid_up_to(), rest.len() - error.valid_up_to()),
                    // These bytes may become a character.
                    None => {
                        let (valid, open) = rest.split_at(error.valid_up_to());
                        text.push_str(&String::from_utf8_lossy(valid));
                        self.bytes.extend_from_slice(open);
                        return;
                    }
                },
            };
            text.push_str(&String::from_utf8_lossy(&rest[..valid]));
            if bad == 0 {
                return;
            }
            text.push('\u{fffd}');
            rest = &rest[valid + bad..];
        }
    }
}

/// The inverse of GPT-2's alphabet: printable bytes represent themselves, the others are characters from U+0100.
#[cfg(feature = "json")]
fn byte_of(letter: char) -> Option<u8> {
    let own = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(letter) {
        byte if own(byte) => Some(byte as u8),
        letter @ 0x100..0x144 => {
            (0..=255u32).filter(|&b| !own(b)).nth((letter - 0x100) as usize).map(|b| b as u8)
        }
        _ => None,
    }
}

/// A word of WordPiece without the space before punctuation and contractions.
#[cfg(feature = "json")]
fn tidied(word: &str) -> String {
    const PAIRS: [(&str, &str); 11] = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    PAIRS.iter().fold(word.to_owned(), |word, (from, to)| {
        if word.contains(from) { word.replace(from, to) } else { word }
    })
}

/// Removes the spaces at both ends of a text that is passed in parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trim {
    /// Whether a character other than a space was read.
    begun: bool,
    /// Spaces that are dropped if no further text follows.
    held: String,
}

impl Trim {
    pub(crate) fn push(&mut self, part: &str, text: &mut String) {
        let part = if self.begun { part } else { part.trim_start_matches(is_space) };
        let inside = part.trim_end_matches(is_space);
        if !inside.is_empty() {
            self.begun = true;
            text.push_str(&self.held);
            self.held.clear();
            text.push_str(inside);
        }
        self.held.push_str(&part[inside.len()..]);
    }
}
