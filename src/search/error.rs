//! Errors of a search, with the expected and the actual value.

use core::fmt;

/// Why a search could not be planned, started or advanced. A setting is named like its field in
/// [`SearchOptions`](super::SearchOptions), [`BeamOptions`](super::BeamOptions),
/// [`SampleOptions`](super::SampleOptions) or [`SearchLimits`](super::SearchLimits). Lengths are in tokens;
/// position 0 is the decoder start.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SearchError {
    /// A count that must be at least one is zero.
    Zero {
        /// The name of the setting.
        setting: &'static str,
    },
    /// A number is out of its range or NaN.
    Number {
        /// The name of the setting.
        setting: &'static str,
        /// The valid range.
        expected: &'static str,
        /// The value it had.
        found: f64,
    },
    /// A count exceeds its maximum.
    TooMany {
        /// The name of the setting.
        setting: &'static str,
        /// The largest value allowed here.
        expected_at_most: usize,
        /// The value it had.
        found: usize,
    },
    /// A setting exceeds the limits.
    BeyondLimit {
        /// The name of the setting.
        setting: &'static str,
        /// The name of the limit in [`SearchLimits`](super::SearchLimits).
        limit: &'static str,
        /// The largest value of the setting that the limit allows.
        expected_at_most: usize,
        /// The value it had.
        found: usize,
    },
    /// The maximum length leaves no token after the decoder start.
    NoSpace {
        /// The maximum length.
        found: usize,
    },
    /// There are no end tokens and no maximum length, so the search would not end.
    NoEnd,
    /// There is no decoder start: [`start`](super::SearchOptions::start) is
    /// [`NO_START`](super::SearchOptions::NO_START).
    NoStart,
    /// The number of beams is not a multiple of the number of groups.
    Groups {
        /// The number of beams.
        beams: usize,
        /// The number of groups.
        groups: usize,
    },
    /// Beam sampling with several groups. Diverse groups are only for beam search without sampling.
    SampledGroups {
        /// The number of groups.
        groups: usize,
    },
    /// A token id is not in the vocabulary.
    Token {
        /// The setting or argument that contains the id.
        setting: &'static str,
        /// The size of the vocabulary; valid ids are smaller.
        vocabulary: usize,
        /// The id.
        found: u32,
    },
    /// A list of tokens that must not be empty is empty.
    EmptySequence {
        /// The name of the setting.
        setting: &'static str,
    },
    /// The same token sequence is biased twice.
    DuplicateBias {
        /// The index of the second entry.
        entry: usize,
    },
    /// The settings forbid every token of the vocabulary.
    EverythingSuppressed,
    /// The limits need more memory than can be addressed.
    TooLarge,
    /// The memory from the caller is too short.
    Memory {
        /// Words of 4 bytes needed.
        expected: usize,
        /// Words in the memory.
        found: usize,
    },
    /// The scratch of a processor is too short.
    Scratch {
        /// Words of 4 bytes needed.
        expected: usize,
        /// Words in the scratch.
        found: usize,
    },
    /// The decoder start and the prefix leave too few positions for new tokens.
    PromptTooLong {
        /// The maximum number of tokens of the prompt, the decoder start included.
        expected_at_most: usize,
        /// The number of tokens of the prompt.
        found: usize,
        /// The number of new tokens that must fit: `max_new_tokens`, or 1.
        new_tokens: usize,
    },
    /// Every sentence slot is taken.
    NoFreeSlot {
        /// The number of planned slots.
        sentences: usize,
    },
    /// The sentence is not in the state that the call needs.
    SourceId {
        /// The state it should have.
        expected: &'static str,
        /// The sentence.
        found: u32,
    },
    /// A slice has the wrong length.
    Length {
        /// The name of the slice.
        slice: &'static str,
        /// The expected length.
        expected: usize,
        /// The actual length.
        found: usize,
    },
    /// A logit that [`score_targets`](super::score_targets) received is NaN or `+inf`. A search does not return
    /// this error: it ends the sentence with [`Finish::NotFinite`](super::Finish::NotFinite).
    NotFinite {
        /// The sentence of the scores.
        sentence: u32,
        /// The position of the token to choose.
        position: usize,
    },
    /// The allowed-prefix function allowed no token.
    NothingAllowed {
        /// The sentence.
        sentence: u32,
        /// The position of the token to choose.
        position: usize,
    },
    /// A processor of the caller failed.
    Processor(
        /// The reason that the processor gave.
        &'static str,
    ),
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Zero { setting } => write!(f, "{setting}: expected at least 1, found 0"),
            Self::Number { setting, expected, found } => {
                write!(f, "{setting}: expected a number {expected}, found {found}")
            }
            Self::TooMany { setting, expected_at_most, found } => {
                write!(f, "{setting}: expected at most {expected_at_most}, found {found}")
            }
            Self::BeyondLimit { setting, limit, expected_at_most, found } => write!(
                f,
                "{setting}: expected at most {expected_at_most}, which the limit {limit} holds, found {found}"
            ),
            Self::NoSpace { found } => write!(
                f,
                "max_length: expected at least 2, the decoder start and a token, found {found}"
            ),
            Self::NoEnd => {
                write!(f, "expected end tokens (eos), max_new_tokens or max_length, found none")
            }
            Self::NoStart => write!(
                f,
                "start: expected the token that the decoder reads first (decoder_start_token_id in the \
                 configuration), found none"
            ),
            Self::Groups { beams, groups } => {
                write!(f, "expected groups that divide {beams} beams, found {groups}")
            }
            Self::SampledGroups { groups } => {
                write!(f, "beam sampling: expected 1 group of beams, found {groups}")
            }
            Self::Token { setting, vocabulary, found } => {
                write!(f, "{setting}: expected a token below {vocabulary}, found {found}")
            }
            Self::EmptySequence { setting } => {
                write!(f, "{setting}: expected at least one token, found an empty sequence")
            }
            Self::DuplicateBias { entry } => {
                write!(f, "expected one bias per sequence, entry {entry} repeats an earlier one")
            }
            Self::EverythingSuppressed => {
                write!(f, "expected a token that may be chosen, found all suppressed")
            }
            Self::TooLarge => write!(f, "the limits need more memory than can be addressed"),
            Self::Memory { expected, found } => {
                write!(f, "search memory: expected {expected} words, found {found}")
            }
            Self::Scratch { expected, found } => {
                write!(f, "processor scratch: expected {expected} words, found {found}")
            }
            Self::PromptTooLong { expected_at_most, found, new_tokens } => write!(
                f,
                "prompt: expected at most {expected_at_most} tokens with the decoder start, to leave space for {new_tokens} more, found {found}"
            ),
            Self::NoFreeSlot { sentences } => {
                write!(f, "expected a free sentence slot, found all {sentences} taken")
            }
            Self::SourceId { expected, found } => {
                write!(f, "expected {expected} sentence, sentence {found} is not")
            }
            Self::Length { slice, expected, found } => {
                write!(f, "{slice}: expected length {expected}, found {found}")
            }
            Self::NotFinite { sentence, position } => {
                write!(
                    f,
                    "expected scores below +inf, found NaN or +inf in sentence {sentence} at position {position}"
                )
            }
            Self::NothingAllowed { sentence, position } => {
                write!(
                    f,
                    "expected an allowed token, found none in sentence {sentence} at position {position}"
                )
            }
            Self::Processor(reason) => write!(f, "logits processor: {reason}"),
        }
    }
}

impl core::error::Error for SearchError {}
