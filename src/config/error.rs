use core::fmt;

use super::arch::{Family, Side};
use simdformer_kernels::relative::RelativeError;

/// Why a configuration could not be read, or does not describe a model.
///
/// Reading, [`Config::from_hugging_face`](super::Config::from_hugging_face) and
/// [`Config::set_generation_config`](super::Config::set_generation_config), can end in any of them;
/// [`Config::validate`](super::Config::validate) in [`Zero`](Self::Zero) and those after it. Lengths and widths are in
/// tokens and in numbers, never in bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not JSON.
    Json {
        /// Counted from 1.
        line: usize,
        /// Counted from 1; 0 before the first character of a line.
        column: usize,
        /// What the parser says.
        message: String,
    },
    /// The text is JSON, but not an object.
    NotAnObject {
        /// What it is instead.
        found: &'static str,
    },
    /// One key stands twice, so one of its values would be ignored.
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// More values than any real file has, each of which takes more memory than text.
    TooManyValues {
        /// The most that are accepted.
        limit: usize,
    },
    /// The weights are quantized, in a scheme of which nothing here reads the scales.
    Quantized {
        /// The key that says so.
        key: &'static str,
        /// The scheme, as far as the file names it.
        scheme: String,
    },
    /// A key without default is missing.
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A value of the wrong type, `null` where there must be something included.
    WrongType {
        /// The key.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is, shortened.
        found: String,
    },
    /// No such family of models.
    UnknownModelType {
        /// `model_type` as written.
        found: String,
    },
    /// An architecture that this crate knows and does not run.
    RefusedModelType {
        /// `model_type` as written.
        found: String,
        /// Why not.
        reason: &'static str,
    },
    /// No such activation.
    UnknownActivation {
        /// The name as written.
        found: String,
    },
    /// No such position encoding.
    UnknownPositions {
        /// The name as written.
        found: String,
    },
    /// `is_encoder_decoder` is false.
    NotEncoderDecoder,
    /// A dimension or count is zero.
    Zero {
        /// Which one, in words, or as `generation_config.json` spells it.
        what: &'static str,
    },
    /// A dimension beyond anything believable: 2^28 tokens of a vocabulary or of an offset by formula, 2^24 of anything
    /// else. Beyond, products of dimensions could overflow.
    TooLarge {
        /// Which one.
        what: &'static str,
        /// Its value.
        found: usize,
        /// The largest accepted.
        limit: usize,
    },
    /// `d_model` is not a multiple of the number of heads.
    HeadsDoNotDivide {
        /// In which stack.
        side: Side,
        /// The width.
        d_model: usize,
        /// The heads.
        heads: usize,
    },
    /// One matrix is to embed two vocabularies of different sizes.
    TiedVocabulariesDiffer {
        /// Source vocabulary.
        source: usize,
        /// Target vocabulary.
        target: usize,
    },
    /// A number that no model can use, such as an epsilon that is NaN.
    BadNumber {
        /// Which one.
        what: &'static str,
        /// What it must be.
        expected: &'static str,
        /// Its value.
        found: f32,
    },
    /// [`Positions::HalfSplitClosed`](super::Positions::HalfSplitClosed) needs a width of at least 4: its exponent is
    /// divided by `d / 2 - 1`.
    TooNarrowForPositions {
        /// The width.
        d_model: usize,
    },
    /// Learned positions are a table, and a table has an end:
    /// [`Config::max_positions`](super::Config::max_positions) must say which.
    LearnedPositionsWithoutLimit,
    /// A part of the network for which no checkpoint of the family has a tensor.
    NotInFamily {
        /// The family.
        family: Family,
        /// The part.
        part: &'static str,
    },
    /// Relative positions for which the formula of the buckets has no room.
    Relative {
        /// In which stack.
        side: Side,
        /// What is wrong.
        error: RelativeError,
    },
    /// A token id that the target vocabulary does not have.
    IdOutsideVocabulary {
        /// Which id, as `config.json` or `generation_config.json` spells it.
        what: &'static str,
        /// Its value.
        id: u32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { line, column, message } => {
                write!(f, "not JSON at line {line}, column {column}: {message}")
            }
            Self::NotAnObject { found } => write!(f, "expected a JSON object, found {found}"),
            Self::DuplicateKey { key } => write!(f, "the key \"{key}\" stands twice"),
            Self::TooManyValues { limit } => {
                write!(f, "more than {limit} values, which no real one has")
            }
            Self::Quantized { key, scheme } => write!(
                f,
                "\"{key}\": the weights are quantized ({scheme}), which is not read; take the model that they were \
                 made of, or save it dequantized"
            ),
            Self::MissingKey { key } => write!(f, "the key \"{key}\" is missing"),
            Self::WrongType { key, expected, found } => {
                write!(f, "\"{key}\" must be {expected}, found {found}")
            }
            Self::UnknownModelType { found } => {
                write!(f, "model_type \"{found}\" is not supported; the supported ones are ")?;
                for (i, family) in Family::ALL.into_iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, family.model_type())?;
                }
                Ok(())
            }
            Self::RefusedModelType { found, reason } => {
                write!(f, "model_type \"{found}\" is not supported: {reason}")
            }
            Self::UnknownActivation { found } => write!(
                f,
                "activation \"{found}\" is not supported; the supported ones are relu, gelu, gelu_new, \
                 gelu_pytorch_tanh, silu, swish, linear"
            ),
            Self::UnknownPositions { found } => {
                write!(
                    f,
                    "positions \"{found}\" are not supported; expected \"interleaved\" or \"half_split\""
                )
            }
            Self::NotEncoderDecoder => f.write_str(
                "is_encoder_decoder is false: only encoder-decoder models are supported",
            ),
            Self::Zero { what } => write!(f, "{what} must be at least 1, found 0"),
            Self::TooLarge { what, found, limit } => {
                write!(f, "{what} must be at most {limit}, found {found}")
            }
            Self::HeadsDoNotDivide { side, d_model, heads } => {
                write!(
                    f,
                    "d_model {d_model} is not a multiple of the {} heads, {heads}",
                    side.name()
                )
            }
            Self::TiedVocabulariesDiffer { source, target } => write!(
                f,
                "source and target share one embedding, but the source vocabulary is {source} and the target's {target}"
            ),
            Self::BadNumber { what, expected, found } => {
                write!(f, "{what} must be {expected}, found {found}")
            }
            Self::TooNarrowForPositions { d_model } => {
                write!(
                    f,
                    "half-split positions with an offset need d_model of at least 4, found {d_model}"
                )
            }
            Self::LearnedPositionsWithoutLimit => {
                f.write_str("learned positions need max_position_embeddings, found none")
            }
            Self::NotInFamily { family, part } => write!(
                f,
                "no {} checkpoint has {part}; weights of your own may be of Family::Plain, which has names for all",
                family.model_type()
            ),
            Self::Relative { side, error } => write!(f, "{}: {error}", side.name()),
            Self::IdOutsideVocabulary { what, id, vocabulary } => {
                write!(f, "{what} must be below the target vocabulary of {vocabulary}, found {id}")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

/// Every id is below `vocabulary`.
pub(super) fn ids_inside(
    what: &'static str,
    ids: &[u32],
    vocabulary: usize,
) -> Result<(), ConfigError> {
    match ids.iter().find(|&&id| id as usize >= vocabulary) {
        Some(&id) => Err(ConfigError::IdOutsideVocabulary { what, id, vocabulary }),
        None => Ok(()),
    }
}
