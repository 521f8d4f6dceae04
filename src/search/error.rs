//! What can be wrong with a search, and what was expected instead.

use core::fmt;

/// Why a search could not be planned, started or advanced. A setting goes by the name of its field in
/// [`SearchOptions`](super::SearchOptions), [`BeamOptions`](super::BeamOptions),
/// [`SampleOptions`](super::SampleOptions) or [`SearchLimits`](super::SearchLimits). Lengths are in
/// tokens, positions count from 0, the decoder start.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SearchError {
    /// A count that must be at least one is zero.
    Zero {
        /// The name of the setting.
        setting: &'static str,
    },
    /// A number lies outside its range, or is not a number.
    Number {
        /// The name of the setting.
        setting: &'static str,
        /// The range it must lie in.
        expected: &'static str,
        /// The value it had.
        found: f64,
    },
    /// A count is larger than what bounds it.
    TooMany {
        /// The name of the setting.
        setting: &'static str,
        /// The largest value allowed here.
        expected_at_most: usize,
        /// The value it had.
        found: usize,
    },
    /// A setting asks for more than the limits hold.
    BeyondLimit {
        /// The name of the setting.
        setting: &'static str,
        /// The name of the limit, of [`SearchLimits`](super::SearchLimits).
        limit: &'static str,
        /// The largest value of the setting within the limit.
        expected_at_most: usize,
        /// The value it had.
        found: usize,
    },
    /// The longest length has room for the decoder start alone.
    NoRoom {
        /// The longest length.
        found: usize,
    },
    /// There are no end tokens and no longest length: nothing would end the search.
    NoEnd,
    /// There is no decoder start: [`start`](super::SearchOptions::start) is
    /// [`NO_START`](super::SearchOptions::NO_START).
    NoStart,
    /// The beams do not divide into groups of one size.
    Groups {
        /// How many beams there are.
        beams: usize,
        /// Into how many groups they should divide.
        groups: usize,
    },
    /// Beams are drawn, and in groups: diversity is for beams that are not.
    SampledGroups {
        /// Into how many groups they should divide.
        groups: usize,
    },
    /// A token id is not in the vocabulary.
    Token {
        /// Where the id was given.
        setting: &'static str,
        /// The size of the vocabulary: ids must be smaller.
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
    /// The limits ask for more memory than can be addressed.
    TooLarge,
    /// The memory handed in is too short.
    Memory {
        /// Words of 4 bytes needed.
        expected: usize,
        /// Words handed in.
        found: usize,
    },
    /// A processor got too little scratch.
    Scratch {
        /// Words of 4 bytes needed.
        expected: usize,
        /// Words handed in.
        found: usize,
    },
    /// The decoder start and the prefix leave too little room for new tokens.
    PromptTooLong {
        /// The most tokens the prompt may have, the decoder start included.
        expected_at_most: usize,
        /// The tokens it has.
        found: usize,
        /// The new tokens that must find room: `max_new_tokens`, or 1.
        room: usize,
    },
    /// Every sentence slot is taken.
    NoFreeSlot {
        /// How many slots were planned.
        sentences: usize,
    },
    /// The sentence is not in the state that the call needs.
    SourceId {
        /// The state it should have.
        expected: &'static str,
        /// The sentence.
        found: u32,
    },
    /// Two slices that belong together have different lengths.
    Length {
        /// The name of the slice.
        slice: &'static str,
        /// The length it should have.
        expected: usize,
        /// The length it has.
        found: usize,
    },
    /// A logit that [`score_targets`](super::score_targets) was given is NaN or `+inf`. A search does not say
    /// this: it ends the sentence with [`Finish::NotFinite`](super::Finish::NotFinite).
    NotFinite {
        /// The sentence whose scores these are.
        sentence: u32,
        /// The position of the token that was to be chosen.
        position: usize,
    },
    /// The allowed-prefix function allowed no token.
    NothingAllowed {
        /// The sentence.
        sentence: u32,
        /// The position of the token that was to be chosen.
        position: usize,
    },
    /// A processor of the caller gave up.
    Processor(
        /// Its reason.
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
            Self::NoRoom { found } => write!(
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
            Self::PromptTooLong { expected_at_most, found, room } => write!(
                f,
                "prompt: expected at most {expected_at_most} tokens with the decoder start, to leave room for {room} more, found {found}"
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
