//! The rule about times in the text of a model that transcribes.

use super::error::SearchError;
use super::logits::{log_sum_exp, maximum};
use super::processors::{Context, LogitsProcessor};

/// Times come in pairs, do not run backwards, and come where they are likelier together than any word alone (Radford et
/// al. 2022, section 4.5). `WhisperTimeStampLogitsProcessor` of transformers: a processor for
/// [`Hooks`](super::Hooks), where it belongs before all others.
///
/// Tokens are words below `eos`, a few that are neither, `no_timestamps` the last of these, and times from there on. Of
/// the tokens after the prompt:
///
/// | what came last | what may come |
/// |---|---|
/// | nothing | a time, at most `max_initial` after the first |
/// | a time after a word | a time that is not earlier, or an end |
/// | a time after a time, or alone | no time |
/// | a word | anything, but no time up to the last one |
///
/// and of what may come, only times where their probabilities add up to more than the best of all other tokens has.
/// Takes no scratch and never fails.
///
/// ```
/// use simdformer::search::{Context, LogitsProcessor, Timestamps};
///
/// // Words 0 to 2, an end, and times from 5 on.
/// let mut rule = Timestamps { no_timestamps: 4, eos: 3, max_initial: Some(1) };
/// let context = Context { sentence: 0, source: &[], history: &[4], prompt_len: 1, max_length: 9 };
/// let mut scores = [0.0; 9];
/// rule.process(&context, &mut scores, &mut [])?;
/// let allowed = (0..9).filter(|&token| scores[token] > f32::NEG_INFINITY);
/// assert!(allowed.eq([5, 6]));
/// # Ok::<(), simdformer::search::SearchError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// The token that asks for text without times: never produced. Times are the tokens after it.
    pub no_timestamps: u32,
    /// The end token.
    pub eos: u32,
    /// The latest time that may come first, counted from the first of all; `None` for any.
    pub max_initial: Option<usize>,
}

impl LogitsProcessor for Timestamps {
    fn process(
        &mut self,
        context: &Context<'_>,
        scores: &mut [f32],
        _: &mut [u32],
    ) -> Result<(), SearchError> {
        let vocabulary = scores.len();
        let begin = (self.no_timestamps as usize).saturating_add(1);
        let (words, end) = ((self.eos as usize).min(vocabulary), begin.min(vocabulary));
        let is_time = |&token: &u32| token > self.no_timestamps;
        let mut ban = |from: usize, to: usize| {
            if let Some(scores) = scores.get_mut(from..to.min(vocabulary)) {
                scores.fill(f32::NEG_INFINITY);
            }
        };
        ban(self.no_timestamps as usize, begin);
        let new = context.history.get(context.prompt_len..).unwrap_or(&[]);
        // A pair is open after a word and a time.
        let (after_time, open) = match new {
            [.., before, last] => (is_time(last), is_time(last) && !is_time(before)),
            [last] => (is_time(last), false),
            [] => (false, false),
        };
        if open {
            ban(0, words);
        } else if after_time {
            ban(begin, vocabulary);
        }
        if let Some(&latest) = new.iter().rev().find(|token| is_time(token)) {
            ban(begin, latest as usize + usize::from(!open));
        }
        if new.is_empty() {
            ban(0, end);
            if let Some(latest) = self.max_initial {
                ban(begin.saturating_add(latest).saturating_add(1), vocabulary);
            }
        }
        let (others, times) = scores.split_at_mut(end);
        if log_sum_exp(times) > f64::from(maximum(others)) {
            others.fill(f32::NEG_INFINITY);
        }
        Ok(())
    }
}
