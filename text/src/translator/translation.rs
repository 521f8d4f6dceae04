//! What is known of a translated sentence, and the counts of a translator.

use core::fmt;
use simdformer::search::Finish;

/// A translated sentence.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Translation {
    /// The best text; empty for a blank sentence, and if there is a [`failure`](Self::failure).
    pub text: String,
    /// Its tokens, with the end token if there is one.
    pub tokens: Vec<u32>,
    /// The score of the search, see [`Hypothesis::score`](simdformer::search::Hypothesis::score). NaN in greedy search
    /// without [`SearchOptions::scores`](simdformer::search::SearchOptions::scores).
    pub score: f32,
    /// The natural logarithm of the probability of each token. Empty if the search does not compute it: with beams, and
    /// in greedy search without scores.
    pub token_scores: Vec<f32>,
    /// Why the text ended; `None` if the model was not run, because the sentence is blank or too long.
    pub finish: Option<Finish>,
    /// Further sequences, best first, if
    /// [`num_return_sequences`](simdformer::search::SearchOptions::num_return_sequences) asks for more than one.
    pub alternatives: Vec<Alternative>,
    /// The number of tokens of the whole sentence, special ones included.
    pub source_tokens: usize,
    /// Whether only the first tokens of the sentence were translated.
    pub truncated: bool,
    /// Why there is no text.
    pub failure: Option<Failure>,
}

/// A sequence that is not the best one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alternative {
    /// The text.
    pub text: String,
    /// Its tokens, with the end token if there is one.
    pub tokens: Vec<u32>,
    /// The score of the search.
    pub score: f32,
}

/// Why a sentence has no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// It has more tokens than the model accepts.
    TooLong {
        /// The tokens of the sentence, special ones included.
        tokens: usize,
        /// The tokens that the model accepts.
        most: usize,
    },
    /// The scores of the model are NaN or infinite.
    NotFinite,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { tokens, most } => write!(f, "{tokens} tokens, the model takes {most}"),
            Self::NotFinite => f.write_str("the model's scores are NaN or infinite"),
        }
    }
}

impl Translation {
    /// The mean of [`token_scores`](Self::token_scores); `None` if there are none.
    #[must_use]
    pub fn mean_log_probability(&self) -> Option<f32> {
        let sum: f64 = self.token_scores.iter().map(|&score| f64::from(score)).sum();
        let count = self.token_scores.len();
        (count > 0).then(|| (sum / count as f64) as f32)
    }

    /// The lowest of [`token_scores`](Self::token_scores): how sure the model is of the word it is least sure of.
    #[must_use]
    pub fn min_log_probability(&self) -> Option<f32> {
        self.token_scores.iter().copied().reduce(f32::min)
    }
}

/// What a [`Translator`](super::Translator) did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Sentences, blank ones and failed ones included.
    pub sentences: u64,
    /// Source tokens that the model read.
    pub source_tokens: u64,
    /// Tokens that the model wrote, those of the best sequences.
    pub target_tokens: u64,
    /// Sentences of which only the first tokens were translated.
    pub truncated: u64,
    /// Sentences without a translation.
    pub failed: u64,
    /// Sessions that were planned.
    pub plans: u64,
}
