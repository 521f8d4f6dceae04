//! What can be wrong with a plan or a request.

use crate::error::KernelError;
use crate::memory::MemoryError;
use crate::search::SearchError;
use core::fmt;
use simdformer_kernels::AttentionError;

/// Why a session could not be planned or a request was refused. A refused request changes nothing.
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
    /// A request is beyond the plan.
    BeyondPlan {
        /// Which limit of [`crate::Limits`].
        limit: &'static str,
        /// Most that was planned.
        expected_at_most: usize,
        /// What the request needs.
        found: usize,
    },
    /// The slots of encoded sentences need as many places as there are sources.
    Sentences {
        /// Sources.
        expected: usize,
        /// Places.
        found: usize,
    },
    /// More sources than free sentence slots.
    NoFreeSentence {
        /// Free slots.
        expected_at_most: usize,
        /// Sources.
        found: usize,
    },
    /// A source sentence without tokens.
    EmptySource {
        /// Index of the sentence in the request.
        sentence: usize,
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
    /// The sentence was released, or never encoded by this session.
    UnknownSentence {
        /// The slot.
        found: u32,
    },
    /// The hypothesis was released, or never started in this session.
    UnknownRow {
        /// The slot.
        found: u32,
    },
    /// A hypothesis was named twice in one step.
    RowTwice {
        /// Its slot.
        found: u32,
    },
    /// All row slots of the sentence are taken, or hold the past of its living hypotheses.
    NoFreeRow {
        /// Slot of the sentence.
        sentence: u32,
        /// Row slots of a sentence.
        beams: usize,
    },
    /// A prefix can only be filled into a hypothesis that has not been forked.
    ForkedRow {
        /// Slot of the hypothesis.
        found: u32,
    },
    /// A layer that the decoder does not have.
    Layer {
        /// Layers of the decoder.
        layers: usize,
        /// The layer asked for.
        found: usize,
    },
    /// A head that the decoder does not have, or no head at all.
    Head {
        /// Heads of the decoder.
        heads: usize,
        /// The head asked for; the number of heads if none was.
        found: usize,
    },
    /// The alignment needs one place per target token and source token.
    Alignment {
        /// Floats needed.
        expected: usize,
        /// Floats given.
        found: usize,
    },
    /// A kernel refused its operands.
    Kernel(KernelError),
    /// The search refused its options or its input.
    Search(SearchError),
}

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
            Self::TooLarge => f.write_str("the planned memory does not fit the address space"),
            Self::OutOfMemory { bytes } => {
                write!(f, "the system does not give the {bytes} bytes that were planned")
            }
            Self::Buffer { expected, found } => {
                write!(f, "the session takes a buffer of {expected} floats; found {found}")
            }
            Self::BeyondPlan { limit, expected_at_most, found } => write!(
                f,
                "the session was planned with `{limit}` = {expected_at_most}; this request needs {found}"
            ),
            Self::Sentences { expected, found } => {
                write!(f, "{expected} sources need as many places for their slots; found {found}")
            }
            Self::NoFreeSentence { expected_at_most, found } => {
                write!(f, "{expected_at_most} sentence slots are free; this request needs {found}")
            }
            Self::EmptySource { sentence } => write!(f, "source sentence {sentence} has no tokens"),
            Self::Token { index, vocabulary, found } => {
                write!(f, "token {index} is id {found}, outside the vocabulary of {vocabulary}")
            }
            Self::UnknownSentence { found } => {
                write!(f, "no such sentence: slot {found} is free or has another by now")
            }
            Self::UnknownRow { found } => {
                write!(f, "no such hypothesis: row slot {found} is free or has another by now")
            }
            Self::RowTwice { found } => write!(f, "row slot {found} is named twice in one step"),
            Self::NoFreeRow { sentence, beams } => write!(
                f,
                "none of the {beams} row slots of the sentence in slot {sentence} is free"
            ),
            Self::ForkedRow { found } => write!(
                f,
                "the past of row slot {found} lies in several slots: a prefix must come before any fork"
            ),
            Self::Layer { layers, found } => {
                write!(f, "the decoder has {layers} layers; layer {found} was asked for")
            }
            Self::Head { heads, found } => {
                write!(f, "an alignment takes at least one head, each below {heads}; found {found}")
            }
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
        Self::Search(error)
    }
}
