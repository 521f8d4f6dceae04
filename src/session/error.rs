//! Errors of plans and requests.

use crate::input_features::Features;
use crate::memory::MemoryError;
use crate::model::session_forward::PassError;
use crate::search::SearchError;
use core::fmt;
use simdformer_kernels::Error as KernelError;

/// Why a session could not be planned or a request was rejected. A rejected request changes nothing.
///
/// The message includes the text of an error that the variant holds, so [`source`](core::error::Error::source) returns
/// `None`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SessionError {
    /// A limit of the plan is zero.
    ZeroLimit {
        /// Which limit.
        limit: &'static str,
    },
    /// A limit of the plan is beyond the limit of the model.
    LimitBeyondModel {
        /// Which limit.
        limit: &'static str,
        /// Maximum of the model.
        expected_at_most: usize,
        /// The requested value.
        found: usize,
    },
    /// A limit of the plan is below another limit that it must reach.
    LimitBelow {
        /// Which limit.
        limit: &'static str,
        /// The other limit.
        other: &'static str,
        /// The value of the other limit.
        expected_at_least: usize,
        /// The requested value.
        found: usize,
    },
    /// The model has no decoder; only [`crate::Session::encoder_output`] is available.
    NoDecoder,
    /// The planned memory does not fit the address space.
    TooLarge,
    /// The system cannot allocate the planned memory.
    OutOfMemory {
        /// Bytes requested.
        bytes: usize,
    },
    /// The sessions of a call have more bytes than the [limit of the engine](crate::EngineBuilder::bytes), also with one
    /// slot.
    BytesBeyondLimit {
        /// The limit.
        expected_at_most: usize,
        /// The bytes of one slot.
        found: usize,
    },
    /// A call of an [`Engine`](crate::Engine) was made inside of another one (by a callback), for whose sessions it would
    /// wait for ever.
    InUse,
    /// The caller's buffer is too short.
    Buffer {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// The scratch of a probe or an alignment is too short: [`Session::traced`](crate::Session::traced) and
    /// [`Session::align`](crate::Session::align).
    Scratch {
        /// Floats needed, [`crate::Plan::trace_floats`].
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// A request is beyond the plan.
    BeyondPlan {
        /// Which limit of [`crate::Limits`], or `"sentences * beams"`: hypotheses of one step.
        limit: &'static str,
        /// Maximum of the plan.
        expected_at_most: usize,
        /// The value that the request needs.
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
        /// Maximum value of the option.
        expected_at_most: usize,
        /// The value of the option.
        found: usize,
    },
    /// `sentences` must have one element for each source.
    Sentences {
        /// Sources.
        expected: usize,
        /// Elements of `sentences`.
        found: usize,
    },
    /// Token types must be given for all sources or for none.
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
    /// An error in one source of a request.
    Source {
        /// The index of the source in the request, from 0.
        index: usize,
        /// The error.
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
    /// The sentence was released, belongs to another session, or is the default.
    UnknownSentence {
        /// The slot.
        found: u32,
    },
    /// The hypothesis was released, belongs to another session, or is the default.
    UnknownHypothesis {
        /// The slot.
        found: u32,
    },
    /// A hypothesis is listed twice in one step.
    RepeatedHypothesis {
        /// Its slot.
        found: u32,
    },
    /// A rewind to more tokens than the hypothesis has.
    Rewind {
        /// Number of tokens fed to it.
        expected_at_most: usize,
        /// Requested number of tokens.
        found: usize,
    },
    /// The sentence has as many hypotheses as planned.
    NoFreeHypothesis {
        /// Slot of the sentence.
        sentence: u32,
        /// Hypotheses of a sentence, [`crate::Limits::beams`].
        beams: usize,
    },
    /// A layer that the decoder does not have.
    Layer {
        /// Layers of the decoder.
        layers: usize,
        /// The requested layer.
        found: usize,
    },
    /// A head that the decoder does not have.
    Head {
        /// Heads of the decoder.
        heads: usize,
        /// The requested head.
        found: usize,
    },
    /// An alignment over no heads.
    NoHeads,
    /// Language detection without languages.
    NoLanguages,
    /// The output of an alignment is too short: it needs one float per target token and source token.
    Alignment {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// The flag of [`Session::set_cancel`](crate::Session::set_cancel) was set during the call or before it.
    Cancelled,
    /// A kernel rejected its operands: a bug in this crate, see [`KernelError`].
    Kernel(KernelError),
    /// The search rejected its options, for a reason other than the plan.
    Search(SearchError),
}

/// An error in one source of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SourceError {
    /// The source has no tokens.
    Empty,
    /// The encoder reads features, and the source has token ids.
    ExpectedFeatures {
        /// Numbers in a frame.
        bins: usize,
    },
    /// The encoder reads token ids, and the source has features.
    ExpectedTokens,
    /// The source has both token ids and features.
    TokensAndFeatures,
    /// The features have no frame.
    NoFrames,
    /// The frames of the source have another size than those of the model.
    Bins {
        /// Numbers in a frame of the model.
        expected: usize,
        /// Numbers in a frame of the source.
        found: usize,
    },
    /// The last frame is incomplete.
    BrokenFrame {
        /// Numbers in a frame.
        bins: usize,
        /// Numbers of the source.
        found: usize,
    },
    /// The source has more frames than planned.
    TooManyFrames {
        /// [`Limits::source_tokens`](crate::Limits::source_tokens).
        planned: usize,
        /// Maximum number of frames.
        expected_at_most: usize,
        /// Number of frames.
        found: usize,
    },
    /// A feature is NaN or infinite.
    Feature {
        /// The frame, from 0.
        frame: usize,
        /// The index in the frame, from 0.
        bin: usize,
        /// The value.
        found: f32,
    },
    /// The source is beyond the plan.
    BeyondPlan {
        /// Which limit of [`crate::Limits`].
        limit: &'static str,
        /// Maximum of the plan.
        expected_at_most: usize,
        /// The value that the source needs.
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
    /// The number of token types differs from the number of tokens.
    TokenTypes {
        /// Tokens.
        expected: usize,
        /// Types.
        found: usize,
    },
    /// A token type that the model does not have.
    TokenType {
        /// Index in the source.
        index: usize,
        /// Types of the model.
        types: usize,
        /// The type.
        found: u32,
    },
    /// The source has [options](crate::Source::options) that are invalid, or beyond the plan: a limit is named as in
    /// [`crate::Limits`].
    Options(SearchError),
    /// A request of a queue has options that the queue lends: it shares them by
    /// [`RequestQueue::options`](crate::RequestQueue::options).
    LentOptions,
    /// The prefix or the forced first token is outside the target vocabulary, or leaves no position for new tokens.
    Target(SearchError),
    /// A logits processor of the caller failed because a score was NaN or `+inf`. Without such a processor the source
    /// ends with [`Finish::NotFinite`](crate::search::Finish::NotFinite), and the other sources continue;
    /// [`Engine::generate`](crate::Engine::generate) makes this error of it.
    NotFinite {
        /// The position of the token to choose.
        position: usize,
    },
    /// The rules of the caller allowed no token.
    NothingAllowed {
        /// The position of the token to choose.
        position: usize,
    },
    /// A logits processor of the caller failed.
    Processor(
        /// Its reason.
        &'static str,
    ),
}

impl SourceError {
    /// The error of features for an encoder that reads frames of `bins` numbers (`None`: it reads ids) and at most
    /// `positions` positions.
    pub(crate) fn of_features(
        features: &Features<'_>,
        bins: Option<usize>,
        positions: usize,
    ) -> Option<Self> {
        let &Features { values, bins: found } = features;
        let non_finite = values.iter().position(|x| !x.is_finite());
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
                let at = non_finite?;
                Self::Feature { frame: at / bins, bin: at % bins, found: values[at] }
            }
        })
    }

    /// Converts an error of the search about this source.
    pub(crate) fn of(error: SearchError) -> Self {
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
            Self::Options(error) | Self::Target(error) => error.fmt(f),
            Self::LentOptions => f.write_str(
                "expected a request without options, which the queue shares; found lent options",
            ),
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
                "the model has no decoder: expected a call of `encoder_output`, which gives hidden states",
            ),
            Self::TooLarge => f.write_str("the planned memory does not fit the address space"),
            Self::OutOfMemory { bytes } => {
                write!(f, "the system does not give the {bytes} bytes that were planned")
            }
            Self::BytesBeyondLimit { expected_at_most, found } => write!(
                f,
                "the engine may plan {expected_at_most} bytes; one source at a time needs {found}"
            ),
            Self::InUse => f.write_str(
                "expected a call outside of the callbacks of another call, whose sessions it needs; found one inside",
            ),
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
            Self::UnknownHypothesis { found } => write!(
                f,
                "no such hypothesis of this session: hypothesis slot {found} is free or has another by now"
            ),
            Self::RepeatedHypothesis { found } => write!(f, "hypothesis slot {found} is named twice in one step"),
            Self::Rewind { expected_at_most, found } => write!(
                f,
                "the hypothesis has been fed {expected_at_most} tokens; it cannot go back to {found}"
            ),
            Self::NoFreeHypothesis { sentence, beams } => write!(
                f,
                "the sentence in slot {sentence} has all of its planned hypotheses, {beams} (`beams`)"
            ),
            Self::Layer { layers, found } => {
                write!(f, "the decoder has {layers} layers; layer {found} was requested")
            }
            Self::Head { heads, found } => {
                write!(f, "the decoder has {heads} heads; head {found} was requested")
            }
            Self::NoHeads => f.write_str("an alignment takes at least one head; found none"),
            Self::NoLanguages => f.write_str("expected at least one language, found none"),
            Self::Alignment { expected, found } => {
                write!(f, "the alignment needs {expected} floats; found {found}")
            }
            Self::Cancelled => f.write_str("the call was cancelled"),
            Self::Kernel(error) => write!(f, "a kernel rejected its operands: {error}"),
            Self::Search(error) => write!(f, "search: {error}"),
        }
    }
}

impl core::error::Error for SessionError {}

impl From<KernelError> for SessionError {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::TooLarge { .. } | KernelError::LargeView { .. } => Self::TooLarge,
            other => Self::Kernel(other),
        }
    }
}

impl From<PassError> for SessionError {
    fn from(error: PassError) -> Self {
        match error {
            PassError::Kernel(error) => error.into(),
            PassError::Cancelled => Self::Cancelled,
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
