//! What is wrong with a SentencePiece file.

use core::fmt;

/// Why a SentencePiece model cannot be read, or a text not be segmented.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SpmError {
    /// The file ends inside a field, or a length points beyond its end.
    Truncated,
    /// A field of a kind that protobuf no longer writes.
    Wire {
        /// The wire type; expected 0, 1, 2 or 5.
        found: u8,
    },
    /// A piece that is empty or not UTF-8.
    PieceText {
        /// Which.
        id: usize,
    },
    /// A piece, or the text of the unknown one, longer than any token.
    Long {
        /// The most bytes that are taken.
        limit: usize,
        /// Its own.
        found: usize,
    },
    /// A piece of a type that is none.
    PieceKind {
        /// Which piece.
        id: usize,
        /// Its type; expected 1 to 6.
        found: u64,
    },
    /// A score that is not a finite number.
    Score {
        /// Which piece.
        id: usize,
        /// Its score.
        found: f32,
    },
    /// A piece that comes twice.
    Twice {
        /// Its text.
        piece: String,
    },
    /// No unknown piece, or more than one; expected one.
    Unknowns,
    /// A byte's piece that is not `<0x00>` to `<0xFF>`, or in a model without byte fallback.
    Byte {
        /// Its text.
        piece: String,
    },
    /// Byte fallback without a piece for each of the 256 bytes.
    BytesMissing,
    /// Neither unigram (1) nor BPE (2).
    Algorithm {
        /// `model_type`: 3 is words, 4 characters.
        found: u64,
    },
    /// Rules of normalization that are cut short.
    Rules {
        /// Their length.
        bytes: usize,
    },
    /// A replacement longer than any that means something.
    Replacement {
        /// The most bytes that are taken.
        limit: usize,
        /// The longest in the file.
        found: usize,
    },
    /// Rules for the text that comes out, which no published model has.
    Denormalizer,
    /// A file larger than any model's.
    Large {
        /// The most bytes that are read.
        limit: usize,
        /// The file's.
        found: usize,
    },
    /// A text that is, or that normalization makes, too long.
    Text {
        /// The most bytes.
        limit: usize,
        /// The text's.
        found: usize,
    },
}

impl fmt::Display for SpmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => {
                write!(f, "the file ends inside a field: not a SentencePiece model, or cut short")
            }
            Self::Wire { found } => {
                write!(
                    f,
                    "expected a field of wire type 0, 1, 2 or 5, found {found}: not a SentencePiece model"
                )
            }
            Self::PieceText { id } => {
                write!(f, "piece {id}: expected text in UTF-8, found none or other bytes")
            }
            Self::Long { limit, found } => {
                write!(f, "expected pieces of at most {limit} bytes, found one of {found}")
            }
            Self::PieceKind { id, found } => {
                write!(f, "piece {id}: expected a type from 1 to 6, found {found}")
            }
            Self::Score { id, found } => {
                write!(f, "piece {id}: expected a finite score, found {found}")
            }
            Self::Twice { piece } => write!(f, "the piece {piece:?} comes twice"),
            Self::Unknowns => write!(
                f,
                "expected exactly one unknown piece: not a SentencePiece model, or cut short"
            ),
            Self::Byte { piece } => {
                write!(
                    f,
                    "expected <0x00> to <0xFF> in a model with byte fallback, found the byte {piece:?}"
                )
            }
            Self::BytesMissing => {
                write!(f, "byte fallback needs 256 pieces for bytes, some are missing")
            }
            Self::Algorithm { found } => {
                write!(
                    f,
                    "expected a unigram (1) or BPE (2) model, found type {found} (3: words, 4: characters)"
                )
            }
            Self::Rules { bytes } => {
                write!(f, "the {bytes} bytes of normalization rules are not units and replacements")
            }
            Self::Replacement { limit, found } => {
                write!(f, "expected replacements of at most {limit} bytes, found one of {found}")
            }
            Self::Denormalizer => {
                write!(f, "rules for the text that comes out (denormalizer_spec) are not supported")
            }
            Self::Large { limit, found } => {
                write!(f, "expected at most {limit} bytes, found {found}")
            }
            Self::Text { limit, found } => {
                write!(
                    f,
                    "expected at most {limit} bytes after normalization, found at least {found}"
                )
            }
        }
    }
}

impl core::error::Error for SpmError {}
