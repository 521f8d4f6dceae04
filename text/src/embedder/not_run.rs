//! Why a text was not run.

use core::fmt;

/// Why a text or a pair of texts has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRun {
    /// It has no tokens.
    NoTokens,
    /// It has more tokens than the model reads, and must not be cut.
    TooLong {
        /// Its tokens, including special ones.
        tokens: usize,
        /// The most that the model reads.
        most: usize,
    },
    /// It has no tokens beside the prompt, which the pooling leaves out.
    OnlyPrompt {
        /// The tokens of the prompt.
        tokens: usize,
    },
    /// The numbers that the model gives for it are NaN or infinite.
    NotFinite,
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTokens => f.write_str("there are no tokens in it"),
            Self::TooLong { tokens, most } => {
                write!(f, "{tokens} tokens, the model takes {most}")
            }
            Self::OnlyPrompt { tokens } => {
                write!(f, "the prompt has {tokens} tokens, and no other is left to be pooled")
            }
            Self::NotFinite => f.write_str("the model's numbers are NaN or infinite"),
        }
    }
}
