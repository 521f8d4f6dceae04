//! The input of a search for one sentence.

use super::limits::{SearchLimits, beyond, tokens};
use super::options::SearchOptions;
use crate::error::{Error, ErrorValue};

/// The input of a search for one sentence. The default is an empty prefix.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'r> {
    /// Tokens that must follow the decoder start (a hard prefix). Not part of hypotheses or scores.
    pub prefix: &'r [u32],
    /// Tokens of the source. Only [`SearchOptions::encoder_no_repeat_ngram`] and
    /// [`SearchOptions::encoder_repetition_penalty`] read them.
    pub source: &'r [u32],
    /// The random stream of sampling. Samples depend only on seed, stream and logits. A service that gives each
    /// request its own stream therefore gets the same tokens in every batch.
    pub stream: u64,
    /// Overrides [`SearchOptions::forced_bos`], for example for the target language of one sentence.
    pub forced_bos: Option<u32>,
}

impl Request<'_> {
    /// Does the checks of [`Search::admit`](super::Search::admit) without a search. The options must be [valid](SearchOptions::validate).
    ///
    /// # Errors
    /// The prompt is too long ([`Error::InvalidInput`]), or an id is outside the vocabulary ([`Error::Token`]).
    pub fn validate(&self, options: &SearchOptions, limits: &SearchLimits) -> Result<(), Error> {
        self.required_source(options, limits.source_tokens)?;
        self.longest(options, limits.max_target_length, limits.vocabulary).map(|_| ())
    }

    /// The source tokens to copy: all if the options read them, else none. An error if there are more than
    /// `capacity`.
    pub(super) fn required_source(
        &self,
        options: &SearchOptions,
        capacity: usize,
    ) -> Result<&[u32], Error> {
        if !options.reads_source() {
            return Ok(&[]);
        }
        let (setting, limit, found) = ("source", "source_tokens", self.source.len());
        if found > capacity {
            return Err(beyond(setting, (limit, capacity), capacity, found));
        }
        Ok(self.source)
    }

    /// The maximum length of the target in tokens, prompt included.
    pub(super) fn longest(
        &self,
        options: &SearchOptions,
        target: usize,
        vocabulary: usize,
    ) -> Result<usize, Error> {
        tokens("prefix", vocabulary, self.prefix)?;
        tokens("forced_bos", vocabulary, self.forced_bos.as_slice())?;
        let found = self.prefix.len() + 1;
        let wanted = options.max_new_tokens.map(|new| found.saturating_add(new));
        let bounds = wanted.into_iter().chain(options.max_length);
        let longest = bounds.min().unwrap_or(target);
        if longest > target {
            let new_tokens = options.max_new_tokens.unwrap_or(1);
            let expected_at_most = target.saturating_sub(new_tokens);
            return Err(long_prompt(expected_at_most, new_tokens, found));
        }
        if found >= longest {
            let expected_at_most = longest.saturating_sub(1);
            return Err(long_prompt(expected_at_most, 1, found));
        }
        Ok(longest)
    }
}

fn long_prompt(most: usize, new_tokens: usize, found: usize) -> Error {
    let text = &"at most {} tokens with the decoder start, to leave space for {} more";
    Error::invalid_input("prompt", ErrorValue::new(text, [most, new_tokens]), found)
}
