//! What can be wrong with a plan or a request.

use crate::error::KernelError;
use crate::features::Features;
use crate::memory::MemoryError;
use crate::search::SearchError;
use core::fmt;
use simdformer_kernels::AttentionError;

/// Why a session could not be planned or a request was refused. A refused request changes nothing.
///
/// What it says is the whole story: errors that it holds are not sources of it, so nothing is said
/// twice.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SessionError {
    /// A limit of the plan is zero.
    ZeroLimit {
        /// Which limit.
        limit: &'static str,
    },
    /// A limit of the plan is beyond what the model can do.
    LimitBeyondModel {
        /// Which limit.
        limit: &'static str,
        /// Most that the model allows.
        expected_at_most: usize,
        /// What was asked for.
        found: usize,
    },
    /// A limit of the plan makes another one useless.
    LimitBelow {
        /// Which limit.
        limit: &'static str,
        /// The other one.
        other: &'static str,
        /// The value of the other one.
        expected_at_least: usize,
        /// What was asked for.
        found: usize,
    },
    /// The model only encodes: [`crate::Session::encoder_output`] is what it has to say.
    NoDecoder,
    /// The planned memory does not fit the address space.
    TooLarge,
    /// The system does not give the planned memory.
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The caller's buffer is too short.
    Buffer {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// The scratch for a probe or an alignment is too short: [`Session::traced`](crate::Session::traced) and
    /// [`Session::align`](crate::Session::align).
    Scratch {
        /// Floats needed, [`crate::Plan::trace_floats`].
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// A request is beyond the plan.
    BeyondPlan {
        /// Which limit of [`crate::Limits`], or `"sentences * beams"`: rows of one step.
        limit: &'static str,
        /// Most that was planned.
        expected_at_most: usize,
        /// What the request needs.
        found: usize,
    },
    /// An option of a search is beyond the plan.
    OptionBeyondPlan {
        /// Which option of [`crate::search::SearchOptions`].
        option: &'static str,
        /// Which limit of [`crate::Limits`].
        limit: &'static str,
        /// The value of that limit.
        planned: usize,
        /// Most that the option may be.
        expected_at_most: usize,
        /// What it is.
        found: usize,
    },
    /// The slots of encoded sentences need as many places as there are sources.
    Sentences {
        /// Sources.
        expected: usize,
        /// Places.
        found: usize,
    },
    /// Types of tokens are given for each source or for none.
    TokenTypes {
        /// Sources.
        expected: usize,
        /// Lists of types.
        found: usize,
    },
    /// More sources than free sentence slots.
    NoFreeSentence {
        /// Free slots.
        expected_at_most: usize,
        /// Sources.
        found: usize,
    },
    /// Something is wrong with one source of a request.
    Source {
        /// Its number in the request, from 0.
        index: usize,
        /// What is wrong.
        error: SourceError,
    },
    /// A token id outside the vocabulary.
    Token {
        /// Index in its sequence, or in the rows of the step.
        index: usize,
        /// Size of the vocabulary.
        vocabulary: usize,
        /// The id.
        found: u32,
    },
    /// The sentence was released, is one of another session, or none at all.
    UnknownSentence {
        /// The slot.
        found: u32,
    },
    /// The hypothesis was released, is one of another session, or none at all.
    UnknownRow {
        /// The slot.
        found: u32,
    },
    /// A hypothesis was named twice in one step.
    RowTwice {
        /// Its slot.
        found: u32,
    },
    /// A hypothesis cannot go back to what it has not been fed.
    Rewind {
        /// Tokens that it has been fed.
        expected_at_most: usize,
        /// Tokens that were to stay.
        found: usize,
    },
    /// The sentence has as many hypotheses as were planned.
    NoFreeRow {
        /// Slot of the sentence.
        sentence: u32,
        /// Hypotheses of a sentence, [`crate::Limits::beams`].
        beams: usize,
    },
    /// A layer that the decoder does not have.
    Layer {
        /// Layers of the decoder.
        layers: usize,
        /// The layer asked for.
        found: usize,
    },
    /// A head that the decoder does not have.
    Head {
        /// Heads of the decoder.
        heads: usize,
        /// The head asked for.
        found: usize,
    },
    /// An alignment over no heads.
    NoHeads,
    /// A language is to be told among none.
    NoLanguages,
    /// The alignment needs one place per target token and source token.
    Alignment {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// A kernel refused its operands: a mistake in this crate, see [`KernelError`].
    Kernel(KernelError),
    /// The search refused its options, for another reason than the plan.
    Search(SearchError),
}

/// What is wrong with one source of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SourceError {
    /// It has no tokens.
    Empty,
    /// The encoder reads features, and this is of ids.
    ExpectedFeatures {
        /// Numbers in a frame.
        bins: usize,
    },
    /// The encoder reads ids, and this is of features.
    ExpectedTokens,
    /// It has both ids and features.
    TokensAndFeatures,
    /// Its features have no frame.
    NoFrames,
    /// Its frames are not those of the model.
    Bins {
        /// Numbers in a frame of the model.
        expected: usize,
        /// Numbers in a frame of the source.
        found: usize,
    },
    /// Its last frame is not whole.
    BrokenFrame {
        /// Numbers in a frame.
        bins: usize,
        /// Numbers of the source.
        found: usize,
    },
    /// It has more frames than were planned for.
    TooManyFrames {
        /// [`Limits::source_tokens`](crate::Limits::source_tokens).
        planned: usize,
        /// Frames that this allows.
        expected_at_most: usize,
        /// Frames.
        found: usize,
    },
    /// A number of its features is NaN or infinite.
    Feature {
        /// The frame, from 0.
        frame: usize,
        /// Its place in the frame, from 0.
        bin: usize,
        /// The number.
        found: f32,
    },
    /// It is beyond the plan.
    BeyondPlan {
        /// Which limit of [`crate::Limits`].
        limit: &'static str,
        /// Most that was planned.
        expected_at_most: usize,
        /// What the source needs.
        found: usize,
    },
    /// A token id outside the source vocabulary.
    Token {
        /// Index in the source.
        index: usize,
        /// Size of the vocabulary.
        vocabulary: usize,
        /// The id.
        found: u32,
    },
    /// Each of its tokens needs a type.
    TokenTypes {
        /// Tokens.
        expected: usize,
        /// Types.
        found: usize,
    },
    /// A type that the model does not have.
    TokenType {
        /// Index in the source.
        index: usize,
        /// Types of the model.
        types: usize,
        /// The type.
        found: u32,
    },
    /// Its prefix, or its forced first token, is outside the target vocabulary, or leaves no room.
    Target(SearchError),
    /// A processor of the caller gave up because a score was NaN or `+inf`. Without one that does, such a source
    /// is done with [`Finish::NotFinite`](crate::search::Finish::NotFinite), and the others go on.
    NotFinite {
        /// The position of the token that was to be chosen.
        position: usize,
    },
    /// The caller allowed no token.
    NothingAllowed {
        /// The position of the token that was to be chosen.
        position: usize,
    },
    /// A processor of the caller gave up.
    Processor(
        /// Its reason.
        &'static str,
    ),
}

impl SourceError {
    /// What is wrong with features for an encoder that reads frames of `bins` numbers, `None` where it reads ids, and at
    /// most `positions` positions.
    pub(crate) fn of_features(
        features: &Features<'_>,
        bins: Option<usize>,
        positions: usize,
    ) -> Option<Self> {
        let &Features { values, bins: found } = features;
        let odd = values.iter().position(|x| !x.is_finite());
        Some(match bins {
            None => Self::ExpectedTokens,
            Some(bins) if bins != found => Self::Bins { expected: bins, found },
            _ if values.is_empty() => Self::NoFrames,
            Some(bins) if !values.len().is_multiple_of(bins) => {
                Self::BrokenFrame { bins, found: values.len() }
            }
            _ if features.positions() > positions => Self::TooManyFrames {
                planned: positions,
                expected_at_most: positions.saturating_mul(Features::STRIDE),
                found: features.frames(),
            },
            Some(bins) => {
                let at = odd?;
                Self::Feature { frame: at / bins, bin: at % bins, found: values[at] }
            }
        })
    }

    /// What went wrong in a search about this source.
    pub(super) fn of(error: SearchError) -> Self {
        match error {
            SearchError::NotFinite { position, .. } => Self::NotFinite { position },
            SearchError::NothingAllowed { position, .. } => Self::NothingAllowed { position },
            SearchError::Processor(reason) => Self::Processor(reason),
            other => Self::Target(other),
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("expected at least one token, found none"),
            Self::ExpectedFeatures { bins } => {
                write!(f, "the encoder reads features, frames of {bins} numbers; found token ids")
            }
            Self::ExpectedTokens => f.write_str("the encoder reads token ids; found features"),
            Self::TokensAndFeatures => f.write_str("expected token ids or features, found both"),
            Self::NoFrames => f.write_str("expected at least one frame, found none"),
            Self::Bins { expected, found } => {
                write!(f, "the encoder reads frames of {expected} numbers; found frames of {found}")
            }
            Self::BrokenFrame { bins, found } => {
                write!(f, "expected whole frames of {bins} numbers, found {found} numbers")
            }
            Self::TooManyFrames { planned, expected_at_most, found } => write!(
                f,
                "the session was planned with `source_tokens` = {planned}, which are \
                 {expected_at_most} frames; found {found}"
            ),
            Self::Feature { frame, bin, found } => {
                write!(f, "expected finite features, found {found} at place {bin} of frame {frame}")
            }
            Self::BeyondPlan { limit, expected_at_most, found } => write!(
                f,
                "the session was planned with `{limit}` = {expected_at_most}; found {found} tokens"
            ),
            Self::Token { index, vocabulary, found } => {
                write!(f, "token {index} is id {found}, outside the vocabulary of {vocabulary}")
            }
            Self::TokenTypes { expected, found } => {
                write!(f, "expected a type for each of {expected} tokens, found {found}")
            }
            Self::TokenType { index, types, found } => write!(
                f,
                "token {index} is of type {found}, but the model has {types} (counted from 0)"
            ),
            Self::Target(error) => error.fmt(f),
            Self::NotFinite { position } => write!(
                f,
                "expected scores below +inf at position {position} of the target, found NaN or +inf"
            ),
            Self::NothingAllowed { position } => write!(
                f,
                "expected an allowed token at position {position} of the target, found none"
            ),
            Self::Processor(reason) => write!(f, "logits processor: {reason}"),
        }
    }
}

impl core::error::Error for SourceError {}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroLimit { limit } => {
                write!(f, "the limit `{limit}` must be at least 1; found 0")
            }
            Self::LimitBeyondModel { limit, expected_at_most, found } => write!(
                f,
                "the model allows a limit `{limit}` of at most {expected_at_most}; found {found}"
            ),
            Self::LimitBelow { limit, other, expected_at_least, found } => write!(
                f,
                "the limit `{limit}` must be at least `{other}`, {expected_at_least}; found {found}"
            ),
            Self::NoDecoder => f.write_str(
                "the model has no decoder: expected a call of `memory`, which gives hidden states",
            ),
            Self::TooLarge => f.write_str("the planned memory does not fit the address space"),
            Self::OutOfMemory { bytes } => {
                write!(f, "the system does not give the {bytes} bytes that were planned")
            }
            Self::Buffer { expected, found } => {
                write!(f, "the session takes a buffer of {expected} floats; found {found}")
            }
            Self::Scratch { expected, found } => write!(
                f,
                "the scratch must have {expected} floats (`Plan::trace_floats`); found {found}"
            ),
            Self::BeyondPlan { limit, expected_at_most, found } => write!(
                f,
                "the session was planned with `{limit}` = {expected_at_most}; this request needs {found}"
            ),
            Self::OptionBeyondPlan { option, limit, planned, expected_at_most, found } => write!(
                f,
                "the option `{option}` may be at most {expected_at_most} in a session that was planned \
                 with `{limit}` = {planned}; found {found}"
            ),
            Self::Sentences { expected, found } => {
                write!(
                    f,
                    "places for the slots of all sources, {expected}, are needed; found {found}"
                )
            }
            Self::TokenTypes { expected, found } => {
                write!(
                    f,
                    "types for the tokens of all sources, {expected}, are needed; found {found}"
                )
            }
            Self::NoFreeSentence { expected_at_most, found } => {
                write!(f, "free sentence slots: {expected_at_most}; this request needs {found}")
            }
            Self::Source { index, error } => write!(f, "source {index}: {error}"),
            Self::Token { index, vocabulary, found } => {
                write!(f, "token {index} is id {found}, outside the vocabulary of {vocabulary}")
            }
            Self::UnknownSentence { found } => write!(
                f,
                "no such sentence of this session: slot {found} is free or has another by now"
            ),
            Self::UnknownRow { found } => write!(
                f,
                "no such hypothesis of this session: row slot {found} is free or has another by now"
            ),
            Self::RowTwice { found } => write!(f, "row slot {found} is named twice in one step"),
            Self::Rewind { expected_at_most, found } => write!(
                f,
                "the hypothesis has been fed {expected_at_most} tokens; it cannot go back to {found}"
            ),
            Self::NoFreeRow { sentence, beams } => write!(
                f,
                "the sentence in slot {sentence} has all of its planned hypotheses, {beams} (`beams`)"
            ),
            Self::Layer { layers, found } => {
                write!(f, "the decoder has {layers} layers; layer {found} was asked for")
            }
            Self::Head { heads, found } => {
                write!(f, "the decoder has {heads} heads; head {found} was asked for")
            }
            Self::NoHeads => f.write_str("an alignment takes at least one head; found none"),
            Self::NoLanguages => f.write_str("expected at least one language, found none"),
            Self::Alignment { expected, found } => {
                write!(f, "the alignment needs {expected} floats; found {found}")
            }
            Self::Kernel(error) => write!(f, "a kernel refused its operands: {error}"),
            Self::Search(error) => write!(f, "search: {error}"),
        }
    }
}

impl core::error::Error for SessionError {}

impl From<KernelError> for SessionError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

impl From<AttentionError> for SessionError {
    fn from(error: AttentionError) -> Self {
        match error {
            AttentionError::TooLarge => Self::TooLarge,
            other => Self::Kernel(other.into()),
        }
    }
}

impl From<MemoryError> for SessionError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::TooLarge => Self::TooLarge,
            MemoryError::OutOfMemory { bytes } => Self::OutOfMemory { bytes },
        }
    }
}

impl From<SearchError> for SessionError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::TooLarge => Self::TooLarge,
            other => Self::Search(other),
        }
    }
}
