use core::fmt;
use simdformer_kernels::Error as KernelError;

use super::arch::{Family, Side};

/// Why a configuration could not be read, or does not describe a model.
///
/// [`Config::from_hugging_face`](super::Config::from_hugging_face) and
/// [`Config::set_generation_config`](super::Config::set_generation_config) can return every variant;
/// [`Config::validate`](super::Config::validate) only [`Zero`](Self::Zero) and those after it. Lengths are in
/// tokens and widths in numbers, never in bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not JSON.
    Json {
        /// Counted from 1.
        line: usize,
        /// Counted from 1; 0 before the first character of a line.
        column: usize,
        /// The message of the parser.
        message: String,
    },
    /// The text is JSON, but not an object.
    NotAnObject {
        /// The JSON type found.
        found: &'static str,
    },
    /// A key occurs twice, so one of its values would be ignored.
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// There are more values than in any real file; each needs more memory than its text.
    TooManyValues {
        /// The maximum number.
        limit: usize,
    },
    /// The weights are quantized in a scheme that this crate does not support.
    Quantized {
        /// The key that declares it.
        key: &'static str,
        /// The scheme, if the file names it.
        scheme: String,
    },
    /// A required key is missing.
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A value has the wrong type, including `null` where a value is required.
    WrongType {
        /// The key.
        key: &'static str,
        /// The expected type.
        expected: &'static str,
        /// The value found, shortened.
        found: String,
    },
    /// The model type is unknown.
    UnknownModelType {
        /// `model_type` as written.
        found: String,
    },
    /// The model type is known but not supported.
    RefusedModelType {
        /// `model_type` as written.
        found: String,
        /// The reason.
        reason: &'static str,
    },
    /// The activation is unknown.
    UnknownActivation {
        /// The name as written.
        found: String,
    },
    /// The position encoding is unknown.
    UnknownPositions {
        /// The name as written.
        found: String,
    },
    /// `is_encoder_decoder` is false.
    NotEncoderDecoder,
    /// A dimension or count is zero.
    Zero {
        /// Its name, in words or in the spelling of `generation_config.json`.
        what: &'static str,
    },
    /// A dimension exceeds its maximum: 2^28 for a vocabulary or the offset of a formula, 2^24 for others. Larger
    /// values could overflow products of dimensions.
    TooLarge {
        /// Its name.
        what: &'static str,
        /// Its value.
        found: usize,
        /// The maximum.
        limit: usize,
    },
    /// `d_model` is not a multiple of the number of heads.
    HeadsDoNotDivide {
        /// The stack.
        side: Side,
        /// The width.
        d_model: usize,
        /// The heads.
        heads: usize,
    },
    /// A tied matrix embeds two vocabularies of different sizes.
    TiedVocabulariesDiffer {
        /// Source vocabulary.
        source: usize,
        /// Target vocabulary.
        target: usize,
    },
    /// A number that no model can use, for example an epsilon that is NaN.
    BadNumber {
        /// Its name.
        what: &'static str,
        /// The valid range.
        expected: &'static str,
        /// Its value.
        found: f32,
    },
    /// [`Positions::HalfSplitClosed`](super::Positions::HalfSplitClosed) needs a width of at least 4, because its
    /// exponent is divided by `d / 2 - 1`.
    TooNarrowForPositions {
        /// The width.
        d_model: usize,
    },
    /// Learned positions are a table of finite length; [`Config::max_positions`](super::Config::max_positions) must
    /// give the length.
    LearnedPositionsWithoutLimit,
    /// Checkpoints of the family have no tensor for this part.
    NotInFamily {
        /// The family.
        family: Family,
        /// The part.
        part: &'static str,
    },
    /// The bucket formula does not support these relative positions.
    Relative {
        /// The stack.
        side: Side,
        /// The error.
        error: KernelError,
    },
    /// A token id is outside the target vocabulary.
    IdOutsideVocabulary {
        /// The id, in the spelling of `config.json` or `generation_config.json`.
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

/// Checks that every id is below `vocabulary`.
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
