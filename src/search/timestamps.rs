//! The timestamp rule of transcription models.

use super::hooks::{Context, LogitsProcessor};
use super::score_rows::{log_sum_exp, maximum};
use crate::error::Error;

/// Forces timestamps in pairs and in ascending order, and forces a timestamp where the timestamps together are
/// more probable than any other token (Radford et al. 2022, section 4.5). `WhisperTimeStampLogitsProcessor` of
/// transformers. [`SearchOptions::timestamps`](super::SearchOptions::timestamps) applies it, or
/// [`Hooks`](super::Hooks), before all other processors of the caller.
///
/// Text tokens have ids below `eos`. A few special tokens follow, of which `no_timestamps` is the last; all ids
/// after it are timestamps. Rules for the tokens after the prompt:
///
/// | last tokens | next token |
/// |---|---|
/// | none | a timestamp, at most `max_initial` after the first one |
/// | text, then a timestamp | a timestamp that is not earlier, or an end token |
/// | two timestamps, or a single timestamp | no timestamp |
/// | text | any token, but no timestamp up to the last one |
///
/// In addition, if the total probability of the allowed timestamps exceeds that of the best other token, only
/// timestamps are allowed. The processor never fails.
///
/// ```
/// use simdformer::search::{Context, LogitsProcessor, Timestamps};
///
/// // Text tokens 0 to 2, an end token, and timestamps from 5 on.
/// let mut rule = Timestamps { no_timestamps: 4, eos: 3, max_initial: Some(1) };
/// let context = Context { sentence: 0, source: &[], history: &[4], prompt_len: 1, max_length: 9 };
/// let mut scores = [0.0; 9];
/// rule.process(&context, &mut scores)?;
/// let allowed = (0..9).filter(|&token| scores[token] > f32::NEG_INFINITY);
/// assert!(allowed.eq([5, 6]));
/// # Ok::<(), simdformer::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// The token that requests text without timestamps; it is always banned. The ids after it are timestamps.
    pub no_timestamps: u32,
    /// The end token.
    pub eos: u32,
    /// The latest allowed first timestamp, as an offset from the first timestamp id; `None` allows any.
    pub max_initial: Option<usize>,
}

impl LogitsProcessor for Timestamps {
    fn process(&mut self, context: &Context<'_>, scores: &mut [f32]) -> Result<(), Error> {
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
        // A pair is open if a timestamp follows text.
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
