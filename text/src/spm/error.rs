//! Errors of SentencePiece files.

use core::fmt;

/// Why a SentencePiece model cannot be read, or a text cannot be segmented.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SpmError {
    /// The file ends inside a field, or a length extends beyond its end.
    Truncated,
    /// A field has a wire type that protobuf no longer writes.
    Wire {
        /// The wire type; expected 0, 1, 2 or 5.
        found: u8,
    },
    /// A piece is empty or not UTF-8.
    PieceText {
        /// The id of the piece.
        id: usize,
    },
    /// A piece, or the text of the unknown piece, is longer than the limit of tokens.
    Long {
        /// The maximum number of bytes.
        limit: usize,
        /// The number of bytes found.
        found: usize,
    },
    /// A piece has an invalid type.
    PieceKind {
        /// The id of the piece.
        id: usize,
        /// Its type; expected 1 to 6.
        found: u64,
    },
    /// A score is not finite.
    Score {
        /// The id of the piece.
        id: usize,
        /// Its score.
        found: f32,
    },
    /// Two pieces have the same text.
    Twice {
        /// Its text.
        piece: String,
    },
    /// No unknown piece, or more than one; expected one.
    Unknowns,
    /// A byte piece is not `<0x00>` to `<0xFF>`, or the model has no byte fallback.
    Byte {
        /// Its text.
        piece: String,
    },
    /// The model has byte fallback but not a piece for each of the 256 bytes.
    BytesMissing,
    /// The algorithm is neither unigram (1) nor BPE (2).
    Algorithm {
        /// `model_type`: 3 is words, 4 characters.
        found: u64,
    },
    /// Normalization rules are truncated.
    Rules {
        /// Their length.
        bytes: usize,
    },
    /// A replacement is longer than the limit.
    Replacement {
        /// The maximum number of bytes.
        limit: usize,
        /// The longest replacement in the file.
        found: usize,
    },
    /// The file has denormalization rules, which no published model has.
    Denormalizer,
    /// The file is larger than the limit.
    Large {
        /// The maximum number of bytes.
        limit: usize,
        /// The size of the file.
        found: usize,
    },
    /// A text is too long, before or after normalization.
    Text {
        /// The maximum number of bytes.
        limit: usize,
        /// The number of bytes of the text.
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
